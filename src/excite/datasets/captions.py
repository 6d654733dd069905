"""MS COCO's captions: the noun phrases of its categories, each referring to all instances of its category."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from excite.datasets.base import Box, Phrase, PhraseDataset, PhraseSample, Sample, parse_json, read_text
from excite.datasets.coco import INSTANCES, Coco
from excite.errors import DataError
from excite.vocabulary.inflection import singular
from excite.vocabulary.labels import coco_categories
from excite.vocabulary.word_lists import lines_of, words_of

CAPTIONS = "annotations/captions_{}.json"

TOKEN = re.compile(r"[^\W_]+(?:['\N{RIGHT SINGLE QUOTATION MARK}-][^\W_]+)*|[^\w\s]")
LONGEST_NAME = 3  # words: "stove top oven"
MOST_WORDS = 6  # that describe an object


class CaptionPhrases(PhraseDataset):
    """Noun phrases of captions whose noun is a word for a category: "two dogs" means all dogs of the image.

    A phrase about one of several ("a man") counts for all of them, because COCO does not annotate which one. Crowds are
    left out, as in COCO's own evaluation.
    """

    name = "captions"
    layout = f"{CAPTIONS.format('SPLIT')}, {INSTANCES.format('SPLIT')}, SPLIT/*.jpg"
    _split_file = CAPTIONS

    @classmethod
    def _splits_in(cls, folder: Path) -> list[str]:
        """The splits that have captions and instances."""
        return [split for split in super()._splits_in(folder) if (folder / INSTANCES.format(split)).is_file()]

    def _read_samples(self) -> None:
        coco = Coco(self.folder, self.split)
        self._kinds = coco.supercategories
        own = {category.lower(): category for category in self._kinds}
        self._meanings = {word: own[name] for word, name in coco_categories().items() if name in own} | own
        self.groups = tuple(dict.fromkeys(kind for kind in self._kinds.values() if kind))
        captions = self._captions_by_number()
        for name in coco.names:
            texts = captions.pop(coco.also_called(name)[-1], [])
            try:
                self._add(coco.sample(name), texts)
            except DataError:
                self.left_out["images whose annotations are broken"] += 1
        self.left_out["captions of images without instances"] += sum(map(len, captions.values()))
        self.left_out = +self.left_out  # without the reasons that never occurred

    def _captions_by_number(self) -> dict[str, list[str]]:
        """The captions of each image, by its number."""
        path = self._split_path()
        content = parse_json(read_text(path), path)
        entries = content.get("annotations") if isinstance(content, dict) else None
        if not isinstance(entries, list):
            raise DataError(f"{path}: it has no list 'annotations', so it is no captions file of COCO")
        captions: dict[str, list[str]] = defaultdict(list)
        for entry in entries:
            text = entry.get("caption") if isinstance(entry, dict) else None
            if isinstance(text, str) and text.strip() and isinstance(entry.get("image_id"), int):
                captions[str(entry["image_id"])].append(" ".join(text.split()))
            else:
                self.left_out["captions without words or an image"] += 1
        return captions

    def _add(self, sample: Sample, captions: Iterable[str]) -> None:
        """Add the phrases of an image whose instances are known; count the others."""
        if not sample.path.is_file():
            self.left_out["images that are missing"] += 1
            return
        boxes = self._boxes(sample)
        phrases = []
        for caption in captions:
            for found in noun_phrases(caption, self._meanings):
                if not found.meaning:
                    self.left_out["words for a category that seem to be part of another name"] += 1
                elif found.meaning not in boxes:
                    self.left_out["phrases whose category was not annotated in the image"] += 1
                elif not boxes[found.meaning]:
                    self.left_out["phrases whose category was annotated as a crowd only"] += 1
                else:
                    phrases.append(Phrase(found.text, boxes[found.meaning], self._kinds[found.meaning], caption))
        if phrases:
            self._samples[sample.name] = PhraseSample(sample.name, sample.path, tuple(phrases), sample.size)
        else:
            self.left_out["images without a phrase"] += 1

    def _boxes(self, sample: Sample) -> dict[str, tuple[Box, ...]]:
        """The boxes of each category of an image, without crowds."""
        boxes = {}
        for target in sample.targets:
            single = [instance.box for instance in target.instances if not instance.crowd]
            boxes[target.concept] = tuple(box for box in single if box[0] < box[2] and box[1] < box[3])
            self.left_out["crowd regions"] += len(target.instances) - len(single)
            self.left_out["boxes without an area"] += len(single) - len(boxes[target.concept])
        return boxes


# Noun phrases by rules, without a tagger: precision before recall, doubtful phrases are dropped.
#
# A phrase goes from its determiner, over its attributes, to its noun: "a large brown teddy bear", "two dogs". Counting
# words are part of it: "a bunch of bananas", "a group of people". The noun has to be the last of its phrase (a car door
# is no car), which is certain only where the next word cannot be a noun. The words, by their function in a sentence,
# were gathered by hand from captions of COCO's training images.

DETERMINERS, BARE_VERBS, NOUNS_LIKE_VERBS = map(words_of, ("determiners", "verbs of plurals", "nouns like verbs"))
FOLLOWERS = DETERMINERS.union(*map(words_of, ("prepositions", "other function words", "verbs")))  # end a noun phrase
COLOURS = words_of("colours in captions")
QUALITIES = COLOURS | words_of("qualities")
GROUP_WORDS, LIKENESSES = map(words_of, ("group words", "likenesses"))
MISLEADING = frozenset(pair.strip() for pair in " ".join(lines_of("misleading pairs")).split(","))


class NounPhrase(NamedTuple):
    """A noun phrase and the meaning of its noun; blank where the noun is part of another name ("car door")."""

    text: str
    meaning: str


def noun_phrases(caption: str, meanings: Mapping[str, str]) -> list[NounPhrase]:
    """The phrases of a caption whose noun is known, in order; also those whose noun is not the last, without a meaning.

    ``meanings`` are those of nouns in the singular and in small letters.
    """
    tokens = list(TOKEN.finditer(caption))
    words = [token.group().lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'") for token in tokens]
    found, at = [], 0
    while at < len(words):
        length, name = _known(words, at, meanings)
        if name:
            (start, goes_on), end = _group(words, at), at + length
            while goes_on:
                start, goes_on = _group(words, start - 2)
            text = caption[tokens[start].start() : tokens[end - 1].end()]
            found.append(NounPhrase(text, meanings[name] if _refers(words, start, at, end, name) else ""))
        at += max(length, 1)
    return found


def _known(words: Sequence[str], at: int, meanings: Mapping[str, str]) -> tuple[int, str]:
    """How many words from here on are the longest known name, and that name."""
    for length in range(min(LONGEST_NAME, len(words) - at), 0, -1):
        name = " ".join(words[at : at + length])
        known = name if name in meanings else singular(name)
        if known in meanings:
            return length, known
    return 0, ""


def _refers(words: Sequence[str], start: int, at: int, end: int, name: str) -> bool:
    """Whether a known name is the noun of its phrase and is meant literally."""
    last = singular(" ".join(words[max(at - 1, start) : end]))
    if last in MISLEADING or LIKENESSES & set(words[start:at]):
        return False
    if start > 1 and words[start - 1] == "of" and words[start - 2] in LIKENESSES:  # "a statue of a horse"
        return False
    if "stuffed" in words[start:at] and name not in {"teddy bear", "teddybear"}:
        return False
    if name == "orange" and not _is_fruit(words, start, at, end):
        return False
    bare = start == at and start > 0
    is_verb = bare and words[start - 1] in {"to", "play", "plays", "playing"}  # "to bear", "playing ball"
    return not is_verb and _ends(words, end)


def _ends(words: Sequence[str], end: int) -> bool:
    """Whether a noun phrase certainly ends before this word."""
    if end == len(words):
        return True
    after = words[end]
    if not after[0].isalpha():
        return not after[0].isdigit() and after not in {"-", "/", "&"}
    if after in NOUNS_LIKE_VERBS:
        return False
    plural = singular(words[end - 1]) != words[end - 1] or words[end - 1] in {"people", "sheep", "cattle"}
    return after in FOLLOWERS or after.endswith(("ing", "ed")) or (plural and after in BARE_VERBS)


def _group(words: Sequence[str], at: int) -> tuple[int, bool]:
    """The first word of the group that ends at this index, and whether the phrase goes on two words before it."""
    start = at
    while start > 0 and at - start < MOST_WORDS and _describes(words, start - 1):
        start -= 1
    if start > 1 and words[start - 1] in {"and", ","} and {words[start], words[start - 2]} <= QUALITIES:
        return start, True  # "a black and white cat"
    while start > 0 and (words[start - 1] in DETERMINERS or words[start - 1].isdigit()):
        start -= 1
    of_group = start > 1 and words[start - 1] == "of" and words[start - 2] in GROUP_WORDS  # "a bunch of"
    return start, of_group and words[start - 3 : start - 2] != ["parking"]  # a parking lot of cars is none


def _describes(words: Sequence[str], at: int) -> bool:
    """Whether a word is an attribute of the noun soon after it."""
    word, before = words[at], words[max(at - 2, 0) : at]
    if not word[0].isalpha() or word in FOLLOWERS:
        return False
    if word in NOUNS_LIKE_VERBS:
        return True
    described = bool(before) and before[-1] in DETERMINERS | QUALITIES
    if word in BARE_VERBS or word.endswith("ing"):  # "a race car", "a sleeping cat"; but "a man holding oranges"
        return described
    if word.endswith("ed"):  # also "a middle aged woman": captions have hardly any past tense
        return described or not before or not DETERMINERS.isdisjoint(before)
    return True


def _is_fruit(words: Sequence[str], start: int, at: int, end: int) -> bool:
    """Whether "orange" is no colour: it is counted or in the plural, and no second colour follows."""
    counted = words[end - 1] == "oranges" or bool({"a", "an", "the", "one", "single"} & set(words[start:at]))
    and_colour = end + 1 < len(words) and words[end] in {"and", ",", "or"} and words[end + 1] in COLOURS
    return counted and not and_colour
