"""Load a classifier by name or from files, wrap a network, or save a trained one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from excite import DEFAULT_MODEL
from excite.errors import ConceptError, ModelError
from excite.io.files import atomic_write, save_json
from excite.models import weights as weight_files
from excite.models.cards import MODELS, Card
from excite.models.classifier import Classifier, Preprocess
from excite.models.dual_encoder import DualEncoder, OpenClassifier
from excite.models.fully_convolutional import fully_convolutional as slide
from excite.models.sources import caffe_card, own_labels, own_preprocess, timm_card, torchvision_card
from excite.propagation.taps import Layer, layer_names
from excite.vocabulary import Labels

RANDOM, AUTO = "random", "auto"
FACTS, WEIGHTS, FORMAT = "classifier.json", "weights.safetensors", 1  # of a saved classifier
WEIGHTS_SUFFIXES = {".safetensors", ".pth", ".pt", ".bin", ".ckpt"}
USUAL_PREPROCESS = Preprocess(  # of most networks trained on ImageNet with torch
    mean=(123.675, 116.28, 103.53),
    scale=(1 / 58.395, 1 / 57.12, 1 / 57.375),
    interpolation="bilinear",
)

Words = Labels | Sequence[str | Sequence[str]]


def load(  # noqa: PLR0913 - all but the name may be left out
    name: str | PathLike[str] = DEFAULT_MODEL,
    *,
    weights: str | PathLike[str] | None = None,
    labels: Words | None = None,
    preprocess: Callable[[Image.Image], Tensor] | None = None,
    size: int | None = None,
    layer: str | None = None,
    multilabel: bool | range | None = None,
    fully_convolutional: bool | None = None,
    device: str | torch.device = "cpu",
) -> Classifier:
    """A classifier by name, or from files.

    Args:
        name: a name of `excite.MODELS`; ``torchvision:NAME`` or ``timm:NAME``; ``hf:NAME`` or ``hf:FOLDER``, an image
            classifier or a dual encoder of transformers; ``open_clip:NAME`` or ``open_clip:NAME/PRETRAINED``; a Caffe
            network's ``deploy.prototxt`` or ``.caffemodel``; a file of weights whose tensors are those of a known
            network; or a folder that ``excite finetune`` has made.
        weights: a file for that network (safetensors, a state dict, a .caffemodel) instead of the published weights;
            ``"random"`` for random ones.
        labels: one for each output, instead of the published ones: a word, or its synonyms with its name first. Of a
            dual encoder, which knows any words, the default ones: what an image is compared with.
        preprocess: the preprocessing of an image, instead of the published one.
        size: the shorter side of the preprocessed image, instead of the one it was trained with.
        layer: the default layer.
        multilabel: the outputs are independent, all or those of a range; None: as it was trained.
        fully_convolutional: apply the network to every window of an image larger than its training images,
            see `excite.models.fully_convolutional`; None: only if it needs to (the paper's networks).
        device: where it computes: "cpu", "cuda", "cuda:1", "mps"; "auto" for the accelerator if there is one.

    Raises:
        ModelError: there is no such classifier or device, or its weights are missing or do not fit.

    Example:
        >>> classifier = load("efficientnet-lite0")
        >>> classifier.layer, len(classifier.labels)
        ('blocks.14', 1000)
        >>> load("vgg16", weights="VGG_ILSVRC_16_layers.caffemodel")           # doctest: +SKIP
        >>> load("torchvision:resnet50", weights="mine.pth", labels=my_words)  # doctest: +SKIP
    """
    card, place = find_card(str(name)), None if device == "cpu" else find_device(device)
    words = None if labels is None else _as_labels(labels)
    file = None if weights is None else Path(weights)
    module, as_published = _network(card, file, None if words is None else len(words))
    module = module if card.finish is None else card.finish(module)
    module = module if place is None else module.to(place)
    prepare = preprocess or _own_preprocess(module) or card.preprocess
    sliding = card.fully_convolutional if fully_convolutional is None else fully_convolutional
    if sliding:
        module = slide(module, _trained_side(card.preprocess))
    if size is not None:
        if not isinstance(prepare, Preprocess):
            raise ModelError("A preparation of your own decides about the size itself: leave size out.")
        prepare = replace(prepare, shorter_side=size)
    classifier = _classifier(
        module,
        words or (card.labels() if as_published and card.finish is None else None),
        card.multilabel if multilabel is None else multilabel,
        preprocess=prepare,
        name=card.name,
        layer=layer or next(iter(card.layers), None),
        layers=card.layers if layer is None else (layer,),
        extent=card.extent,
        trial=card.name.startswith(tuple(PACKAGES)) and size is None and not sliding,
    )
    classifier.known["maps"] = set(card.layers) if card.name in MODELS else set()
    return classifier


def wrap(  # noqa: PLR0913 - all but the network may be left out
    module: nn.Module,
    *,
    labels: Words | None = None,
    preprocess: Callable[[Image.Image], Tensor] | object | None = None,
    processor: object | None = None,
    layer: Layer | None = None,
    name: str | None = None,
    multilabel: bool | range = False,
    fully_convolutional: bool | int = False,
    verify: bool = True,
) -> Classifier:
    """A classifier around a network, which is not changed. It computes where the network is, in the network's type.

    Args:
        module: Computes logits [N, C] or [N, C, H, W], or an object with ``logits``.
        labels: One for each output: a word, or its synonyms with its name first; by default those of a network of
            transformers (``config.id2label``).
        preprocess: The preprocessing of an image, or an image processor of transformers. By default what a network of
            timm says (``pretrained_cfg``), or that of most networks trained on ImageNet with torch (shorter side 224,
            the usual mean and deviation of each channel). A network that then fails is tried with sides that are
            multiples of 32, and with images squashed to the one size that it was made for.
        processor: The processor of a network of transformers; a dual encoder (CLIP, SigLIP) needs one with a tokenizer,
            and then knows any words.
        layer: The default layer: a module of the network, or its name.
        name: For display; by default the name of the module's class.
        multilabel: The outputs are independent, all or those of a range.
        fully_convolutional: Apply the network to every window of an image larger than its training images; a
            number is their side, True takes the shorter side of ``preprocess``.
        verify: On the first image compare the response of the network's output to its layers with what excite can see
            of it (`excite.propagation.verify`), for the time of about five runs. What is not seen is then refused.

    Raises:
        ModelError: It is no ``nn.Module``, or is (or contains) TorchScript.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> wrap(network, labels=["cat", "dog"], layer="0").labels.find("dog").units
        (1,)
    """
    parts = module.modules() if isinstance(module, nn.Module) else [module]
    if any(isinstance(part, torch.jit.ScriptModule | torch.jit.ScriptFunction) for part in parts):
        raise ModelError(
            "The model is TorchScript, which hides its operations: pass the Python module it was made from."
        )
    if not isinstance(module, nn.Module):
        raise ModelError(f"The model is a {type(module).__name__}: pass a torch.nn.Module.")
    module, preprocess = _with_processor(module, preprocess, processor)
    layers = () if layer is None else tuple(layer_names(module, [layer]))
    prepare = own_preprocess(module, preprocess, USUAL_PREPROCESS)
    side = _trained_side(prepare) if fully_convolutional is True else fully_convolutional
    return _classifier(
        slide(module, side) if side else module,
        own_labels(module) if labels is None else _as_labels(labels),
        multilabel,
        preprocess=prepare,
        name=type(module).__name__ if name is None else name,
        layer=layers[0] if layers else None,
        layers=layers,
        verified=set() if verify else None,
        trial=not side,
    )


def _classifier(module: nn.Module, labels: Labels | None, multilabel: bool | range, **more: Any) -> Classifier:  # noqa: FBT001 - as in `Classifier`
    """The classifier of a network; that of a dual encoder has its open vocabulary."""
    if not isinstance(module, DualEncoder):
        return Classifier(module=module, labels=labels, multilabel=multilabel, **more)
    module = module if labels is None else module.with_labels(labels)
    independent = module.bias is not None or multilabel
    return OpenClassifier(module=module, labels=module.vocabulary, multilabel=independent, **more)


def _own_preprocess(module: nn.Module) -> Preprocess | None:
    return module.preprocess if isinstance(module, DualEncoder) else None


def _with_processor(module: nn.Module, preprocess: Any, processor: Any) -> tuple[nn.Module, Any]:
    """The network, if it is one of transformers for images and texts as a dual encoder, and its preprocessing."""
    images, tokenizer = getattr(processor, "image_processor", processor), getattr(processor, "tokenizer", None)
    preprocess = images if preprocess is None else preprocess
    if hasattr(module, "get_image_features") and hasattr(module, "get_text_features"):
        if tokenizer is None:
            raise ModelError(
                f"{type(module).__name__} needs its tokenizer: wrap(..., processor=AutoProcessor.from_pretrained(N))."
            )
        from excite.models.hub import transformers_dual

        preprocess = own_preprocess(module, preprocess, USUAL_PREPROCESS)
        module = transformers_dual(module, preprocess, tokenizer)
    return module, preprocess or _own_preprocess(module)


def find_card(name: str) -> Card:
    """The card of a classifier, by its name in `load`; a ModelError where there is none."""
    if name in MODELS:
        return MODELS[name]
    package, colon, inner = name.partition(":")
    if colon and package in PACKAGES:
        return PACKAGES[package](inner)
    path = Path(name)
    if name and os.path.isdir(path):  # noqa: PTH112 - Path's fails at long names
        saved = read_saved(path)
        if saved.base not in MODELS and saved.base.partition(":")[0] not in PACKAGES:  # a known one, not another file
            raise ModelError(f"{path / FACTS} is for a network {saved.base!r}, which this version of excite has not.")
        return saved.card(find_card(saved.base), path)
    if path.suffix in {".prototxt", ".caffemodel"}:
        return caffe_card(path)
    if path.suffix in WEIGHTS_SUFFIXES or os.path.isfile(path):  # noqa: PTH113 - Path's fails at long names
        return _card_of_weights(path)
    near = get_close_matches(name, MODELS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    known = ", ".join([*MODELS, *(f"{package}:NAME" for package in PACKAGES)])
    raise ModelError(f"There is no model {name!r}; the known ones are: {known}, or a file.{hint}")


def find_device(name: str | torch.device) -> torch.device:
    """The device of that name, "auto" for the accelerator if there is one; a ModelError where it is not there.

    Example:
        >>> find_device("cpu")
        device(type='cpu')
    """
    there = torch.accelerator.current_accelerator(check_available=True)
    if name == AUTO:
        return there or torch.device("cpu")
    known = ", ".join(["cpu", *(f"{there}:{k}" for k in range(torch.accelerator.device_count() if there else 0))])
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ModelError(f"There is no device {name!r}: give auto, or one of those here ({known}).") from None
    try:
        torch.zeros(1, device=device).to("cpu")
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = weight_files.first_line(error)
        raise ModelError(f"The device {str(name)!r} cannot be used ({reason}): here is {known}.") from None
    return device


def _as_labels(labels: Words) -> Labels:
    return labels if isinstance(labels, Labels) else Labels(labels)


def _card_of_weights(path: Path) -> Card:
    """The card of the network that a file of weights is for, by its tensors."""
    known = {card.fingerprint: card for card in MODELS.values() if card.fingerprint is not None}
    card = known.get(weight_files.fingerprint(path))
    if card is None:
        raise ModelError(
            f"{path} does not say for which network it is: name the network and give the file as its weights "
            "(--model NAME --weights FILE)."
        )
    return replace(card, pretrained=lambda: _network(card, path, None)[0])


def _network(card: Card, weights: Path | None, classes: int | None) -> tuple[nn.Module, bool]:
    """The network of a card with its weights, and whether it has the published number of classes."""
    if weights is None:
        if card.pretrained is None:
            raise ModelError(f"The weights of {card.name} must be given as a file: --weights FILE.")
        return card.pretrained().eval(), True
    if str(weights) == RANDOM:
        return weight_files.filled_at_random(lambda: card.build(classes)), True
    if weights.suffix == ".caffemodel":
        network = card.build(classes)
        weight_files.fill_from_caffe(network, weights)
        return network, True
    network = card.build(None)
    named = weight_files.fitting_names(weight_files.read_tensors(weights), network.state_dict())
    tensors = {name: tensor for name, tensor in named.items() if not name.startswith(card.ignored)}
    others = weight_files.other_classes(tensors, network)
    network = network if others is None else card.build(others)
    weight_files.fill(network, tensors, str(weights))
    return network, others is None


def _trained_side(preprocess: object) -> int:
    if isinstance(preprocess, Preprocess):
        return preprocess.shorter_side
    raise ModelError("How large were the training images? Give wrap(..., fully_convolutional=SIDE).")


def _hub_card(package: str, name: str) -> Card:
    from excite.models import hub  # which few need

    return hub.hf_card(name) if package == "hf" else hub.open_clip_card(name)


PACKAGES: Mapping[str, Callable[[str], Card]] = {
    "torchvision": torchvision_card,
    "timm": timm_card,
    "hf": partial(_hub_card, "hf"),
    "open_clip": partial(_hub_card, "open_clip"),
}


@dataclass(frozen=True)
class Choice:
    """The arguments of `excite.load` as a command has them: names and files."""

    model: str = DEFAULT_MODEL
    weights: str | None = None
    labels: str | None = None
    size: int | None = None
    fully_convolutional: bool | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        find_device(self.device)  # an error before anything is loaded

    def load(self) -> Classifier:
        """The classifier."""
        return load(
            self.model,
            weights=self.weights,
            labels=None if self.labels is None else Labels.read(Path(self.labels)),
            size=self.size,
            fully_convolutional=self.fully_convolutional,
            device=self.device,
        )

    def asked(self) -> dict[str, Any]:
        """The arguments that decide about results: all but the device."""
        return {name: value for name, value in asdict(self).items() if name != "device"}

    def key(self) -> dict[str, Any]:
        """Identifies its results: these arguments, and the size and time of its files."""
        files = [name for name in (self.model, self.weights, self.labels) if name not in {None, RANDOM}]
        states = [file.stat() for name in files if name for file in files_of(name)]
        return {**self.asked(), "files": [[state.st_size, state.st_mtime_ns] for state in states]}


# A saved classifier: a folder of classifier.json (network, labels, training) and weights.safetensors. The former holds
# the hash of the latter, so that files of two classifiers are never mixed. Nothing in them is run.


@dataclass(frozen=True)
class Saved:
    """The content of ``classifier.json``."""

    base: str  # the network's name in `excite.load`, not a file
    labels: tuple[tuple[str, ...], ...]  # the synonyms of each output
    multilabel: bool
    layers: tuple[str, ...]
    size: int  # the shorter side of preprocessed images
    fully_convolutional: bool
    weights: str = ""  # the SHA-256 of the file of tensors
    training: Mapping[str, Any] = field(default_factory=dict)  # for information

    def card(self, base: Card, folder: Path) -> Card:
        """The card of the classifier, from that of its network."""
        if not isinstance(base.preprocess, Preprocess):
            raise ModelError(f"{folder / FACTS}: {self.base!r} prepares its images in an unknown way.")

        def pretrained() -> nn.Module:
            path, network = folder / WEIGHTS, base.build(len(self.labels))
            tensors = weight_files.read_tensors(path)
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != self.weights:
                    raise ModelError(
                        f"{path} is damaged, or not the one that {FACTS} was written with: fine-tune again."
                    )
            weight_files.fill(network, tensors, str(path))
            return network

        return replace(
            base,
            name=str(folder),
            build=lambda classes: base.build(len(self.labels) if classes is None else classes),
            preprocess=replace(base.preprocess, shorter_side=self.size),
            labels=partial(Labels, self.labels),
            layers=self.layers,
            description=f"{self.base} for {len(self.labels)} other classes",
            source=str(folder),
            pretrained=pretrained,
            fingerprint=None,
            fully_convolutional=self.fully_convolutional,
            multilabel=self.multilabel,
        )


KINDS = {  # of the fields of classifier.json
    "base": str, "labels": list, "multilabel": bool, "layers": list, "size": int, "fully_convolutional": bool,
    "weights": str, "training": dict,
}  # fmt: skip


def save_classifier(folder: Path, network: nn.Module, facts: Saved) -> list[Path]:
    """Write a classifier that `excite.load` takes; the files written."""
    from safetensors.torch import save

    content = save({name: tensor.detach().clone().contiguous() for name, tensor in network.state_dict().items()})
    written = {"format": FORMAT, **asdict(facts), "weights": hashlib.sha256(content).hexdigest()}
    return [atomic_write(folder / WEIGHTS, lambda file: file.write(content)), save_json(written, folder / FACTS)]


def read_saved(folder: Path) -> Saved:
    """The classifier in a folder; a ModelError where there is none or it cannot be read."""
    path = folder / FACTS
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{str(folder)!r} is a folder without {FACTS}: `excite finetune --out` makes one.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {' '.join(str(error).split())}.") from None
    given = facts.pop("format", None) if isinstance(facts, dict) else None
    if type(given) is int and given > FORMAT:
        raise ModelError(f"{path} is of format {given}, and this excite reads {FORMAT}: update excite.")
    if given != FORMAT:
        raise ModelError(f"{path} is of another format than {FORMAT}, the one this version of excite reads.")
    for name, kind in KINDS.items():
        if type(facts.get(name)) is not kind:  # True is an int too
            raise ModelError(f"{path}: {name!r} is missing or of another kind; fine-tune again.")
    if facts.keys() - KINDS.keys() or facts["size"] < 1 or not all(isinstance(layer, str) for layer in facts["layers"]):
        raise ModelError(f"{path} does not say what a classifier needs; fine-tune again.")
    try:
        labels = Labels(facts["labels"])
    except (ConceptError, TypeError) as error:
        raise ModelError(f"{path}: {error}") from None
    words = tuple(labels.synonyms(unit) for unit in range(len(labels)))
    return Saved(**{**facts, "labels": words, "layers": tuple(facts["layers"])})


def files_of(name: str | Path) -> list[Path]:
    """The files of a classifier: those in its folder, or the file itself; none for a name that is no path."""
    package, _, inner = str(name).partition(":")
    if package in PACKAGES:
        return (
            sorted(file for file in Path(inner).iterdir() if file.is_file()) if inner and Path(inner).is_dir() else []
        )
    path = Path(name)
    return [file for file in (path, path / FACTS, path / WEIGHTS) if file.is_file()]
