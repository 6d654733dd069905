"""Cards made on demand: any classifier of torchvision or timm, any network in Caffe's files."""

import importlib.util
import logging
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import nn

from excite.errors import ModelError, ReplacedOperatorsWarning
from excite.models.cards import CAFFE_PREPROCESS, Card
from excite.models.classifier import Preprocess
from excite.models.weights import first_line
from excite.vocabulary import Labels, imagenet_labels

HUB = "hf-hub:"  # timm's prefix for a network on Hugging Face's hub
IMAGENET = 1000
MULTIPLES = {"dla": 32, "hrnet": 32, "tresnet": 4}  # families whose branches do not fit each other at other sizes
WITH_SECOND_HEADS = {"googlenet": ("aux1.", "aux2."), "inception_v3": ("AuxLogits.",)}

# torchvision fails to import where its compiled operators were built for another torch than the one installed (a CUDA
# build beside a CPU torch, say). Only its detectors need them, so they are declared without an implementation.
DETECTION_OPERATORS = """nms qnms roi_align qroi_align roi_pool ps_roi_align ps_roi_pool deform_conv2d
    _roi_align_backward _roi_pool_backward _ps_roi_align_backward _ps_roi_pool_backward _deform_conv2d_backward"""
_kept: list[torch.library.Library] = []  # the operators are gone when their library is


