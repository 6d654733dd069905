"""Cards for networks of transformers and of open_clip: image classifiers, and dual encoders of images and texts."""

import importlib.util
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from excite.errors import ModelError
from excite.models.cards import Card
from excite.models.classifier import Preprocess, setting
from excite.models.dual_encoder import DualEncoder, TextTower, default_labels
from excite.models.sources import (
    check_name,
    config_labels,
    fetched,
    imported,
    plain_preprocess,
    processor_preprocess,
    torchvision_models,
)
from excite.vocabulary.labels import listed

MASK = "attention_mask"
TEXT_INPUTS = ("input_ids", "token_type_ids", MASK)  # of text towers in transformers
CLASSIFIER = "ForImageClassification"  # in the names of transformers' classes
CONFIG = "config.json"
GIVE_FOLDER = "Give a folder that has it: hf:FOLDER."
OPEN_CLIP_HUB, OPEN_CLIP_FOLDER = "hf-hub:", "local-dir:"  # open_clip's own prefixes


# transformers.


def transformers_package() -> ModuleType:
    """The package ``transformers``; a ModelError where it is missing or cannot be imported."""
    _torchvision_first("transformers")
    return imported("transformers", "transformers", extra="hf")


def _torchvision_first(package: str) -> None:
    """Both packages import torchvision where it is installed, which may need help (`torchvision_models`)."""
    if importlib.util.find_spec(package) and importlib.util.find_spec("torchvision"):
        torchvision_models()


def hf_card(name: str) -> Card:
    """A network of transformers by its name on Hugging Face's hub, or a folder that ``save_pretrained`` has made."""
    transformers = transformers_package()
    if not name:
        raise ModelError(
            "hf: stands before a name on Hugging Face's hub or a folder, as in hf:openai/clip-vit-base-patch32."
        )
    if Path(name).is_dir() and not Path(name, CONFIG).is_file():
        raise ModelError(f"{name!r} is a folder without {CONFIG}: `save_pretrained` of transformers makes one.")
    config = _of_hub(transformers.AutoConfig, name, "the configuration")
    is_dual = _is_dual(transformers, config)
    kind = transformers.AutoModel if is_dual else transformers.AutoModelForImageClassification
    processor = _of_hub(transformers.AutoImageProcessor, name, "the image processor")
    prepare = processor_preprocess(processor, _sides(config))

    def build(classes: int | None) -> nn.Module:
        if classes is not None and not is_dual:
            config.num_labels = classes
        with quiet(transformers):
            return whole(kind.from_config(config))

    def pretrained() -> nn.Module:
        model, report = _of_hub(kind, name, "the weights", output_loading_info=True)
        if report["missing_keys"]:
            lacking = ", ".join(sorted(report["missing_keys"])[:3])
            raise ModelError(f"hf:{name} has no weights for {lacking}: it was not trained as what it says it is.")
        return whole(model)

    def whole(model: nn.Module) -> nn.Module:
        """In one precision, whatever that of the file."""
        return model.float()

    def finish(model: nn.Module) -> nn.Module:
        return transformers_dual(model, prepare, _of_hub(transformers.AutoTokenizer, name, "the tokenizer"))

    return Card(
        name=f"hf:{name}",
        build=build,
        preprocess=prepare,
        labels=default_labels if is_dual else lambda: config_labels(config),
        layers=(),
        description=f"{config.model_type} of transformers" + (", for any words" if is_dual else ""),
        source=f"Hugging Face's hub, {name}",
        pretrained=pretrained,
        finish=finish if is_dual else None,
    )


def _of_hub(kind: Any, name: str, what: str, **more: Any) -> Any:
    """A part of a network on the hub, in a folder or in the hub's cache; code that comes with it is never run."""
    make, on_hub = partial(kind.from_pretrained, name, trust_remote_code=False, **more), not Path(name).is_dir()
    with quiet(transformers_package()):
        return fetched(make, f"{what} of hf:{name}", hub=on_hub, remedy=GIVE_FOLDER)()


