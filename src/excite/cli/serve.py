"""``excite serve``: a page in the browser, and the same over HTTP for programs."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from excite import DEFAULT_MODEL
from excite.cli import options
from excite.cli.console import complain, progress, say_json
from excite.errors import ExciteError, visible

EXAMPLES = """\b
Examples:
  excite serve --open                                    the page, in your browser
  excite serve --model words --model torchvision:vgg16   choose which classifiers are offered
  excite serve --host 0.0.0.0                            for others in the network; the address has a token
  excite serve --photos holiday/                         search your photos by words, too
  excite serve --port 0 --json                           any free port, told to a program
"""

OFFERED = (DEFAULT_MODEL, "everyday", "efficientnet-lite0")
REPORTS = Path("excite-out")
MOST_PIXELS = 89_000_000  # Pillow refuses more by itself, whatever is said here


@options.grouped
def command(
    *,
    models: Annotated[
        list[str] | None,
        Option(
            "--model",
            metavar="MODEL",
            help=f"{options.MODEL_HELP} May be given several times, the first is the default; "
            f"{', '.join(OFFERED)} if none is.",
        ),
    ] = None,
    classifiers: options.ClassifierOptions,
    host: Annotated[
        str, Option(help="Where to listen: this machine alone can ask at 127.0.0.1, all can at 0.0.0.0.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 7860,
    token: Annotated[
        str | None,
        Option(
            envvar="EXCITE_TOKEN",
            show_envvar=False,
            help="The token that requests need (or in EXCITE_TOKEN); one is made unless --host is a loopback address.",
        ),
    ] = None,
    reports: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="Show the pages of `excite bench` in it; excite-out if that is there."),
    ] = None,
    examples: Annotated[
        Path | None, Option(metavar="FOLDER", help="Show up to 12 images of it to try; a cat and others if not said.")
    ] = None,
    photos: Annotated[
        Path | None, Option(metavar="FOLDER", help="Photos that can be searched by words, as with `excite find`.")
    ] = None,
    index: Annotated[
        Path | None, Option(metavar="FILE", help="Their index; .excite-index.sqlite in the folder if none.")
    ] = None,
    open_browser: Annotated[bool, Option("--open", help="Show the page in your browser.")] = False,
    max_upload: Annotated[
        int | None, Option(min=1, metavar="MB", help="Refuse images of more megabytes; 25 if not said.")
    ] = None,
    max_pixels: Annotated[
        int | None,
        Option(min=1, max=MOST_PIXELS, metavar="N", help="Refuse images of more pixels; 60 millions if not said."),
    ] = None,
    waiting: Annotated[
        int | None, Option(min=0, metavar="N", help="How many may wait for their turn; 32 if not said.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print the address and the token as one JSON object.")] = False,
) -> None:
    """Open a page where images are dropped and concepts are pointed at, and answer programs over HTTP.

    It ends with Ctrl-C. Images stay in memory and are forgotten; nothing is fetched from elsewhere.
    """
    missing = [name for name in ("fastapi", "python_multipart", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ExciteError(f"the page needs {', '.join(missing)}: pip install 'excite[serve]'")
    if reports is not None and not reports.is_dir():
        raise typer.BadParameter(f"there is no folder {str(reports)!r}: `excite bench --out FOLDER` writes one")
    from excite.models import Choice
    from excite.web.server import serve
    from excite.web.service import Limits, Service

    choice = Choice("", **vars(classifiers))
    if choice.asked() != Choice("").asked() and len(models or []) != 1:
        raise typer.BadParameter("--weights, --labels, --size and such are those of one classifier: give one --model")
    named: dict[str, Choice] = {}
    for model in models or OFFERED:
        name = visible(_name(model))
        if name in named:
            raise typer.BadParameter(f"two classifiers are called {name!r}: give each --model once, or rename a file")
        named[name] = replace(choice, model=model)
    changed = {"upload": max_upload and max_upload * 2**20, "pixels": max_pixels, "waiting": waiting}
    service = Service(named, Limits(**{name: value for name, value in changed.items() if value is not None}))
    for name in service.models if models else ():
        _ = service.served_model(name).classifier  # an error now, and not at the first request
    if photos is not None:
        from excite.search import PhotoIndex

        service.photos = PhotoIndex(photos, service.served_model().classifier, file=index)
        for line in service.photos.update(progress=progress).unreadable:
            complain(line)
    serve(
        service,
        host=host,
        port=port,
        token=token,
        reports=reports or (REPORTS if REPORTS.is_dir() else None),
        examples=examples,
        open_browser=open_browser,
        announce=(lambda url, token: say_json({"url": url, "token": token})) if as_json else None,
    )


def _name(model: str) -> str:
    """The name of a classifier on the page; that of a file is its stem."""
    path = Path(model)
    is_file = path.exists() or (path.suffix and ":" not in model)  # timm:NAME.TAG has a dot, and is no file
    return path.stem or model if is_file else model
