"""A page of many images: thumbnails with what was found in each, sorted and filtered in the browser, in one file."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from PIL import Image

from excite.errors import ExciteError
from excite.io.files import atomic_write
from excite.io.text import templates_of
from excite.readouts.figure import percent
from excite.readouts.notebook import data_address, jpeg

SIDE, QUALITY = 256, 75  # the longer side of a thumbnail in pixels, and of its JPEG
MARK = b'<meta name="generator" content="excite">'  # in the first bytes of a page
SCHEMES = {"", "http", "https", "file"}  # of links: no scripts


@dataclass(frozen=True)
class Card:
    """An image on a `gallery`, with the probability of each concept in it.

    Args:
        image: any image; its thumbnail is put into the page.
        name: the caption.
        link: the address behind the image, for a file from `file_link`; None for none.
        facts: the probability of each concept, in the order in which they are shown.
        links: the address behind a concept, for those that have one.
    """

    image: Image.Image
    name: str
    link: str | None
    facts: Mapping[str, float]
    links: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for link in (self.link, *self.links.values()):
            if link is not None and urlsplit(link).scheme.lower() not in SCHEMES:
                raise ExciteError(f"{link!r} is no address of a page or a file: use file_link for files")

    @property
    def shown(self) -> dict[str, Any]:
        """The values of the template; the image is made small here, so that no more than one is in memory."""
        small = self.image.convert("RGB")
        small.thumbnail((SIDE, SIDE), reducing_gap=2.0)
        rows = [(name, float(of), percent(of), self.links.get(name)) for name, of in self.facts.items()]
        about = {"name": self.name, "link": self.link, "rows": rows}
        return {**about, "source": data_address("image/jpeg", jpeg(small, QUALITY)), "size": small.size}


def gallery(title: str, cards: Iterable[Card], note: str = "") -> str:
    """One self-contained HTML page: sorted by name, concept or probability in the browser, and filtered by words.

    Example:
        >>> from PIL import Image
        >>> page = gallery("Dogs", [Card(Image.new("RGB", (640, 480)), "rex.jpg", None, {"dog": 0.97})])
        >>> page.count("<img"), "97%" in page
        (1, True)
    """
    return "".join(gallery_chunks(title, cards, note))


def gallery_chunks(title: str, cards: Iterable[Card], note: str = "") -> Iterator[str]:
    """The text of `gallery` in chunks; each card is taken when its chunk is, so memory does not grow with their number.

    Example:
        >>> next(gallery_chunks("Dogs", [])).startswith("<!DOCTYPE html>")
        True
    """
    template = templates_of("excite.readouts").get_template("gallery.html")
    stream = template.stream(title=title, note=note, cards=(card.shown for card in cards))
    stream.enable_buffering(64)
    return iter(stream)


def write_gallery(path: Path, title: str, cards: Iterable[Card], note: str = "") -> Path:
    """Write a `gallery` card by card; an `ExciteError` if the file is there and is no page of excite's.

    Example:
        >>> from pathlib import Path
        >>> write_gallery(Path("index.html"), "Dogs", [])
        PosixPath('index.html')
    """
    check_gallery(path)
    chunks = gallery_chunks(title, cards, note)
    return atomic_write(path, lambda file: file.writelines(chunk.encode("utf-8", "replace") for chunk in chunks))


def check_gallery(path: Path) -> None:
    """Raise an `ExciteError` if there is a file that `write_gallery` has not written."""
    try:
        with path.open("rb") as file:
            own = MARK in file.read(1024)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ExciteError(f"cannot write {str(path)!r}: {error.strerror or error}; choose another --out") from None
    if not own:
        raise ExciteError(f"{str(path)!r} is there already and was not written by excite: choose another --out")


def file_link(file: Path, page: Path) -> str:
    """The address of a file relative to a page, both as paths.

    Example:
        >>> from pathlib import Path
        >>> file_link(Path("photos/a #1.jpg"), Path("out/index.html"))
        '../photos/a%20%231.jpg'
    """
    return quote(os.fsencode(os.path.relpath(file, page.parent).replace(os.sep, "/")))
