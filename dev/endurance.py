"""Does memory grow over many images? The resident MB after the first hundred maps, and after all.

python dev/endurance.py [--model efficientnet-lite0] [--images 2000] [--threads 1]
"""

import argparse

import torch

from excite.experiments.speed.timing import memory_now, open_network
from excite.propagation import mwp

EARLY = 100  # images after which all caches are filled


def main() -> None:
    """Contrastive maps of images that are all a little different."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="efficientnet-lite0")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    network = open_network(asked.model)
    for number in range(asked.images):
        mwp(network.module, network.picture.roll(number, dims=-1), 0, layer=network.layer, contrastive=True)
        if number + 1 in {EARLY, asked.images}:
            print(f"{memory_now():.1f} MB after {number + 1} images", flush=True)


if __name__ == "__main__":
    main()
