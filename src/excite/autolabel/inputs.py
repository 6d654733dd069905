"""Which images are meant, and what each of them is called in the files."""

from __future__ import annotations

import glob
import os
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from excite.autolabel.batch import split_arguments
from excite.errors import ConceptError, ImageError
from excite.vocabulary.labels import fold, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from excite.autolabel.files import Files
    from excite.vocabulary import Concept, Labels


ANYWHERE = Path("/")  # wherever excite has drawn an overlay, it is no image to make boxes for
LONGEST_STEM = 200  # bytes in a file name, which may have 255 in all


@dataclass(frozen=True)
class Picture:
    """An image that boxes are asked for.

    Attributes:
        number: its place in the order of the names, from 1.
        path: the file, as the user would name it.
        name: where it is below the folder that holds all images, with forward slashes.
        stem: a name that no other image has, without blanks, dots and slashes.
    """

    number: int
    path: Path
    name: str
    stem: str

    @property
    def folder(self) -> str:
        """The name of the folder that it lies in."""
        return Path(os.path.abspath(self.path)).parent.name  # noqa: PTH100 - Path's own would follow links


def find_pictures(arguments: Sequence[str], files: Files) -> tuple[Path, list[Picture]]:
    """The folder that holds all images, and the images in the order of their names below it.

    Args:
        arguments: folders, images and patterns.
        files: what an earlier run wrote: a link of its own is no image, even if it lies in a folder that is named.

    Raises:
        ImageError: an argument stands for no image.

    Example:
        >>> find_pictures(["photos"], Files(Path("boxes"), "coco"))  # doctest: +SKIP
        (PosixPath('/home/me/photos'), [Picture(1, PosixPath('photos/dog/1.jpg'), 'dog/1.jpg', 'dog-1')])
    """
    found: dict[str, Path] = {}
    folders: list[str | Path] = []
    for argument in arguments:
        paths = list(_found_by(argument, files))
        if not paths:
            raise ImageError(f"no images found for {argument!r} but those that excite itself has put there")
        for path in paths:  # two links to one image are one image, whatever is named first
            file = os.path.realpath(path)
            found[file] = min(found.get(file, path), path, key=place)
        folders += [argument] if os.path.isdir(argument) else [path.parent for path in paths]  # noqa: PTH112 - any name
    root = Path(os.path.commonpath([os.path.realpath(folder) for folder in folders]))
    names = {place(path).relative_to(root).as_posix(): path for path in found.values()}
    stems = _stems(sorted(names))
    return root, [Picture(k, names[name], name, stems[name]) for k, name in enumerate(sorted(names), 1)]


def place(path: Path) -> Path:
    """Where a file is, whatever links led to its folder; if it is a link itself, where that is.

    Example:
        >>> place(Path("/photos/../photos/1.jpg"))
        PosixPath('/photos/1.jpg')
    """
    return Path(os.path.realpath(path.parent), path.name)


def _found_by(argument: str, files: Files) -> Iterator[Path]:
    """The images of an argument. Of an image and our link to it, only one is found: it may be the link."""
    paths = split_arguments([argument], ANYWHERE)[0]
    matches = [argument] if os.path.exists(argument) else glob.glob(argument, recursive=True)  # noqa: PTH110, PTH207 - any name
    places = {Path(os.path.realpath(match)) if os.path.isdir(match) else place(Path(match)) for match in matches}  # noqa: PTH112 - any name
    for path in paths:
        original = files.original(path)
        if original is None:
            yield path
        elif original != path and not places.isdisjoint((original, *original.parents)):
            yield original


def _stems(names: Sequence[str]) -> dict[str, str]:
    """A name without blanks for each, made of its words; on some disks capitals make no difference."""
    taken: set[str] = set()
    last: dict[str, int] = {}
    stems = {}
    for name in names:
        stem = words = _words(name.removesuffix(Path(name).suffix))
        while stem.casefold() in taken:
            last[words] = last.get(words, 1) + 1
            stem = f"{words}-{last[words]}"
        taken.add(stem.casefold())
        stems[name] = stem
    return stems


def _words(text: str) -> str:
    words = re.sub(r"\W+", "-", unicodedata.normalize("NFC", text)).strip("-")
    return words.encode()[:LONGEST_STEM].decode(errors="ignore").strip("-") or "picture"


# What to look for in which image, and what its boxes are called.

NO_TEXT = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # neither XML nor UTF-8 has all of the rest


@dataclass(frozen=True)
class Wanted:
    """Something to look for.

    Attributes:
        category: what its boxes are called: the user's own word.
        cue: what the classifier understands by it; the word itself where the classifier has no words.
    """

    category: str
    cue: Concept | str


def category(word: str) -> str:
    r"""A word as every format can hold it: on one line, with single blanks between its parts.

    Raises:
        ConceptError: it is blank, or holds characters that are no text.

    Example:
        >>> category("tabby\n  cat ")
        'tabby cat'
    """
    name = " ".join(unicodedata.normalize("NFC", word).split())
    if not name:
        raise ConceptError("the concept is blank: name one, or see them all with `excite ls labels`")
    if NO_TEXT.search(name):
        raise ConceptError(f"the concept {name!r} holds characters that no file of boxes can hold: rename it")
    return name


def understood(words: Iterable[str], labels: Labels | None) -> tuple[Wanted, ...]:
    """What the classifier takes each of these words for; a word that is named twice is wanted once.

    Raises:
        ConceptError: it does not know all of them; all that it does not know are named.

    Example:
        >>> from excite.vocabulary import Labels
        >>> understood(["Dogs", "cat", "cat"], Labels(["dog", "cat"]))[0]
        Wanted(category='Dogs', cue=Concept(name='dog', units=(0,)))
    """
    wanted, errors = [], []
    for name in dict.fromkeys(map(category, words)):
        try:
            wanted.append(Wanted(name, name if labels is None else labels.find(name)))
        except ConceptError as error:
            errors.append(str(error))
    if len(errors) > 1:
        raise ConceptError(f"{len(errors)} concepts are unknown. {' '.join(errors)}")
    if errors:
        raise ConceptError(errors[0])
    return tuple(wanted)


def folders_of(pictures: Sequence[Picture]) -> list[str]:
    """The names of the folders in which the images lie, in alphabetical order."""
    return sorted({picture.folder for picture in pictures})


def check_labels(labels: Labels | None) -> None:
    """Raise a `ConceptError` if the classifier might find something that cannot be written down."""
    for name in labels or ():
        category(name)


def misread(wanted: Iterable[Wanted]) -> str:
    """Which words were taken for something that is called otherwise, for people to read; blank if none.

    Example:
        >>> from excite.vocabulary import Concept
        >>> misread([Wanted("dogs", Concept("dog", (0,))), Wanted("cat", Concept("cat", (1,)))])
        "'dogs' for 'dog'"
    """
    pairs = [(one.category, one.cue if isinstance(one.cue, str) else one.cue.name) for one in wanted]
    return listed([f"{word!r} for {name!r}" for word, name in pairs if fold(word) != fold(name)])
