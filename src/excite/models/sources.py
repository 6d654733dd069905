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

from excite.errors import ModelError, ReplacedOperatorsWarning, UnknownPreprocessWarning
from excite.models.cards import CAFFE_PREPROCESS, Card
from excite.models.classifier import OneSize, Preprocess, demanded_sides, setting
from excite.models.weights import first_line
from excite.vocabulary import Labels, imagenet_labels

HUB = "hf-hub:"  # timm's prefix for a network on Hugging Face's hub
IMAGENET = 1000
BICUBIC = 3  # Pillow's number, in the settings of transformers
MULTIPLES = {"dla": 32, "hrnet": 32, "tresnet": 4}  # families whose branches do not fit each other at other sizes
ANY_SIZE = ({"dynamic_img_size": True}, {"strict_img_size": False})  # of timm's transformers: positions for any size
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
        return imported("torchvision", "torchvision.models")
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
    return imported("torchvision", "torchvision.models")


@cache
def timm_models() -> ModuleType:
    """The package ``timm``, which itself needs torchvision; a ModelError as in `torchvision_models`."""
    if importlib.util.find_spec("timm") is not None:
        torchvision_models()
    return imported("timm", "timm")


def imported(package: str, module: str, extra: str = "") -> ModuleType:
    """A module of a package; a ModelError where the package, which an extra installs, is missing or broken."""
    if importlib.util.find_spec(package) is None:
        raise ModelError(f"{package} is not installed: pip install 'excite[{extra or package}]'.")
    try:
        return importlib.import_module(module)
    except (RuntimeError, ImportError, OSError) as error:
        reason = first_line(error)
        raise ModelError(f"{package} cannot be imported: {reason}. Install the one made for your torch.") from error


def torchvision_card(name: str) -> Card:
    """A classifier of torchvision, with its published weights, preprocessing and labels."""
    models = torchvision_models()
    check_name("torchvision", name, models.list_models(module=models))
    published = models.get_model_weights(name).DEFAULT
    prepare = published.transforms()
    # The second heads are for training. The published weights expect other units than torchvision's own preprocessing
    # gives, which the network converts with transform_input.
    extra = {"aux_logits": False, "transform_input": True, "init_weights": False} if name in WITH_SECOND_HEADS else {}
    return Card(
        name=f"torchvision:{name}",
        build=lambda classes: models.get_model(name, weights=None, **extra, **_number(classes)),
        preprocess=plain_preprocess(prepare.crop_size[0], prepare.mean, prepare.std, prepare.interpolation.value),
        labels=imagenet_labels,
        layers=(),
        description=f"{name} of torchvision",
        source=f"torchvision, {published.url}",
        pretrained=fetched(lambda: models.get_model(name, weights=published), published.url),
        ignored=WITH_SECOND_HEADS.get(name, ()),
    )


def timm_card(name: str) -> Card:
    """A classifier of timm, with its published weights, preprocessing and labels."""
    timm = timm_models()
    if not name.startswith(HUB):
        check_name("timm", name.partition(".")[0], timm.list_models())
    facts = _timm_facts(timm, name)
    multiple = next((multiple for family, multiple in MULTIPLES.items() if name.startswith(family)), 1)
    options, step = _any_size(timm, name, facts)
    prepare = replace(_timm_preprocess(facts, step), multiple=step or multiple)
    return Card(
        name=f"timm:{name}",
        build=lambda classes: timm.create_model(name, pretrained=False, **_number(classes), **options),
        preprocess=prepare,
        labels=lambda: _timm_labels(timm, facts),
        layers=(),
        description=f"{name} of timm",
        source=f"timm, {facts.get('hf_hub_id') or facts.get('url') or 'no weights published'}",
        pretrained=fetched(
            lambda: timm.create_model(name, pretrained=True, **options), f"the weights of timm's {name}", hub=True
        ),
    )


def _any_size(timm: ModuleType, name: str, facts: dict[str, Any]) -> tuple[dict[str, bool], int]:
    """With which option a transformer of one size takes images of others, and of what their sides are multiples."""
    for options in ANY_SIZE if facts.get("fixed_input_size") and not name.startswith(HUB) else ():
        with suppress(TypeError), torch.device("meta"):
            if step := _step_of(timm.create_model(name, pretrained=False, **options)):
                return options, step
    return {}, 0


def _step_of(network: Any) -> int:
    """Of what the sides of images are multiples where a transformer of timm interpolates its positions; else 0."""
    strict = getattr(getattr(network, "patch_embed", None), "strict_img_size", True)
    return 0 if strict else max(stage["reduction"] for stage in network.feature_info)


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


def check_name(package: str, name: str, known: Sequence[str]) -> None:
    """A ModelError where a package has no network of that name."""
    if name not in known:
        near = get_close_matches(name, known, n=3)
        hint = f" Did you mean {', '.join(f'{package}:{one}' for one in near)}?" if near else ""
        raise ModelError(f"{package} has no classifier {name!r}.{hint}")


def _number(classes: int | None) -> dict[str, int]:
    return {} if classes is None else {"num_classes": classes}


