"""Everyday words for kinds of ImageNet classes that do not carry the word in their labels.

A "beagle" is nowhere called a dog in the list of labels, and the only label that ends in "horse" is the
hippopotamus (river horse). Read off the list of classes by hand; only words are here that the labels' own
words would answer wrongly, in small part, or not at all.
"""

from collections.abc import Iterator, Mapping

__all__ = ["EVERYDAY_WORDS"]


def units(*spans: int | tuple[int, int]) -> tuple[int, ...]:
    """The classes of several spans, each a class or its first and last class."""

    def spread() -> Iterator[int]:
        for span in spans:
            first, last = (span, span) if isinstance(span, int) else span
            yield from range(first, last + 1)

    return tuple(spread())


EVERYDAY_WORDS: Mapping[str, tuple[int, ...]] = {
    # animals
    "animal": units((0, 397)),
    "fish": units((0, 6), (389, 397)),
    "bird": units((7, 24), (80, 100), (127, 146)),
    "chicken": units(7, 8),
    "duck": units(97, 98),
    "parrot": units((87, 90)),
    "frog": units((30, 32)),
    "turtle": units((33, 37)),
    "lizard": units((38, 48)),
    "snake": units((52, 68)),
    "spider": units((72, 77)),
    "insect": units((300, 326)),
    "beetle": units((300, 307)),
    "butterfly": units((321, 326)),
    "dog": units((151, 268)),
    "wolf": units((269, 271)),
    "cat": units((281, 285)),
    "bear": units((294, 297)),
    "rabbit": units((330, 332)),
    "horse": units(339),
    "cow": units(345),
    "sheep": units(348, 349),
    "antelope": units((351, 353)),
    "ape": units((365, 369)),
    "monkey": units((370, 382)),
    "elephant": units(101, 385, 386),
    # vehicles
    "airplane": units(404, 895),
    "aeroplane": units(404, 895),
    "rocket": units(657, 744),
    "car": units(407, 436, 468, 511, 609, 627, 656, 661, 751, 817),
    "truck": units(555, 569, 675, 717, 734, 864, 867),
    "bus": units(654, 779, 874),
    "train": units(466, 547, 565, 705, 820),
    "boat": units(472, 484, 554, 576, 625, 780, 814, 871, 914),
    "ship": units(403, 510, 628, 724, 780, 913),
    "bicycle": units(444, 671),
    "bike": units(444, 671),
    "motorcycle": units(665, 670),
    "motorbike": units(665, 670),
    # things
    "ball": units(429, 430, 522, 574, 722, 747, 768, 805, 852, 890),
    "bed": units(564, 831),
    "sofa": units(831),
    "tv": units(851),
    "gun": units(413, 763, 764),
    "hat": units(439, 452, 515, 808),
    "knife": units(499, 623),
    "shoe": units(502, 514, 630, 770, 774),
    # food and plants
    "apple": units(948),
    "bread": units(930, 931),
    "fruit": units((948, 957)),
    "vegetable": units((936, 946)),
    "flower": units(985, 986),
}
