"""Write src/excite/vocabulary/wordnet.txt and persons.txt from WordNet 3.0, whose numbers name the classes of ImageNet.

python dev/make_wordnet_kinds.py /usr/share/wordnet        (Debian's package wordnet-base)

wordnet.txt has one line for each kind of thing ("dog") that classes of ImageNet are below, at any depth: its number,
its words, its classes. A word of several such kinds is on several lines. One more line lists the words of the classes
themselves that mostly mean something else. How this is decided, from how often WordNet's authors met each sense of a
word in text:

* A kind of more than half of all classes says nothing: entity, physical entity, object, whole, artifact. A kind with
  more than 70 kinds below it for each of its classes is known in too small a part: "paper" is not toilet tissue.
* A kind is something that can be seen: relations, attributes and the like are left out. So is the person: people are in
  many images of ImageNet, but its classes are three of their roles (ballplayer, groom, scuba diver).
* A word stands for those of its senses with classes below that were met at least a third as often as the most frequent
  of them ("bird": the animal, not its meat).
* A word mostly means something else if another sense of it, an adjective, a verb, or a noun for what can be seen, was
  met more than three times as often. "Stand" is then no word for a kind, and "ear" is listed: not the ear of corn.

persons.txt has the words that mean people ("umpire"), one a line: those met as such at least half as often as in
another sense, and of words never met those that mean nothing else. They are for classifiers that know a person.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

VOCABULARY = Path(__file__).parents[1] / "src" / "excite" / "vocabulary"
MOST_BELOW = 70  # kinds below a kind for each of its classes
RARER = 3  # a sense met so many times less often than another is not what the word says
SEEN = frozenset("03 04 05 06 08 13 14 15 17 18 20 25 27".split())
"""The numbers of WordNet's files of nouns for what can be seen: tops, acts, animals, artifacts, bodies, food, groups,
locations, objects, persons, plants, shapes, substances."""
PERSON = "00007846"
NOUN = "1"


@dataclass(frozen=True)
class Synset:
    """A sense: its words, the file it stands in, what it is a kind or an instance of."""

    words: tuple[str, ...]
    file: str
    above: tuple[str, ...]


class WordNet:
    """The nouns of WordNet, and how often each sense was met."""

    def __init__(self, folder: Path) -> None:
        self.licence = [line[2:].partition(" ")[2].strip() for line in text_of(folder / "data.noun") if line[0] == " "]
        self.synsets = dict(map(synset_of, lines_of(folder / "data.noun")))
        self.senses = dict(map(senses_of, lines_of(folder / "index.noun")))
        self.counts: defaultdict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        for line in text_of(folder / "cntlist.rev"):
            sense, number, count = line.split()
            word, part = sense.split("%")
            self.counts[spaced(word)][part[0], int(number)] = int(count)

    def above(self, number: str) -> set[str]:
        """All that a sense is a kind of, itself included."""
        found: set[str] = set()
        waiting = [number]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += self.synsets[one].above
        return found

    def met(self, word: str) -> dict[str, int]:
        """How often each noun that a word stands for was met, its number with the count."""
        return {
            number: self.counts[word].get((NOUN, place), 0)
            for place, number in enumerate(self.senses.get(word, ()), start=1)
        }

    def others(self, word: str, but: Container[str]) -> int:
        """How often the most frequent of the other senses was met: of other parts of speech, or seen things."""
        nouns = [n for number, n in self.met(word).items() if number not in but and self.synsets[number].file in SEEN]
        return max([*nouns, *(n for (part, _), n in self.counts[word].items() if part != NOUN)], default=0)


def text_of(path: Path) -> list[str]:
    """The lines of one of WordNet's files."""
    return path.read_text(encoding="utf-8").splitlines()


def lines_of(path: Path) -> Iterator[list[str]]:
    """The fields of a file's lines, without its licence, which is indented."""
    return (line.partition(" | ")[0].split() for line in text_of(path) if not line.startswith(" "))


def synset_of(fields: list[str]) -> tuple[str, Synset]:
    """One line of data.noun: number, file, kind, number of words (hexadecimal), words, number of pointers, pointers."""
    end = 4 + 2 * int(fields[3], 16)
    pointers = [fields[start : start + 4] for start in range(end + 1, end + 1 + 4 * int(fields[end]), 4)]
    above = tuple(number for sign, number, *_ in pointers if sign in ("@", "@i"))
    return fields[0], Synset(tuple(spaced(word) for word in fields[4:end:2]), fields[1], above)