@cache
def torchvision_models() -> ModuleType:
    """The module ``torchvision.models``; a ModelError where it is missing or cannot be imported beside this torch."""
    try:
        return _imported("torchvision", "torchvision.models")
    except ModelError as error:
        if "operator torchvision::" not in str(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # left by the failed import
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for operator in DETECTION_OPERATORS.split():
        library.define(f"{operator}(Tensor input) -> Tensor")  # type: ignore[no-untyped-call]
    _kept.append(library)
    warnings.warn(
        "torchvision's compiled operators do not fit this torch: its classifiers work without them, its detectors not",
        ReplacedOperatorsWarning,
        stacklevel=3,
    )
    return _imported("torchvision", "torchvision.models")


@cache
def timm_models() -> ModuleType:
    """The package ``timm``, which itself needs torchvision; a ModelError as in `torchvision_models`."""
    if importlib.util.find_spec("timm") is not None:
        torchvision_models()
    return _imported("timm", "timm")


def _imported(package: str, module: str) -> ModuleType:
    if importlib.util.find_spec(package) is None:
        raise ModelError(f"{package} is not installed: pip install 'excite[{package}]'.")
    try:
        return importlib.import_module(module)
    except (RuntimeError, ImportError, OSError) as error:
        reason = first_line(error)
        raise ModelError(f"{package} cannot be imported: {reason}. Install the one made for your torch.") from error


def torchvision_card(name: str) -> Card:
    """A classifier of torchvision, with its published weights, preprocessing and labels."""
    models = torchvision_models()
    _check_name("torchvision", name, models.list_models(module=models))
    published = models.get_model_weights(name).DEFAULT
    prepare = published.transforms()
    # The second heads are for training. The published weights expect other units than torchvision's own preprocessing
    # gives, which the network converts with transform_input.
    extra = {"aux_logits": False, "transform_input": True, "init_weights": False} if name in WITH_SECOND_HEADS else {}
    return Card(
        name=f"torchvision:{name}",
        build=lambda classes: models.get_model(name, weights=None, **extra, **_number(classes)),
        preprocess=_preprocess(prepare.crop_size[0], prepare.mean, prepare.std, prepare.interpolation.value),
        labels=imagenet_labels,
        layers=(),
        description=f"{name} of torchvision",
        source=f"torchvision, {published.url}",
        pretrained=_fetched(lambda: models.get_model(name, weights=published), published.url),
        ignored=WITH_SECOND_HEADS.get(name, ()),
    )


def timm_card(name: str) -> Card:
    """A classifier of timm, with its published weights, preprocessing and labels."""
    timm = timm_models()
    if not name.startswith(HUB):
        _check_name("timm", name.partition(".")[0], timm.list_models())
    facts = _timm_facts(timm, name)
    multiple = next((multiple for family, multiple in MULTIPLES.items() if name.startswith(family)), 1)
    prepare = _preprocess(facts["input_size"][-1], facts["mean"], facts["std"], facts["interpolation"])
    return Card(
        name=f"timm:{name}",
        build=lambda classes: timm.create_model(name, pretrained=False, **_number(classes)),
        preprocess=replace(prepare, multiple=multiple),
        labels=lambda: _timm_labels(timm, facts),
        layers=(),
        description=f"{name} of timm",
        source=f"timm, {facts.get('hf_hub_id') or facts.get('url') or 'no weights published'}",
        pretrained=_fetched(
            lambda: timm.create_model(name, pretrained=True), f"the weights of timm's {name}", hub=True
        ),
    )


def caffe_card(path: Path) -> Card:
    """A network in Caffe's own files: a .prototxt, whose weights are given beside it, or a .caffemodel by itself."""
    from excite.models.caffe.network import CaffeNetwork
    from excite.models.caffe.reading import read_network, read_network_of_weights, read_weights

    alone = path.suffix == ".caffemodel"
    definition = read_network_of_weights(path) if alone else read_network(path)
    shape = next(iter(definition.inputs.values()), ())
    side = min(shape[-2:]) if len(shape) == 4 else CAFFE_PREPROCESS.shorter_side
    shape = () if shape else (1, 3, side, side)  # a training file has none

    def network() -> CaffeNetwork:
        try:
            return CaffeNetwork(definition, shape=shape)
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from error

    def pretrained() -> nn.Module:
        filled = network()
        filled.load_blobs(read_weights(path), str(path))
        return filled

    return Card(
        name=str(path),
        build=lambda _classes: network(),  # as many classes as the definition has
        preprocess=replace(CAFFE_PREPROCESS, shorter_side=side),
        labels=lambda: None,
        layers=(),
        description=f"{definition.name or path.stem}, a Caffe network",
        source=str(path),
        pretrained=pretrained if alone else None,
        fully_convolutional=True,
    )


def _check_name(package: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        near = get_close_matches(name, known, n=3)
        hint = f" Did you mean {', '.join(f'{package}:{one}' for one in near)}?" if near else ""
        raise ModelError(f"{package} has no classifier {name!r}.{hint}")


def _number(classes: int | None) -> dict[str, int]:
    return {} if classes is None else {"num_classes": classes}


def _preprocess(side: int, mean: Sequence[float], std: Sequence[float], interpolation: str) -> Preprocess:
    """The published preprocessing without its crop: the map covers the whole image."""
    means, scales = tuple(255 * value for value in mean), tuple(1 / (255 * value) for value in std)
    usual: Literal["bicubic", "bilinear"] = "bicubic" if interpolation == "bicubic" else "bilinear"
    return Preprocess(side, means, scales, interpolation=usual)  # type: ignore[arg-type]


def _timm_facts(timm: ModuleType, name: str) -> dict[str, Any]:
    """The settings in timm of the published weights."""
    if name.startswith(HUB):
        make = partial(timm.create_model, name, pretrained=False)
        return dict(_fetched(make, f"the settings of timm's {name}", hub=True)().pretrained_cfg)
    try:
        return dict(timm.get_pretrained_cfg(name).to_dict())
    except RuntimeError as error:
        architecture = name.partition(".")[0]
        known = ", ".join(f"timm:{one}" for one in timm.list_pretrained(architecture)) or f"timm:{architecture}"
        raise ModelError(f"timm has no weights {name!r}; there are: {known}.") from error


def _timm_labels(timm: ModuleType, facts: dict[str, Any]) -> Labels | None:
    """The words in timm for a set of ImageNet's classes; None for other data."""
    if facts.get("num_classes") == IMAGENET:
        return imagenet_labels()
    subset = timm.data.infer_imagenet_subset(facts)
    if subset is None:
        return None
    return Labels([words.split(", ") for words in timm.data.ImageNetInfo(subset).label_descriptions()])


def _fetched(make: Callable[[], Any], what: str, *, hub: bool = False) -> Callable[[], Any]:
    """Weights through the package's own cache; an error with the remedy where they cannot be fetched."""

    def pretrained() -> Any:
        with _silent_hub() if hub else nullcontext("") as host:
            try:
                with redirect_stdout(sys.stderr):  # torch reports downloads on stdout, which is for JSON
                    return make()
            except (OSError, RuntimeError, ValueError) as error:  # URLError is an OSError
                reason = f"there is no way to {host}, is this machine online?" if host else f"{first_line(error)}."
                raise ModelError(f"Cannot fetch {what}: {reason} Give a file: --weights FILE.") from error

    return pretrained


@contextmanager
def _silent_hub() -> Iterator[str]:
    """Without the warnings of Hugging Face's hub. Its host, if it has no address: then only its cache is looked at."""
    constants: Any = sys.modules.get("huggingface_hub.constants")
    logger, host = logging.getLogger("huggingface_hub"), ""
    before = logger.level
    logger.setLevel(logging.ERROR)
    if constants is not None and not constants.HF_HUB_OFFLINE and not getproxies():
        host = str(urlsplit(constants.ENDPOINT).hostname)
        with suppress(OSError):
            socket.getaddrinfo(host, 443)
            host = ""
    if host:
        constants.HF_HUB_OFFLINE = True  # or each file is tried six times, in half a minute
    try:
        yield host
    finally:
        logger.setLevel(before)
        if host:
            constants.HF_HUB_OFFLINE = False
