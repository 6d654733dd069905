"""A classifier's layers at a glance, with those worth reading."""

from PIL import Image

from excite.models.classifier import Classifier
from excite.models.layers import SpatialLayer, default_layer, spatial_layers

__all__ = ["outline"]


def outline(classifier: Classifier) -> tuple[list[SpatialLayer], tuple[str, ...]]:
    """All layers that can be read as maps, for a square picture, and the recommended ones, best first.

    Example:
        >>> from excite.models import load
        >>> layers, recommended = outline(load("efficientnet-lite0"))
        >>> recommended[0], next(layer.stride for layer in layers if layer.name == recommended[0])
        ('blocks.14', 32.0)
    """
    inputs = classifier.preprocess(Image.new("RGB", (256, 256)))[None]
    layers = spatial_layers(classifier.module, inputs)
    return layers, classifier.layers or (classifier.layer or default_layer(classifier.module, inputs),)
