"""Words for what a classifier knows, and how a user's word finds its output units."""

from excite.vocabulary.imagenet import imagenet_labels, imagenet_wnids
from excite.vocabulary.labels import Concept, Labels

__all__ = ["Concept", "Labels", "imagenet_labels", "imagenet_wnids"]
