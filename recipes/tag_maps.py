"""Maps of everyday words from a tag classifier, on COCO images whose captions say the word: one sheet to look at.

python recipes/tag_maps.py mine --data coco --out maps.png --words dog,tree,snow
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from PIL import Image, ImageDraw

import excite

WORDS = "dog,cat,pizza,snow,bathroom,train,beach,table,woman,tree"


def main() -> None:
    """Draw the words, each on the first image that was not drawn yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("classifier")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--words", default=WORDS)
    parser.add_argument("--skip", type=int, default=0, help="so many images of each word are passed over")
    given = parser.parse_args()
    classifier = excite.load(given.classifier)
    facts = json.loads((given.data / "annotations" / "captions_val2017.json").read_text(encoding="utf-8"))
    names = {image["id"]: image["file_name"] for image in facts["images"]}
    panels = []
    for word in given.words.split(","):
        said = [one["image_id"] for one in facts["annotations"] if re.search(rf"\b{word}\b", one["caption"].lower())]
        often = sorted({image: -said.count(image) for image in said}.items(), key=lambda one: one[1])
        for image, _ in often[given.skip : given.skip + 1]:
            (found,) = excite.attend(classifier, given.data / "val2017" / names[image], word)
            panels.append(panel(found.overlay(), f"{word} ({found.probability:.2f})"))
    sheet(panels).save(given.out)


def panel(picture: Image.Image, title: str) -> Image.Image:
    """An image of even size with its word above."""
    picture.thumbnail((320, 240))
    whole = Image.new("RGB", (330, 270), "white")
    whole.paste(picture, (5, 25))
    ImageDraw.Draw(whole).text((8, 4), title, fill="black", font_size=16)
    return whole


def sheet(panels: list[Image.Image], columns: int = 5) -> Image.Image:
    """The panels in rows."""
    rows = -(-len(panels) // columns)
    whole = Image.new("RGB", (330 * columns, 270 * rows), "white")
    for place, one in enumerate(panels):
        whole.paste(one, (330 * (place % columns), 270 * (place // columns)))
    return whole


if __name__ == "__main__":
    main()
