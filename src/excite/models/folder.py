"""A saved classifier: a folder of ``classifier.json`` (network, labels, training) and ``weights.safetensors``.

The former holds the hash of the latter, so that files of two classifiers are never mixed. Nothing in them is run.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from excite.errors import ConceptError, ModelError
from excite.io.files import atomic_write, save_json
from excite.models.cards import Card
from excite.models.classifier import Preprocess
from excite.models.weights import fill, read_tensors
from excite.vocabulary import Labels

FACTS, WEIGHTS = "classifier.json", "weights.safetensors"
FORMAT = 1


@dataclass(frozen=True)
class Saved:
    """The content of ``classifier.json``.

    ``base`` is the network's name in `excite.load`, not a file; ``labels`` are the synonyms of each output, ``size``
    is the shorter side of preprocessed images, ``weights`` the SHA-256 of the file of tensors; ``training`` informs.
    """

    base: str
    labels: tuple[tuple[str, ...], ...]
    multilabel: bool
    layers: tuple[str, ...]
    size: int
    fully_convolutional: bool
    weights: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)

    def card(self, base: Card, folder: Path) -> Card:
        """The card of the classifier, from that of its network."""
        if not isinstance(base.preprocess, Preprocess):
            raise ModelError(f"{folder / FACTS}: {self.base!r} prepares its images in an unknown way.")

        def pretrained() -> nn.Module:
            path, network = folder / WEIGHTS, base.build(len(self.labels))
            tensors = read_tensors(path)
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != self.weights:
                    raise ModelError(
                        f"{path} is damaged, or not the one that {FACTS} was written with: fine-tune again."
                    )
            fill(network, tensors, str(path))
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
    return _checked(facts, path)


def files_of(name: str | Path) -> list[Path]:
    """The files of a classifier: those in its folder, or the file itself; none for a name that is no path."""
    path = Path(name)
    return [file for file in (path, path / FACTS, path / WEIGHTS) if file.is_file()]


def _checked(facts: Any, path: Path) -> Saved:
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
