"""Draws the README's images: photographs of scikit-image (free licences) and what the embedded classifiers see."""

from pathlib import Path

from PIL import Image
from skimage import data

import excite

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
QUESTIONS = [
    (data.chelsea(), ["cat", "tiger cat", "plastic bag"]),
    (data.coffee(), ["cup", "espresso", "soup bowl"]),
    (data.rocket(), ["missile", "crane", "water tower"]),
]
PHRASE = "a smiling woman in an orange suit"


def concepts() -> Image.Image:
    """Three concepts in each of three photographs."""
    classifier = excite.load("efficientnet-lite0")
    maps = [found for photo, words in QUESTIONS for found in excite.attend(classifier, photo, words)]
    return excite.compare(maps, point=True, cell_width=230)


def phrase() -> Image.Image:
    """A phrase with its regions and the maps of its words."""
    (found,) = excite.ground(excite.load("words"), data.astronaut(), PHRASE, most=3)
    return found.figure(width=1000)


def main() -> None:
    """Draw them."""
    for name, draw in (("readme", concepts), ("grounding", phrase)):
        target = PICTURES / f"{name}.jpg"
        draw().save(target, quality=88, optimize=True)
        print(f"drew {target}, {target.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
