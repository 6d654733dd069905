"""Where in a photograph is the evidence for a cat, by the embedded classifier? (`make demo`)"""

from pathlib import Path

from skimage import data

import excite

classifier = excite.load()  # its weights come with the package
photograph = data.chelsea()  # a cat, from the scikit-image package

maps = excite.attend(classifier, photograph, ["cat", "Egyptian cat", "tabby", "plastic bag"])
for found in maps:
    print(f"{found.concept:14}{found.probability:6.1%}  point {found.point()}  box {found.box()}")

folder = Path("excite-out")
for found in maps:
    found.save(folder / f"{found.concept}.png")
excite.compare(maps, point=True).save(folder / "demo.png")
print(f"look at {folder / 'demo.png'}")
