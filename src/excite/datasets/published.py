"""Data sets that can be fetched from their publishers (``published.toml``)."""

import re
import shutil
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from excite.errors import FetchError
from excite.io.archives import members, unpack
from excite.io.fetch import Remote, fetch_to
from excite.io.files import locked


@dataclass(frozen=True)
class PublishedDataset:
    """A data set with the archives of its splits."""

    name: str  # on the command line
    description: str  # one line for users
    folder: str  # its folder for `open_dataset`, below the one it is fetched to
    splits: Mapping[str, tuple[Remote, ...]]  # split -> its archives
    usual: tuple[str, ...]  # the splits that are fetched by default

    @classmethod
    def of(cls, name: str, facts: dict[str, Any]) -> Self:
        """The data set of an entry of ``published.toml``."""

        def remote(place: str) -> Remote:
            size, digest = facts["archives"][place]
            url, *mirrors = (f"{site}/{place}" for site in facts["from"])
            return Remote(place.rpartition("/")[2], url, digest, tuple(mirrors), size)

        splits = {split: tuple(map(remote, places)) for split, places in facts["splits"].items()}
        return cls(name, facts["description"], facts["folder"], splits, tuple(facts["usual"]))


_TABLE = tomllib.loads((files("excite.datasets") / "published.toml").read_text(encoding="utf-8"))
PUBLISHED: Mapping[str, PublishedDataset] = {name: PublishedDataset.of(name, facts) for name, facts in _TABLE.items()}

IMAGENET = ("imagenet", "imagenet1k", "ilsvrc", "ilsvrc2012")
BY_HAND = (
    "it needs an account. ILSVRC2012_img_val.tar and ILSVRC2012_bbox_val_v3.tgz are on https://image-net.org/download, "
    "the images and LOC_val_solution.csv on https://www.kaggle.com/c/imagenet-object-localization-challenge; "
    "put the images into DIR/val, the table into DIR or the XML files into DIR/bbox_val, and say --data DIR"
)


def fetch_dataset(
    name: str,
    folder: Path,
    splits: Sequence[str] = (),
    *,
    say: Callable[[str], None] = print,
    shown: Callable[[Iterator[str], int], Iterable[str]] = lambda files, _count: files,
) -> Path:
    """Fetch and unpack a data set, except the archives that are already unpacked; the folder for `open_dataset`.

    Archives are kept in the folder too, and may be removed afterwards. ``shown`` wraps the iterator of unpacked files,
    given their number, for a progress bar.
    """
    published = published_dataset(name)
    for split in splits:
        if split not in published.splits:
            raise FetchError(f"{published.name} has no split {split!r}: its splits are {', '.join(published.splits)}")
    chosen = splits or published.usual
    archives = list(dict.fromkeys(archive for split in chosen for archive in published.splits[split]))
    missing = [each for each in archives if not _marker(each, folder).is_file()]
    for each in (each for each in archives if each not in missing):
        say(f"{each.name}: was unpacked before; remove {_marker(each, folder)} to do it again")
    _check_room(missing, folder)
    for each in missing:
        say(f"{each.name}: fetching {each.url}")
        place = fetch_to(each, folder / each.name)
        with place.open("rb") as archive, members(place) as found:
            if locked(archive) is False:  # two runs would replace each other's files
                raise FetchError(f"another run is unpacking {str(place)!r}: wait for it")
            say(f"{each.name}: unpacking {len(found)} files")
            for _ in shown(unpack(found, folder), len(found)):
                pass
        _marker(each, folder).touch()
        say(f"{each.name}: done; {place} may be removed")
    return folder / published.folder


def published_dataset(name: str) -> PublishedDataset:
    """The data set of this name, unless there is none or it needs an account."""
    if re.sub(r"[-_ ]", "", name.lower()) in IMAGENET:
        raise FetchError(f"{name} cannot be fetched: {BY_HAND}")
    if name not in PUBLISHED:
        raise FetchError(f"no data set is called {name!r}: there are {', '.join(PUBLISHED)}")
    return PUBLISHED[name]


def _marker(archive: Remote, folder: Path) -> Path:
    """A file that exists once an archive was unpacked completely."""
    return folder / f".{archive.name}.unpacked"


def _check_room(archives: Sequence[Remote], folder: Path) -> None:
    """Compare the free space with twice the size of the archives: packed images are hardly smaller."""
    needed = sum(2 * (archive.size or 0) for archive in archives)
    begun = (folder / f"{archive.name}{suffix}" for archive in archives for suffix in ("", ".part"))
    needed -= sum(path.stat().st_size for path in begun if path.is_file())
    above = next((path for path in (folder, *folder.absolute().parents) if path.exists()), folder)
    free = shutil.disk_usage(above).free
    if needed > free:
        raise FetchError(f"about {needed / 1e9:.1f} GB are needed in {folder}, of which {free / 1e9:.1f} GB are free")
