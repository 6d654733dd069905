"""Write down the public API of this version, one fact a line: docs/api/MINOR.txt.

    python dev/public_api.py            # write the list again
    python dev/public_api.py --check    # say in words what differs from it, and from the version before

Listed are the names of `excite`, its errors, everything on the pages of docs/reference/, and every command with its
arguments and options. What docs/reference/versions.md promises is promised of these.
"""

import argparse
import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

import excite

ROOT = Path(__file__).resolve().parents[1]
LISTS = ROOT / "docs" / "api"
OLD = "Deprecated since"  # how a docstring or an option's help says that it will go
MARK = "  [deprecated]"
KINDS = {inspect.Parameter.KEYWORD_ONLY: "by name ", inspect.Parameter.VAR_POSITIONAL: "*"}


def main() -> int:
    """Write the list, or check it.

    Returns:
        The exit code: 1 if something differs.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    place, now = list_of(excite.__version__), "\n".join([*lines(), ""])
    if not parser.parse_args().check:
        place.write_text(now, encoding="utf-8")
        print(f"{place.relative_to(ROOT)}: {len(facts(now))} facts")
        return 0
    found = [*differences(place.read_text(encoding="utf-8") if place.is_file() else "", now)]
    earlier = before(place)
    found += [*broken(earlier.read_text(encoding="utf-8"), now)] if earlier else []
    print("\n".join(found) or f"{place.relative_to(ROOT)} is what the code has")
    return 1 if found else 0


def list_of(version: str) -> Path:
    """Where the list of a version lies: one for each minor version."""
    return LISTS / f"{'.'.join(version.split('.')[:2])}.txt"


def before(place: Path) -> Path | None:
    """The list of the minor version before one, if there was one."""
    ordered = sorted(LISTS.glob("*.txt"), key=lambda path: [int(part) for part in path.stem.split(".")])
    return next((path for path in reversed(ordered[: ordered.index(place)])), None) if place in ordered else None


def facts(text: str) -> dict[str, str]:
    r"""A list as names and what is said of each.

    Example:
        >>> facts("excite.f -> int\n    x: int = 1")
        {'excite.f': '-> int', 'excite.f x': 'int = 1'}
    """
    answer, owner = {}, ""
    for line in text.splitlines():
        if line.startswith("    "):
            name, _, rest = line.strip().partition(": ")
            answer[f"{owner} {name}"] = rest
        elif line and not line.startswith("#"):
            owner, _, rest = line.partition(" -> ") if " -> " in line else line.partition(": ")
            answer[owner] = f"-> {rest}" if " -> " in line else rest
    return answer


def differences(old: str, new: str) -> Iterator[str]:
    """Say in words what two lists do not have in common."""
    was, now = facts(old), facts(new)
    yield from (f"added: {name}: {now[name]}" for name in sorted(now.keys() - was.keys()))
    yield from (f"removed: {name}: it was {was[name]}" for name in sorted(was.keys() - now.keys()))
    other = sorted(name for name in was.keys() & now.keys() if was[name] != now[name])
    yield from (f"changed: {name}: it was {was[name]!r} and is {now[name]!r}" for name in other)


def broken(old: str, new: str) -> Iterator[str]:
    """Say what a new minor version takes away that the one before did not announce."""
    was, now = facts(old), facts(new)
    for name in sorted(was.keys() - now.keys()):
        above = " ".join(name.split(" ")[:-1])
        if not was[name].endswith(MARK.strip()) and not was.get(above, "").endswith(MARK.strip()):
            yield f"{name} is gone without having been deprecated for a minor version (docs/reference/versions.md)"
    for name in sorted(now.keys() - was.keys()):
        above = " ".join(name.split(" ")[:-1])
        if above in was and " = " not in now[name] and "*" not in now[name]:
            yield f"{name} is new and has no default: what was written for the version before fails"


def lines() -> Iterator[str]:
    """The list."""
    yield "# Written by `python dev/public_api.py`; docs/reference/versions.md says what is promised of it."
    yield "\n# Python"
    for name in dict.fromkeys([*(f"excite.{one}" for one in excite.__all__), *documented()]):
        yield from about(name, found(name))
    yield "\n# errors and warnings"
    errors = importlib.import_module("excite.errors")
    for name in errors.__all__:
        yield f"excite.errors.{name}: {' '.join(one.__name__ for one in getattr(errors, name).__mro__[1:-1])}"
    yield "\n# commands"
    yield from commands("excite", typer.main.get_command(importlib.import_module("excite.cli.app").app))


def documented() -> list[str]:
    """The names on the reference's pages."""
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    named = [one for page in pages for one in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE)]
    return [name for name in named if name != "excite.errors"]


def found(name: str) -> Any:
    """What a dotted name stands for."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def about(name: str, thing: Any) -> Iterator[str]:
    """The facts of a function, a class or a table."""
    if isinstance(thing, Mapping):
        yield f"{name}: a table"
        yield from (f"    {key!r}: an entry" for key in thing)
    elif inspect.isclass(thing):
        yield f"{name}: a class{old(thing)}"
        yield from parameters(thing) if not issubclass(thing, Exception) else ()
        fields = {one.name for one in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
        for inner, value in sorted(vars(thing).items()):
            if not inner.startswith("_") and inner not in fields:
                yield from member(f"{name}.{inner}", value)
    else:
        yield from member(name, thing)


def member(name: str, thing: Any) -> Iterator[str]:
    """The facts of a function, a method, a property or a constant."""
    function = getattr(thing, "__func__", thing)
    if isinstance(function, property) or hasattr(function, "func"):  # a cached property has the latter
        getter = function.fget if isinstance(function, property) else function.func
        yield f"{name}: a property, {written(inspect.signature(getter).return_annotation)}{old(getter)}"
    elif callable(function):
        yield f"{name} -> {written(inspect.signature(function).return_annotation)}{old(function)}"
        yield from parameters(function)
    else:
        yield f"{name}: a value"


def parameters(thing: Any) -> Iterator[str]:
    """The parameters of something that can be called: kind, type and default."""
    for one in inspect.signature(thing).parameters.values():
        default = "" if one.default is one.empty else f" = {shown(one.default)}"
        if one.name not in {"self", "cls"}:
            yield f"    {one.name}: {KINDS.get(one.kind, '')}{written(one.annotation)}{default}"


def written(annotation: Any) -> str:
    """An annotation as it stands in the source."""
    if annotation is inspect.Parameter.empty:
        return "?"
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def shown(default: Any) -> str:
    """A default; a function by its name, since its address differs each time."""
    return getattr(default, "__qualname__", None) or repr(default)


def old(thing: Any) -> str:
    """The mark of what will go."""
    return MARK if OLD in (inspect.getdoc(thing) or "") else ""


def commands(path: str, command: Any) -> Iterator[str]:
    """The facts of a command and of those below it."""
    yield f"{path}: a command{MARK if OLD in (command.help or '') else ''}"
    for one in command.params:
        name = (
            "/".join([*one.opts, *one.secondary_opts]) if one.param_type_name == "option" else one.metavar or one.name
        )
        kind = written(one.type_descriptor.annotation)
        rest = "" if one.required else f" = {one.default!r}"
        yield f"    {name}: {kind}{rest}{MARK if OLD in (getattr(one, 'help', '') or '') else ''}"
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(f"{path} {name}", inner)


if __name__ == "__main__":
    sys.exit(main())
