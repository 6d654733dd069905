"""Help in short groups, with rare options behind ``--help-all``; and what the shell may complete."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

HELP_NAMES = ["-h", "--help", "--help-all"]
GROUPS = {  # the options of each section; all others come first
    "Classifier": "--model --weights --labels --size --fully-convolutional --device",
    "Map": "--layer --method --methods --contrast --against --alpha --proposals --cache --gamma --trust --side --hints",
    "Learning": "--layers --first --epochs --batch --rate --momentum --held-out --checks-per-epoch --views --augment",
    "Output": "--out --format --style --full-size --overlays --draw --arrays --page --sheet --csv --tensorboard --json",
    "Work": "--limit --skip --seed --workers --engine --address --save-every --index --update --thumbnails --fresh",
}
RARE = frozenset(
    "--weights --labels --fully-convolutional --contrast --alpha --arrays --engine --address --cache --gamma --trust "
    "--side --hints --momentum --checks-per-epoch --save-every --tensorboard --urls --columns --skip --seed "
    "--difficult --protocol --tolerance --own-shape --truth --results --max-upload --max-pixels --waiting --choices "
    "--keep-alphabetical --keep-similar --first --overlap --thumbnails".split()
)


class _GroupedHelp:
    """Writes the options of a command under the titles of `GROUPS`, and names the rare ones only."""

    def get_params(self, context: Any) -> list[Any]:
        params: list[Any] = super().get_params(context)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and not param.secondary_opts:
                param.default = param.default or False  # typer loads pydantic to read None, 0.1 s
        return params

    def format_options(self, context: Any, formatter: Any) -> None:
        everything = "--help-all" in (context.obj or ())  # `main` puts the arguments there
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", "Options", *GROUPS)}
        rare = []
        for param in self.params:  # type: ignore[attr-defined]
            row, name = param.get_help_record(context), param.opts[0]
            if row is not None and name in RARE:
                rare.append(name)
            if row is not None and (everything or name not in RARE):
                title = next((title for title, names in GROUPS.items() if name in names.split()), "Options")
                sections["Arguments" if param.param_type_name == "argument" else title].append(row)
        more = [("--help-all", f"Explain rare options too: {' '.join(rare)}")] if rare else []
        sections["Help"] = [("-h, --help", "Print this."), *more]
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class HelpfulCommand(_GroupedHelp, TyperCommand):
    """A command with help in groups."""


class HelpfulGroup(_GroupedHelp, TyperGroup):
    """A group of commands with help in groups."""

    def format_options(self, context: Any, formatter: Any) -> None:
        """Write the options, and the commands."""
        super().format_options(context, formatter)
        self.format_commands(context, formatter)


class Commands(typer.Typer):
    """A group of commands in plain text, that can be piped, with errors of one line."""

    def __init__(self, **more: Any) -> None:
        super().__init__(cls=HelpfulGroup, rich_markup_mode=None, **more)

    def command(self, name: str | None = None, **more: Any) -> Callable[..., Any]:
        """Add a command, as `typer.Typer.command` does."""
        return super().command(name, **{"cls": HelpfulCommand, **more})


def completes(what: str) -> Callable[[typer.Context, str], list[str]]:
    """What the shell offers for the beginning of a name: of "models", "methods", or "layers" of the model named so far.

    Names are kept in a file for each version: to find them takes torch, and seconds. Where they cannot be found none is
    offered, as a shell has no place for errors.
    """

    def offered(context: typer.Context, incomplete: str) -> list[str]:
        from excite import DEFAULT_MODEL, __version__
        from excite.errors import ExciteError
        from excite.io.cache import fingerprint
        from excite.io.fetch import cache_folder
        from excite.io.files import save_json

        given = context.params.get("model") or DEFAULT_MODEL
        model = given if isinstance(given, str) else given[0]
        file = cache_folder() / "names" / f"{fingerprint([__version__, what, model if what == 'layers' else ''])}.json"
        names: list[str] = []
        with suppress(OSError, ValueError):
            names = json.loads(file.read_text(encoding="utf-8"))
        if not names:
            with suppress(OSError, ExciteError):
                names = _names(what, model)
                save_json(names, file)
        return [name for name in names if name.startswith(incomplete)]

    return offered


def _names(what: str, model: str) -> list[str]:
    from excite.methods import METHODS
    from excite.models import MODELS, Choice
    from excite.models.layers import outline

    if what == "layers":
        return [layer.name for layer in outline(Choice(model, weights="random").load())[0]]
    return list(METHODS) if what == "methods" else [*MODELS, "torchvision:", "timm:"]