def _is_dual(transformers: ModuleType, config: Any) -> bool:
    """Whether this is a dual encoder, and no classifier; a ModelError where it is neither."""
    classes = setting(config, "architectures") or []
    if any(CLASSIFIER in each for each in classes):
        return False
    kind = transformers.MODEL_MAPPING.get(type(config), None)
    if hasattr(kind, "get_image_features") and hasattr(kind, "get_text_features"):
        return True
    if classes or type(config) not in transformers.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING:
        what = classes[0] if classes else config.model_type
        raise ModelError(
            f"{what} is no image classifier and no dual encoder such as CLIP or SigLIP: name one of these."
        )
    return False


def _sides(config: Any) -> list[int]:
    """The side of the images that a network of transformers was made for."""
    side = setting(setting(config, "vision_config") or config, "image_size")
    return [side] if isinstance(side, int) else []


@contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
    """Without the progress bars and the advice of transformers."""
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def transformers_dual(model: nn.Module, preprocess: Preprocess | None, tokenizer: Any) -> DualEncoder:
    """The network for a dual encoder of transformers (CLIP, SigLIP)."""
    scale, bias = getattr(model, "logit_scale", None), getattr(model, "logit_bias", None)
    if not isinstance(scale, Tensor):
        raise ModelError(
            f"{type(model).__name__} has no logit_scale: only dual encoders such as CLIP and SigLIP are known."
        )
    return DualEncoder(
        TransformersImage(model),
        TransformersText(model, tokenizer),
        scale=float(scale.detach().exp()),
        bias=None if bias is None else float(bias.detach()),
        preprocess=preprocess,
    ).eval()


class TransformersText(TextTower):
    """The text tower of a dual encoder of transformers."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.length = int(setting(setting(model.config, "text_config"), "max_position_embeddings"))
        self.inputs = [name for name in tokenizer.model_input_names if name in TEXT_INPUTS]
        self.network = nn.ModuleDict({name: child for name, child in model.named_children() if is_text(name)})

    def tokens(self, texts: list[str]) -> Tensor:
        """What the tower takes by its tokenizer, [texts, inputs, length], padded to the longest that it reads."""
        found = self.tokenizer(
            texts, padding="max_length", truncation=True, max_length=self.length, return_tensors="pt"
        )
        return torch.stack([found[name] for name in self.inputs], dim=1)

    def embed(self, tokens: Tensor) -> Tensor:
        """The pooled and projected output. CLIP's is that of a text's last token, so that the padding is left out."""
        given = dict(zip(self.inputs, tokens.unbind(1), strict=True))
        if self.model.config.model_type == "clip" and MASK in given:  # others may pool what follows a text
            length = int(given[MASK].any(dim=0).nonzero().max()) + 1
            given = {name: values[:, :length] for name, values in given.items()}
        return pooled(self.model.get_text_features(**given))


class TransformersImage(nn.Module):
    """The image tower of a dual encoder of transformers, which shares its weights."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = object.__new__(type(model))
        vars(self.model).update(vars(model))
        self.model._modules = {name: child for name, child in model.named_children() if not is_text(name)}  # noqa: SLF001

    def forward(self, images: Tensor) -> Tensor:
        """The embeddings [N, size]."""
        return pooled(self.model.get_image_features(pixel_values=images))


def is_text(name: str) -> bool:
    """Whether a part of a dual encoder of transformers belongs to its text tower, by its name there."""
    return name.startswith("text")


def pooled(output: Any) -> Tensor:
    """The embeddings in what transformers gives: since version 5 an object."""
    found: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return found


# open_clip.


