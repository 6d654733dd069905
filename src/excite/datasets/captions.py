"""MS COCO's captions: phrases for things of its categories, which mean all instances of these."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

from excite.datasets.base import read_text
from excite.datasets.coco import Coco
from excite.datasets.noun_phrases import noun_phrases
from excite.datasets.phrases import Described, Phrase, PhraseDataset
from excite.errors import DataError
from excite.vocabulary.caption_words import coco_categories

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from excite.datasets.sample import Box, Sample

__all__ = ["CaptionPhrases"]

CAPTIONS = "annotations/captions_"
INSTANCES = "annotations/instances_"


class CaptionPhrases(PhraseDataset):
    """Noun phrases of captions whose noun is a word for a category: "two dogs" means all dogs of the picture.

    What is said about one of several ("a man") is taken for all of them as well: nobody wrote down which one. Crowds
    that nobody took apart are no part of the truth, as in COCO's own evaluation.
    """

    name = "captions"
    layout = f"{CAPTIONS}SPLIT.json, {INSTANCES}SPLIT.json, SPLIT/*.jpg"

    def _splits(self) -> list[str]:
        return _splits_in(self.folder)

    def _read(self) -> list[str]:
        coco = Coco(self.folder, self.split)
        self._kinds = coco.supercategories
        self._meanings = _words_for(self._kinds)
        captions = self._captions_by_number()
        self._described: dict[str, Described] = {}
        for name in coco.names:
            said = captions.pop(coco.also_called(name)[-1], [])
            try:
                sample = coco.sample(name)
            except DataError:
                self._count("pictures whose annotations are broken")
                continue
            self._add(sample, said)
        self._count("captions of pictures without instances", sum(map(len, captions.values())))
        return list(self._described)

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether captions and instances of the same pictures are there."""
        return bool(_splits_in(folder))

    @property
    def groups(self) -> tuple[str, ...]:
        """The supercategories, in the order of the file's categories."""
        return tuple(dict.fromkeys(kind for kind in self._kinds.values() if kind))

    def sample(self, name: str) -> Described:
        """A picture and the phrases of its captions."""
        return self._described[name]

    def _captions_by_number(self) -> dict[str, list[str]]:
        """The captions of each picture, by its number."""
        path = self.folder / f"{CAPTIONS}{self.split}.json"
        try:
            content = json.loads(read_text(path))
        except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
            raise DataError(f"{path}: broken JSON ({error})") from None
        entries = content.get("annotations") if isinstance(content, dict) else None
        if not isinstance(entries, list):
            raise DataError(f"{path}: it has no list 'annotations', so it is no captions file of COCO")
        answer: dict[str, list[str]] = defaultdict(list)
        for entry in entries:
            text = entry.get("caption") if isinstance(entry, dict) else None
            if isinstance(text, str) and text.strip() and isinstance(entry.get("image_id"), int):
                answer[str(entry["image_id"])].append(" ".join(text.split()))
            else:
                self._count("captions without words or a picture")
        return answer

    def _add(self, sample: Sample, captions: Iterable[str]) -> None:
        """Keep the phrases of a picture whose instances are known; count the others."""
        if not sample.path.is_file():
            self._count("pictures that are missing")
            return
        boxes = self._boxes(sample)
        phrases = []
        for caption in captions:
            for found in noun_phrases(caption, self._meanings):
                if not found.meaning:
                    self._count("words for a category that seem to be part of another name")
                elif found.meaning not in boxes:
                    self._count("phrases whose category was not annotated in the picture")
                elif not boxes[found.meaning]:
                    self._count("phrases whose category was annotated as a crowd only")
                else:
                    phrases.append(Phrase(found.text, boxes[found.meaning], self._kinds[found.meaning], caption))
        if phrases:
            self._described[sample.name] = Described(sample.name, sample.path, tuple(phrases), sample.size)
        else:
            self._count("pictures without a phrase")

    def _boxes(self, sample: Sample) -> dict[str, tuple[Box, ...]]:
        """The boxes of each category of a picture, without crowds."""
        answer = {}
        for target in sample.targets:
            single = [instance.box for instance in target.instances if not instance.crowd]
            answer[target.concept] = tuple(box for box in single if box[0] < box[2] and box[1] < box[3])
            self._count("crowd regions", len(target.instances) - len(single))
            self._count("boxes without an area", len(single) - len(answer[target.concept]))
        return answer

    def _count(self, why: str, times: int = 1) -> None:
        if times:
            self.left_out[why] += times


def _splits_in(folder: Path) -> list[str]:
    """The splits that have captions and instances."""
    captions = {path.stem.removeprefix("captions_") for path in folder.glob(f"{CAPTIONS}*.json")}
    return sorted(split for split in captions if (folder / f"{INSTANCES}{split}.json").is_file())


def _words_for(categories: Iterable[str]) -> Mapping[str, str]:
    """The category of each word for one: their own names, and what else COCO's are called."""
    own = {category.lower(): category for category in categories}
    return {word: own[category] for word, category in coco_categories().items() if category in own} | own
