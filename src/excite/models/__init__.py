"""Classifiers: those known by name, and the wrapper around anybody's own."""

from excite.models.cards import MODELS, Card
from excite.models.choice import Choice
from excite.models.classifier import Classifier
from excite.models.convolutional import fully_convolutional
from excite.models.loading import find_card, load, wrap
from excite.models.preprocess import Preprocess

__all__ = ["MODELS", "Card", "Choice", "Classifier", "Preprocess", "find_card", "fully_convolutional", "load", "wrap"]
