"""How much anybody may ask of the server, so that it can answer the next person too."""

from dataclasses import dataclass

__all__ = ["Limits"]

MB = 2**20


@dataclass(frozen=True)
class Limits:
    """What is refused, and how much is kept.

    Attributes:
        upload: bytes of a request, the picture included.
        pixels: of a picture, before it is decoded.
        kept_pixels: of a picture as it is kept: a larger one is made smaller, since no classifier sees more.
        pictures: bytes of all pictures that are kept.
        passes: bytes of all forward passes that are kept, for each classifier.
        at_once: how many questions are answered at the same time.
        waiting: how many more may wait for their turn; whoever comes then is told to come again.
        concepts: of one question.
        letters: of a concept or a phrase.
    """

    upload: int = 25 * MB
    pixels: int = 60_000_000
    kept_pixels: int = 2_000_000
    pictures: int = 128 * MB
    passes: int = 128 * MB
    at_once: int = 3
    waiting: int = 32
    concepts: int = 50
    letters: int = 1000