def open_clip_card(name: str) -> Card:
    """A dual encoder of open_clip: ``MODEL``, ``MODEL/PRETRAINED``, ``hf-hub:NAME``, or a folder in its format."""
    _torchvision_first("open_clip")
    open_clip = imported("open_clip", "open_clip", extra="open-clip")
    model, tag, settings = _open_clip_names(open_clip, name)
    on_hub = not model.startswith(OPEN_CLIP_FOLDER)

    def made(**more: Any) -> Any:
        with _unlogged():
            return open_clip.create_model(model, **settings, **more)

    def build(_classes: int | None) -> nn.Module:
        with _unlogged():
            network: nn.Module = open_clip.create_model(model, load_weights=False, pretrained_text=False)
        return network

    def finish(network: nn.Module) -> nn.Module:
        tokenizer = fetched(
            lambda: open_clip.get_tokenizer(model),
            f"the tokenizer of {name}",
            hub=on_hub,
            remedy="Give a folder that has it.",
        )
        with _unlogged():
            return open_clip_dual(network, _open_clip_preprocess(open_clip, network), tokenizer())

    return Card(
        name=f"open_clip:{name}",
        build=build,
        preprocess=Preprocess(),  # as the network says, see `DualEncoder`
        labels=default_labels,
        layers=(),
        description=f"{name} of open_clip, for any words",
        source=f"open_clip, {tag or name}",
        pretrained=fetched(lambda: made(require_pretrained=True), f"the weights of open_clip's {name}", hub=on_hub)
        if tag is not None
        else None,
        finish=finish,
    )


def _open_clip_names(open_clip: ModuleType, name: str) -> tuple[str, str | None, dict[str, Any]]:
    """The name of the network, where its weights are from (None: nowhere), and the settings that these need."""
    if Path(name).is_dir():
        return f"{OPEN_CLIP_FOLDER}{name}", "", {}
    if name.startswith((OPEN_CLIP_HUB, OPEN_CLIP_FOLDER)):
        return name, "", {}
    model, _, tag = name.partition("/")
    check_name("open_clip", model, open_clip.list_models())
    tags = open_clip.list_pretrained_tags_by_model(model)
    if tag and tag not in tags:
        known = listed([f"open_clip:{model}/{one}" for one in tags]) or f"open_clip:{model}"
        raise ModelError(f"open_clip has no weights {name!r}; there are: {known}.")
    if not tags:
        return model, None, {}
    tag = tag or tags[0]
    quick = bool(open_clip.get_pretrained_cfg(model, tag).get("quick_gelu"))  # else other answers, without a word
    return model, tag, {"pretrained": tag, "force_quick_gelu": quick}


@contextmanager
def _unlogged() -> Iterator[None]:
    """open_clip reports on the root logger what it does; what fails is in its errors too."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _open_clip_preprocess(open_clip: ModuleType, network: nn.Module) -> Preprocess:
    facts: Mapping[str, Any] = open_clip.get_model_preprocess_cfg(network)
    size = facts["size"]
    side = size if isinstance(size, int) else min(size)
    prepare = plain_preprocess(side, facts["mean"], facts["std"], str(facts.get("interpolation", "bicubic")))
    return replace(prepare, square=facts.get("resize_mode") == "squash")


def open_clip_dual(network: Any, preprocess: Preprocess | None, tokenizer: Any) -> DualEncoder:
    """The network for a dual encoder of open_clip."""
    bias = getattr(network, "logit_bias", None)
    return DualEncoder(
        network.visual,
        OpenClipText(network, tokenizer),
        scale=float(network.logit_scale.detach().exp()),
        bias=None if bias is None else float(bias.detach()),
        preprocess=preprocess,
    ).eval()


class OpenClipText(TextTower):
    """The text tower of a dual encoder of open_clip."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.network = model.text if hasattr(model, "text") else _WithoutImage(model)

    def tokens(self, texts: list[str]) -> Tensor:
        """Padded to the full length."""
        tokens: Tensor = self.tokenizer(texts)
        return tokens

    def embed(self, tokens: Tensor) -> Tensor:
        """The projected output at the end of the text."""
        found: Tensor = self.model.encode_text(tokens)
        return found


class _WithoutImage(nn.Module):
    """The parts of a network of open_clip whose text tower is none of its own, but for the image tower."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        for name, child in model.named_children():
            if name != "visual":
                self.add_module(name, child)
        for name, parameter in model.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
