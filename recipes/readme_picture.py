"""Draws docs/pictures/readme.jpg: photographs of scikit-image (free licences) and what the embedded classifier sees."""

from pathlib import Path

from skimage import data

import excite

QUESTIONS = [
    (data.chelsea(), ["cat", "tiger cat", "plastic bag"]),
    (data.coffee(), ["cup", "espresso", "soup bowl"]),
    (data.rocket(), ["missile", "crane", "water tower"]),
]


def main() -> None:
    """Draw it."""
    classifier = excite.load()
    maps = [found for photo, words in QUESTIONS for found in excite.attend(classifier, photo, words)]
    target = Path(__file__).parents[1] / "docs" / "pictures" / "readme.jpg"
    excite.compare(maps, point=True, cell_width=230).save(target, quality=88, optimize=True)
    print(f"drew {target}, {target.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
