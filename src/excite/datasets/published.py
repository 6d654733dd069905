"""Data sets that can be fetched from their publishers."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.errors import FetchError
from excite.io.archives import members, unpack
from excite.io.fetch import Remote, fetch_to
from excite.io.locks import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

OXFORD = "https://thor.robots.ox.ac.uk/pascal/VOC/voc2007"
OXFORD_BEFORE = "http://host.robots.ox.ac.uk/pascal/VOC/voc2007"  # the address in most programs; often down
COCO = "https://s3.amazonaws.com/images.cocodataset.org"  # the bucket behind images.cocodataset.org, with encryption
COCO_PLAIN = "http://images.cocodataset.org"


@dataclass(frozen=True)
class PublishedDataset:
    """A data set with the archives of its splits.

    Attributes:
        name: On the command line.
        description: One line for users.
        folder: Its folder for `open_dataset`, below the one it is fetched to.
        splits: Split -> its archives.
        usual: The splits that are fetched by default.
    """

    name: str
    description: str
    folder: str
    splits: Mapping[str, tuple[Remote, ...]]
    usual: tuple[str, ...]


def _voc(name: str, size: int, sha256: str) -> Remote:
    return Remote(name, f"{OXFORD}/{name}", sha256, (f"{OXFORD_BEFORE}/{name}",), size)


def _coco(place: str, size: int, sha256: str) -> Remote:
    return Remote(place.split("/")[1], f"{COCO}/{place}", sha256, (f"{COCO_PLAIN}/{place}",), size)


# Neither publisher gives hashes. These, and the sizes, are those by which tensorflow/datasets checks its downloads
# (tensorflow_datasets/url_checksums/voc.txt and coco.txt).
TRAINVAL = _voc(
    "VOCtrainval_06-Nov-2007.tar", 460_032_000, "7d8cd951101b0957ddfd7a530bdc8a94f06121cfc1e511bb5937e973020c7508"
)
TEST = _voc("VOCtest_06-Nov-2007.tar", 451_020_800, "6836888e2e01dca84577a849d339fa4f73e1e4f135d312430c4856b5609b4892")
ANNOTATIONS_2014 = _coco(
    "annotations/annotations_trainval2014.zip",
    252_872_794,
    "031296bbc80c45a1d1f76bf9a90ead27e94e99ec629208449507a4917a3bf009",
)
ANNOTATIONS_2017 = _coco(
    "annotations/annotations_trainval2017.zip",
    252_907_541,
    "113a836d90195ee1f884e704da6304dfaaecff1f023f49b6ca93c4aaae470268",
)
TRAIN_2014 = _coco(
    "zips/train2014.zip", 13_510_573_713, "ede4087e640bddba550e090eae701092534b554b42b05ac33f0300b984b31775"
)
VAL_2014 = _coco("zips/val2014.zip", 6_645_013_297, "fe9be816052049c34717e077d9e34aa60814a55679f804cd043e3cbee3b9fde0")
TRAIN_2017 = _coco(
    "zips/train2017.zip", 19_336_861_798, "69a8bb58ea5f8f99d24875f21416de2e9ded3178e903f1f7603e283b9e06d929"
)
VAL_2017 = _coco("zips/val2017.zip", 815_585_330, "4f7e2ccb2866ec5041993c9cf2a952bbed69647b115d0f74da7ce8f4bef82f05")

PUBLISHED: Mapping[str, PublishedDataset] = {
    each.name: each
    for each in (
        PublishedDataset(
            "voc2007",
            "PASCAL VOC 2007: 9963 images, 20 categories, boxes",
            "VOCdevkit/VOC2007",
            {"train": (TRAINVAL,), "val": (TRAINVAL,), "trainval": (TRAINVAL,), "test": (TEST,)},
            ("trainval", "test"),
        ),
        PublishedDataset(
            "coco2014",
            "MS COCO 2014: 123,287 images, 80 categories, masks",
            ".",
            {"train": (ANNOTATIONS_2014, TRAIN_2014), "val": (ANNOTATIONS_2014, VAL_2014)},
            ("val",),
        ),
        PublishedDataset(
            "coco2017",
            "MS COCO 2017: the same images, of which 5000 are for validation",
            ".",
            {"train": (ANNOTATIONS_2017, TRAIN_2017), "val": (ANNOTATIONS_2017, VAL_2017)},
            ("val",),
        ),
    )
}

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
    """Fetch and unpack a data set, except the archives that are already unpacked.

    Args:
        name: One of `PUBLISHED`.
        folder: The destination; archives are kept there too, and may be removed afterwards.
        splits: Names of splits; by default the usual ones.
        say: Callback for messages.
        shown: Wraps the iterator of unpacked files, given their number: a hook for a progress bar.

    Returns:
        The folder for `open_dataset`.

    Raises:
        FetchError: There is no such data set or split, no room on the disk, or an archive cannot be had.
        DataError: An archive cannot be unpacked.

    Example:
        >>> fetch_dataset("voc2007", Path("data"), ["test"])  # doctest: +SKIP
    """
    published = published_dataset(name)
    archives = _archives(published, splits)
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
    """The data set of this name.

    Raises:
        FetchError: There is none, or it needs an account.

    Example:
        >>> published_dataset("coco2014").usual
        ('val',)
    """
    if re.sub(r"[-_ ]", "", name.lower()) in IMAGENET:
        raise FetchError(f"{name} cannot be fetched: {BY_HAND}")
    if name not in PUBLISHED:
        raise FetchError(f"no data set is called {name!r}: there are {', '.join(PUBLISHED)}")
    return PUBLISHED[name]


def _archives(published: PublishedDataset, splits: Sequence[str]) -> list[Remote]:
    """The archives of some splits, each once."""
    for split in splits:
        if split not in published.splits:
            raise FetchError(f"{published.name} has no split {split!r}: its splits are {', '.join(published.splits)}")
    chosen = splits or published.usual
    return list(dict.fromkeys(archive for split in chosen for archive in published.splits[split]))


def _marker(archive: Remote, folder: Path) -> Path:
    """A file that exists once an archive was unpacked completely."""
    return folder / f".{archive.name}.unpacked"


def _check_room(archives: Sequence[Remote], folder: Path) -> None:
    """Compare the free space with twice the size of the archives: packed images are hardly smaller."""
    needed = sum(2 * (archive.size or 0) - _fetched_bytes(folder / archive.name) for archive in archives)
    above = next((path for path in (folder, *folder.absolute().parents) if path.exists()), folder)
    free = shutil.disk_usage(above).free
    if needed > free:
        raise FetchError(f"about {needed / 1e9:.1f} GB are needed in {folder}, of which {free / 1e9:.1f} GB are free")


def _fetched_bytes(archive: Path) -> int:
    paths = (archive, archive.with_name(archive.name + ".part"))
    return sum(path.stat().st_size for path in paths if path.is_file())