def senses_of(fields: list[str]) -> tuple[str, list[str]]:
    """One line of index.noun: the word, ..., the numbers of its senses, the most frequent first."""
    return spaced(fields[0]), fields[-int(fields[2]) :]


def spaced(word: str) -> str:
    """A word of WordNet as people write it."""
    return word.replace("_", " ")


def is_rare(count: int, other: int) -> bool:
    """Whether a sense is much rarer than another; one more is added to both, as few were met at all."""
    return RARER * (count + 1) < other + 1


def told_kinds(wordnet: WordNet, classes: list[str]) -> dict[str, list[int]]:
    """For each kind that has something to say its classes; a class is a kind of one, itself."""
    below: defaultdict[str, list[int]] = defaultdict(list)
    for unit, number in enumerate(classes):
        for kind in wordnet.above(number):
            below[kind].append(unit)
    sizes = Counter(kind for number in wordnet.synsets for kind in wordnet.above(number))

    def is_told(kind: str, number: int) -> bool:
        is_known = sizes[kind] <= MOST_BELOW * number and number <= len(classes) / 2
        return is_known and wordnet.synsets[kind].file in SEEN and kind != PERSON

    return {kind: units for kind, units in sorted(below.items()) if kind in classes or is_told(kind, len(units))}


def said_words(wordnet: WordNet, kind: str, told: Collection[str]) -> list[str]:
    """The words that mean a kind: nothing else, and no other of those kinds, is what they usually say."""

    def is_said(word: str) -> bool:
        met = {number: count for number, count in wordnet.met(word).items() if number in told}
        return not is_rare(met[kind], max(met.values())) and not is_other(wordnet, word, told)

    return sorted(word for word in wordnet.synsets[kind].words if is_said(word.lower()))


def is_other(wordnet: WordNet, word: str, own: Container[str]) -> bool:
    """Whether a word mostly means something else than those kinds and classes."""
    met = [count for number, count in wordnet.met(word).items() if number in own]
    return not met or is_rare(max(met), wordnet.others(word, own))


def persons(wordnet: WordNet) -> list[str]:
    """The single words that mean people."""
    people = {number for number in wordnet.synsets if PERSON in wordnet.above(number)}

    def is_person(word: str) -> bool:
        met, other = wordnet.met(word), wordnet.others(word, people)
        own = max(count for number, count in met.items() if number in people)
        seen = {number for number in met if wordnet.synsets[number].file in SEEN}
        return 2 * own >= other if own else not other and seen <= people

    words = {word for number in people for word in wordnet.synsets[number].words}
    return sorted(word for word in words if word.isalpha() and word.islower() and is_person(word))


def classes_by_word(rows: list[list[str]]) -> dict[str, set[str]]:
    """The classes that each word is a label of."""
    named: defaultdict[str, set[str]] = defaultdict(set)
    for wnid, *words in rows:
        for word in words:
            named[word.lower()].add(wnid.removeprefix("n"))
    return named


def spans(units: list[int]) -> str:
    """Classes as spans: "0-6 389"."""
    runs = [[unit for _, unit in run] for _, run in groupby(enumerate(units), lambda pair: pair[1] - pair[0])]
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def main() -> None:
    """Read WordNet and the classes, write both texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of data.noun, index.noun and cntlist.rev of WordNet 3.0")
    wordnet = WordNet(parser.parse_args().folder)
    rows = [line.split("\t") for line in text_of(VOCABULARY / "imagenet.txt")]
    classes = [wnid.removeprefix("n") for wnid, *_ in rows]
    told = told_kinds(wordnet, classes)
    found = {kind: words for kind in told if kind not in classes and (words := said_words(wordnet, kind, told))}
    named = classes_by_word(rows)
    others = sorted(word for word, own in named.items() if is_other(wordnet, word, own))
    kinds = [f"n{kind}\t{', '.join(words)}\t{spans(told[kind])}" for kind, words in found.items()]
    write("wordnet.txt", "Kinds of ImageNet's classes", [*kinds, f"other\t{', '.join(others)}"], wordnet.licence)
    write("persons.txt", "Words that mean people", persons(wordnet), wordnet.licence)


def write(name: str, what: str, lines: list[str], licence: list[str]) -> None:
    """Write one of our texts, with the licence as that asks."""
    head = [f"{what}, by WordNet 3.0; made by dev/make_wordnet_kinds.py. WordNet's licence:", *licence]
    text = "\n".join([*(f"# {line}".rstrip() for line in head), *lines]) + "\n"
    (VOCABULARY / name).write_text(text, encoding="utf-8")
    print(f"{VOCABULARY / name}: {len(lines)} lines")


if __name__ == "__main__":
    main()
