"""Classifiers: those known by name, and the wrapper around anybody's own."""

from excite.models.cards import MODELS, Card
from excite.models.classifier import Classifier, Preprocess
from excite.models.fully_convolutional import fully_convolutional
from excite.models.loading import Choice, find_card, load, wrap

__all__ = ["MODELS", "Card", "Choice", "Classifier", "Preprocess", "find_card", "fully_convolutional", "load", "wrap"]
