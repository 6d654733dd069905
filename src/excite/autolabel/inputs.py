"""The inputs of a run: the images, and the concepts to find in each."""

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
from excite.io.drawn import slug
from excite.vocabulary.labels import fold, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from excite.autolabel.files import OutputFolder
    from excite.vocabulary import Concept, Labels


ANYWHERE = Path("/")  # an overlay drawn by excite is no input, in whatever folder
LONGEST_STEM = 200  # bytes in a file name, which may have 255 in all


@dataclass(frozen=True)
class InputImage:
    """An image to make boxes for.

    Attributes:
        number: its position in the order of the names, from 1.
        path: the file, as the user would name it.
        name: its path below the folder that holds all images, with forward slashes.
        stem: a unique name without blanks, dots and slashes.
    """

    number: int
    path: Path
    name: str
    stem: str

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return Path(os.path.abspath(self.path)).parent.name  # noqa: PTH100 - Path's own would follow links


def find_inputs(arguments: Sequence[str], files: OutputFolder) -> tuple[Path, list[InputImage]]:
    """The folder that holds all images, and the images in the order of their names below it.

    Args:
        arguments: folders, images and patterns.
        files: the output folder: links that an earlier run made there are no inputs, even if they are below a folder.

    Raises:
        ImageError: an argument stands for no image.

    Example:
        >>> find_inputs(["photos"], OutputFolder(Path("boxes"), "coco"))  # doctest: +SKIP
        (PosixPath('/home/me/photos'), [InputImage(1, PosixPath('photos/dog/1.jpg'), 'dog/1.jpg', 'dog-1')])
    """
    found: dict[str, Path] = {}
    folders: list[str | Path] = []
    for argument in arguments:
        paths = list(_images_of(argument, files))
        if not paths:
            raise ImageError(f"no images found for {argument!r} but those that excite itself has put there")
        for path in paths:  # two links to one image are one image
            file = os.path.realpath(path)
            found[file] = min(found.get(file, path), path, key=resolved_parent)
        folders += [argument] if os.path.isdir(argument) else [path.parent for path in paths]  # noqa: PTH112 - any name
    root = Path(os.path.commonpath([os.path.realpath(folder) for folder in folders]))
    names = {resolved_parent(path).relative_to(root).as_posix(): path for path in found.values()}
    stems = _stems(sorted(names))
    return root, [InputImage(k, names[name], name, stems[name]) for k, name in enumerate(sorted(names), 1)]


def resolved_parent(path: Path) -> Path:
    """A path with the links in its folder resolved, but not the file itself, which may be a link.

    Example:
        >>> resolved_parent(Path("/photos/../photos/1.jpg"))
        PosixPath('/photos/1.jpg')
    """
    return Path(os.path.realpath(path.parent), path.name)


def _images_of(argument: str, files: OutputFolder) -> Iterator[Path]:
    """The images of an argument, with links that an earlier run made replaced by their targets below the argument."""
    paths = split_arguments([argument], ANYWHERE)[0]
    matches = [argument] if os.path.exists(argument) else glob.glob(argument, recursive=True)  # noqa: PTH110, PTH207 - any name
    folders = {Path(os.path.realpath(match)) for match in matches if os.path.isdir(match)}  # noqa: PTH112 - any name
    named = folders | {resolved_parent(Path(match)) for match in matches if not os.path.isdir(match)}  # noqa: PTH112
    for path in paths:
        original = files.original(path)
        if original is None:
            yield path
        elif original != path and not named.isdisjoint((original, *original.parents)):
            yield original


def _stems(names: Sequence[str]) -> dict[str, str]:
    """A unique name without blanks for each; compared without case, as some file systems do."""
    taken: set[str] = set()
    last: dict[str, int] = {}
    stems = {}
    for name in names:
        stem = words = slug(name.removesuffix(Path(name).suffix), LONGEST_STEM)
        while stem.casefold() in taken:
            last[words] = last.get(words, 1) + 1
            stem = f"{words}-{last[words]}"
        taken.add(stem.casefold())
        stems[name] = stem
    return stems


# The concepts to find, and the names of their boxes.

NO_TEXT = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # not allowed in XML or UTF-8


@dataclass(frozen=True)
class Target:
    """A concept to find.

    Attributes:
        category: the name of its boxes: the user's own word.
        cue: the classifier's concept for it; the word itself where the classifier has no labels.
    """

    category: str
    cue: Concept | str


def category_name(word: str) -> str:
    r"""A word in a form that every format can hold: on one line, with single blanks.

    Raises:
        ConceptError: it is blank, or holds characters that are no text.

    Example:
        >>> category_name("tabby\n  cat ")
        'tabby cat'
    """
    name = " ".join(unicodedata.normalize("NFC", word).split())
    if not name:
        raise ConceptError("the concept is blank: name one, or see them all with `excite ls labels`")
    if NO_TEXT.search(name):
        raise ConceptError(f"the concept {name!r} holds characters that no file of boxes can hold: rename it")
    return name


def find_targets(words: Iterable[str], labels: Labels | None) -> tuple[Target, ...]:
    """The classifier's concept for each word, without repetitions.

    Raises:
        ConceptError: some words are unknown; the message lists all of them.

    Example:
        >>> from excite.vocabulary import Labels
        >>> find_targets(["Dogs", "cat", "cat"], Labels(["dog", "cat"]))[0]
        Target(category='Dogs', cue=Concept(name='dog', units=(0,)))
    """
    targets, errors = [], []
    for name in dict.fromkeys(map(category_name, words)):
        try:
            targets.append(Target(name, name if labels is None else labels.find(name)))
        except ConceptError as error:
            errors.append(str(error))
    if errors:
        count = f"{len(errors)} concepts are unknown. " if len(errors) > 1 else ""
        raise ConceptError(count + " ".join(errors))
    return tuple(targets)


def substitutions(targets: Iterable[Target]) -> str:
    """The words whose concept has another name, as text; blank if there are none.

    Example:
        >>> from excite.vocabulary import Concept
        >>> substitutions([Target("dogs", Concept("dog", (0,))), Target("cat", Concept("cat", (1,)))])
        "'dogs' for 'dog'"
    """
    pairs = [(one.category, one.cue if isinstance(one.cue, str) else one.cue.name) for one in targets]
    return listed([f"{word!r} for {name!r}" for word, name in pairs if fold(word) != fold(name)])
