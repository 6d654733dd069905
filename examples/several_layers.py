"""One concept read at several layers, plain and contrastive, side by side (the paper's layer figure)."""

from pathlib import Path

from skimage import data

import excite

classifier = excite.load()
layers = ["blocks.4", "blocks.10", "blocks.14"]
maps = [
    found
    for method in ("mwp", "c-mwp")
    for found in excite.attend(classifier, data.coffee(), "cup", layer=layers, method=method)
]
target = Path("excite-out") / "layers.png"
target.parent.mkdir(exist_ok=True)
excite.compare(maps, rows="method").save(target)
print(f"look at {target}")
