"""Write src/excite/vocabulary/coco.txt from a list of words for the categories of COCO.

python dev/make_coco_words.py ../shared/data/coco/annotations/synonyms.json

The list is a JSON object: a word of captions, and the category it means. One line for each category: its name and the
other words for it, parted by tabs. Blank words are left out; blanks around and between words are made single.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src" / "excite" / "vocabulary" / "coco.txt"


def table(synonyms: dict[str, str]) -> dict[str, list[str]]:
    """The other words for each category, in the order of their letters."""
    words: defaultdict[str, set[str]] = defaultdict(set)
    for word, category in synonyms.items():
        tidy, name = " ".join(word.split()).lower(), " ".join(category.split()).lower()
        if tidy and name:
            words[name].add(tidy)
    return {name: sorted(words[name] - {name}) for name in sorted(words)}


def main() -> None:
    """Read the list, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("synonyms", type=Path, help="a JSON object of words and categories")
    found = table(json.loads(parser.parse_args().synonyms.read_text(encoding="utf-8")))
    TARGET.write_text("".join("\t".join([name, *words]) + "\n" for name, words in found.items()), encoding="utf-8")
    print(f"{TARGET}: {sum(map(len, found.values()))} words for {len(found)} categories")


if __name__ == "__main__":
    main()