def plain_preprocess(side: int, mean: Sequence[float], std: Sequence[float], interpolation: str) -> Preprocess:
    """The published preprocessing without its crop: the map covers the whole image."""
    means, scales = tuple(255 * value for value in mean), tuple(1 / (255 * value) for value in std)
    usual: Literal["bicubic", "bilinear"] = "bicubic" if interpolation == "bicubic" else "bilinear"
    return Preprocess(side, means, scales, interpolation=usual)  # type: ignore[arg-type]


def _timm_preprocess(facts: Any, step: int = 0) -> Preprocess:
    """The preprocessing in timm's settings, a dictionary or an object; a network of one fixed size gets that.

    One that interpolates its positions, for sides that are multiples of ``step``, also gets larger squares.
    """
    side, mean, std, interpolation, fixed = (
        setting(facts, name) for name in ("input_size", "mean", "std", "interpolation", "fixed_input_size")
    )
    usual = plain_preprocess(side[-1], mean, std, str(interpolation))
    if not fixed:
        return usual
    facts = {**vars(usual), "square": True}
    return Preprocess(**{**facts, "multiple": step}) if step else OneSize(**facts)


def own_preprocess(module: nn.Module, given: Any, usual: Preprocess) -> Any:
    """The preprocessing of a network: ``given``, or what timm or an image processor of transformers says, or the usual.

    Example:
        >>> net = nn.Identity()
        >>> net.pretrained_cfg = {"input_size": (3, 384, 384), "mean": (0.5,) * 3, "std": (0.5,) * 3}
        >>> own_preprocess(net, None, Preprocess()).shorter_side
        384
    """
    if setting(given, "image_mean") is not None or setting(given, "rescale_factor") is not None:
        return processor_preprocess(given, demanded_sides(module)[:1])
    if given is not None:
        return given
    card = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None)
    if all(setting(card, name) for name in ("input_size", "mean", "std")):
        return _timm_preprocess(card, _step_of(module))
    if setting(getattr(module, "config", None), "id2label") is None:
        return usual
    warnings.warn(
        f"{type(module).__name__} does not say how its images are normalised, so ImageNet's mean and deviation are "
        "taken: give wrap(..., preprocess=AutoImageProcessor.from_pretrained(NAME))",
        UnknownPreprocessWarning,
        stacklevel=3,
    )
    return replace(usual, shorter_side=next(iter(demanded_sides(module)), usual.shorter_side))


def processor_preprocess(processor: Any, usual: Sequence[int]) -> Preprocess:
    """What an image processor of transformers does, without its crop: resize, rescale, normalise.

    ``usual`` is the side of images where it does not say one.
    """

    def use(switch: str, name: str, otherwise: Any) -> Any:
        value = setting(processor, name)
        return otherwise if value is None or setting(processor, switch) is False else value

    factor = use("do_rescale", "rescale_factor", 1)
    mean, std = use("do_normalize", "image_mean", (0.0,) * 3), use("do_normalize", "image_std", (1.0,) * 3)
    size = use("do_center_crop", "crop_size", None) or use("do_resize", "size", None) or {}
    sides = {size} if isinstance(size, int) else {setting(size, name) for name in ("height", "width", "shortest_edge")}
    known = sorted((sides - {None}) or {*usual})
    if len(known) != 1:
        raise ModelError(
            f"The image processor gives images of {size or 'their own size'}: give a function to a tensor."
        )
    return Preprocess(
        known[0],
        tuple(value / factor for value in mean),
        tuple(factor / value for value in std),
        interpolation="bicubic" if use("do_resize", "resample", 2) == BICUBIC else "bilinear",
    )


def own_labels(module: nn.Module) -> Labels | None:
    """The labels of a network of transformers, unless they are only numbered."""
    return config_labels(getattr(module, "config", None))


def config_labels(config: object) -> Labels | None:
    """The labels in a configuration of transformers, with words for kinds where they are those of ImageNet."""
    words = setting(config, "id2label") or {}
    names = [str(name) for _, name in sorted(words.items(), key=lambda item: int(item[0]))]
    numbered = all(name == f"LABEL_{k}" for k, name in enumerate(names))
    if numbered:
        return None
    labels = Labels([name.split(", ") for name in names])
    return imagenet_labels() if len(labels) == IMAGENET and labels.begin_with(imagenet_labels()) else labels


def _timm_facts(timm: ModuleType, name: str) -> dict[str, Any]:
    """The settings in timm of the published weights."""
    if name.startswith(HUB):
        make = partial(timm.create_model, name, pretrained=False)
        return dict(fetched(make, f"the settings of timm's {name}", hub=True)().pretrained_cfg)
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


GIVE_FILE = "Give a file: --weights FILE."


def fetched(make: Callable[[], Any], what: str, *, hub: bool = False, remedy: str = GIVE_FILE) -> Callable[[], Any]:
    """Weights through the package's own cache; an error with the remedy where they cannot be fetched."""

    def pretrained() -> Any:
        with _silent_hub() if hub else nullcontext("") as host:
            try:
                with redirect_stdout(sys.stderr):  # torch reports downloads on stdout, which is for JSON
                    return make()
            except (OSError, RuntimeError, ValueError) as error:  # URLError is an OSError
                reason = (
                    f"there is no way to {host}, is this machine online?"
                    if host
                    else f"{first_line(error).rstrip('.')}."
                )
                raise ModelError(f"Cannot fetch {what}: {reason} {remedy}") from error

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
