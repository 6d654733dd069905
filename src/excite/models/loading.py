"""Two ways to a classifier: by the name of its card, or around a network of one's own."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches

import torch
from PIL import Image
from torch import Tensor, nn

from excite.errors import ModelError
from excite.models.cards import MODELS
from excite.models.classifier import Classifier
from excite.models.preprocess import Preprocess
from excite.vocabulary import Labels

__all__ = ["load", "wrap"]

USUAL_PREPROCESS = Preprocess(  # what most networks trained on ImageNet with torch take
    mean=(123.675, 116.28, 103.53),
    scale=(1 / 58.395, 1 / 57.12, 1 / 57.375),
    interpolation="bilinear",
)


def load(name: str = "efficientnet-lite0") -> Classifier:
    """The classifier of this name, with its weights.

    Raises:
        ModelError: There is no card of this name, or its weights cannot be had.

    Example:
        >>> classifier = load("efficientnet-lite0")
        >>> classifier.layer, len(classifier.labels)
        ('blocks.14', 1000)
    """
    if name not in MODELS:
        near = get_close_matches(name, MODELS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ModelError(f"There is no model {name!r}; the known ones are: {', '.join(MODELS)}.{hint}")
    card = MODELS[name]
    return Classifier(
        module=card.build(),
        preprocess=card.preprocess,
        labels=card.labels(),
        name=card.name,
        layer=card.layers[0],
        layers=card.layers,
    )


def wrap(
    module: nn.Module,
    *,
    labels: Labels | Sequence[str | Sequence[str]] | None = None,
    preprocess: Callable[[Image.Image], Tensor] | None = None,
    layer: str | None = None,
    name: str | None = None,
    multilabel: bool = False,
) -> Classifier:
    """A classifier around a network of one's own; the network itself is left as it is.

    Args:
        module: Gives logits [N, C] or [N, C, H, W].
        labels: One for each output: a word, or its synonyms with its name first.
        preprocess: Makes of a picture what the module takes; by default what most networks trained on
            ImageNet with torch take (shorter side 224, the usual mean and deviation of each channel).
        layer: The layer to read when none is asked for.
        name: For people to read; by default the name of the module's class.
        multilabel: Several outputs may be true at once.

    Raises:
        ModelError: It is no ``nn.Module``, or is (or contains) TorchScript.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> wrap(network, labels=["cat", "dog"], layer="0").labels.find("dog").units
        (1,)
    """
    check(module)
    return Classifier(
        module=module,
        preprocess=USUAL_PREPROCESS if preprocess is None else preprocess,
        labels=labels if labels is None or isinstance(labels, Labels) else Labels(labels),
        name=type(module).__name__ if name is None else name,
        layer=layer,
        multilabel=multilabel,
        layers=() if layer is None else (layer,),
    )


def check(module: object) -> None:
    """Refuse what the top-down rules could not see into."""
    parts = module.modules() if isinstance(module, nn.Module) else [module]
    if any(isinstance(part, torch.jit.ScriptModule | torch.jit.ScriptFunction) for part in parts):
        raise ModelError(
            "The model is TorchScript, which hides its operations: pass the Python module it was made from."
        )
    if not isinstance(module, nn.Module):
        raise ModelError(f"The model is a {type(module).__name__}: pass a torch.nn.Module.")
