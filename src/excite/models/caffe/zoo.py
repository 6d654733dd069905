"""The paper's three networks, as the deploy files of Caffe's Model Zoo describe them: the layers are in zoo.txt.

CNN-S: Chatfield et al. 2014, "VGG_CNN_S". VGG16: Simonyan and Zisserman 2014, "VGG_ILSVRC_16_layers". GoogleNet:
Szegedy et al. 2014 as trained by the BVLC, "bvlc_googlenet", without the two heads that only its training has.
The networks take images in BGR, less the mean of each channel.
"""

from importlib.resources import files
from typing import Any

from excite.models.caffe.definition import Layer, Network
from excite.models.caffe.network import CaffeNetwork

INPUT = {"data": (10, 3, 224, 224)}  # ten crops of an image, as all three were tested
CLASSES = 1000


def network(name: str, classes: int = CLASSES) -> CaffeNetwork:
    """One of the networks without weights, for any number of classes."""
    text = files("excite.models.caffe").joinpath("zoo.txt").read_text(encoding="utf-8")
    header, *lines = text.partition(f"[{name} ")[2].partition("\n\n")[0].splitlines()
    return CaffeNetwork(Network(header.removesuffix("]"), INPUT, tuple(_layer(line, classes) for line in lines)))


def _layer(line: str, classes: int) -> Layer:
    name, kind, *rest = line.split()
    blobs = [word for word in rest if "=" not in word]
    bottoms, arrow, tops = " ".join(blobs).partition("->")
    options: dict[str, Any] = {}
    for option, _, value in (word.partition("=") for word in rest if "=" in word):
        number = value if value.isalpha() else float(value) if "." in value else int(value)
        options[option] = (number,) if kind == "Convolution" and option != "num_output" else number
    if kind == "InnerProduct" and options["num_output"] == CLASSES:
        options["num_output"] = classes
    return Layer(name, kind, tuple(bottoms.split()), tuple(tops.split()) if arrow else (name,), options)
