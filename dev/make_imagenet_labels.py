"""Write src/excite/vocabulary/imagenet.txt from LOC_synset_mapping.txt of the ImageNet challenge.

python dev/make_imagenet_labels.py ../shared/data/imagenet/LOC_synset_mapping.txt

One line for each class, in the order of the classes: its WordNet number and its synonyms, parted by tabs.
"""

import argparse
import re
from pathlib import Path

CLASSES = 1000
TARGET = Path(__file__).parents[1] / "src" / "excite" / "vocabulary" / "imagenet.txt"


def rewritten(line: str) -> str:
    """One line of the mapping ("n01440764 tench, Tinca tinca") as one line of ours."""
    found = re.fullmatch(r"(n\d{8}) (\S.*)", line.strip())
    if found is None:
        raise SystemExit(f"this is no line of LOC_synset_mapping.txt: {line!r}")
    wnid, synonyms = found.groups()
    return "\t".join([wnid, *(word.strip() for word in synonyms.split(","))])


def main() -> None:
    """Read the mapping, write the labels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mapping", type=Path, help="LOC_synset_mapping.txt")
    lines = [rewritten(line) for line in parser.parse_args().mapping.read_text(encoding="utf-8").splitlines()]
    if len(lines) != CLASSES:
        raise SystemExit(f"the mapping has {len(lines)} classes, not {CLASSES}")
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{TARGET}: {len(lines)} labels")


if __name__ == "__main__":
    main()
