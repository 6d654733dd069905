"""The labels of a classifier, and how a word or phrase finds its output units."""

from excite.vocabulary.imagenet import imagenet_labels, imagenet_wnids
from excite.vocabulary.labels import Concept, Labels
from excite.vocabulary.phrases import ColourWord, PlaceWord, Reading, Word, read_phrase

__all__ = ["ColourWord", "Concept", "Labels", "PlaceWord", "Reading", "Word", "imagenet_labels", "imagenet_wnids",
           "read_phrase"]  # fmt: skip
