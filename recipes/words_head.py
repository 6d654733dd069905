"""Pack the output layer of a tag classifier into the embedded classifier ``words``.

excite tags captions ../shared/data/coco/annotations/labels_train2017.jsonl --out coco.parquet
excite tags clean coco.parquet --out words.parquet --min-count 20 --min-tags 1 --keep-alphabetical --keep-similar
excite train tags words.parquet --pictures ../shared/data/coco/train2017 --out mine --views 4 --epochs 40 --workers 2
python recipes/words_head.py mine

Written are the weights in half precision and the words, one line each.
"""

import argparse
from pathlib import Path

from safetensors.torch import save

from excite.io.files import atomic_write, save_text
from excite.models import load

TARGET = Path(__file__).parents[1] / "src/excite/models/heads"
WEIGHTS = "words.safetensors"


def main() -> None:
    """Read the folder, write the package's files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what `excite train tags` wrote")
    classifier = load(parser.parse_args().folder)
    layer = classifier.module.get_submodule("classifier")
    content = save({name: tensor.detach().half().contiguous() for name, tensor in layer.state_dict().items()})
    atomic_write(TARGET / WEIGHTS, lambda file: print(f"{TARGET / WEIGHTS}: {file.write(content)} bytes"))
    words = list(classifier.labels_for(layer.out_features))
    save_text("\n".join(words) + "\n", TARGET / "words.txt")
    print(f"{TARGET / 'words.txt'}: {len(words)} words")


if __name__ == "__main__":
    main()
