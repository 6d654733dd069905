"""The output layer of any classifier: which module it is, what it reads, and what the network makes of its answer.

Only this layer is trained, so all below it needs to be computed once. Most networks end with it; where something comes
behind (the pooling of a convolution that answers for each place), these few calls are noted in one run of the network
and made again on whatever the layer gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from excite.errors import ModelError
from excite.models.weights import fill
from excite.propagation.provenance import tensors_in
from excite.propagation.taps import main_output

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from excite.models import Card

__all__ = ["Output", "features_of", "with_new_output"]

START = 0.01  # the deviation of the weights that training begins with, as usual in Caffe
FAR = 1e6  # beyond any logit
ROUNDING = 1e-4  # of the largest logit: the same sums in another order
_PLACE = "_excite_place"


def with_new_output(card: Card, base: nn.Module, classes: int, seed: int = 0) -> tuple[nn.Module, str]:
    """The network of a card for other classes, and the name of its output layer.

    Below that layer it has the weights of ``base``, in it random ones.

    Raises:
        ModelError: the number of classes does not change exactly one layer.

    Example:
        >>> from excite.models import MODELS, load
        >>> network, layer = with_new_output(MODELS["efficientnet-lite0"], load("efficientnet-lite0").module, 20)
        >>> layer, network.classifier.weight.shape
        ('classifier', torch.Size([20, 1280]))
    """
    network = card.build(classes)
    layer = _only(_changed(network, base) or _changed(network, card.build(classes + 1)), card.name)
    random = torch.Generator().manual_seed(seed)
    tensors = {name: tensor for name, tensor in base.state_dict().items() if not name.startswith(card.ignored)}
    for name, tensor in network.get_submodule(layer).state_dict().items():
        begun = torch.zeros(tensor.shape)  # a bias begins at 0
        tensors[f"{layer}.{name}"] = begun.normal_(std=START, generator=random) if tensor.dim() > 1 else begun
    fill(network, tensors, card.name)
    return network, layer


def _changed(network: nn.Module, other: nn.Module) -> list[str]:
    """The layers with tensors of other shapes."""
    one, two = network.state_dict(), other.state_dict()
    return sorted({name.rpartition(".")[0] for name in one.keys() & two.keys() if one[name].shape != two[name].shape})


def _only(layers: Sequence[str], model: str) -> str:
    if not layers:
        raise ModelError(f"{model} says itself how many classes it has: no other output layer can be put into it.")
    if len(layers) > 1:
        found = ", ".join(layers)
        raise ModelError(f"{model} has several output layers ({found}): only a network with one can be fine-tuned.")
    return layers[0]


def features_of(network: nn.Module, layer: str, pictures: Tensor) -> Tensor:
    """What the output layer reads of these images."""
    read: list[Any] = []
    handle = network.get_submodule(layer).register_forward_pre_hook(lambda _module, given: read.append(given))
    try:
        with torch.no_grad():
            network(pictures)
    finally:
        handle.remove()
    if len(read) != 1 or len(read[0]) != 1 or not isinstance(read[0][0], Tensor):
        raise ModelError(f"the output layer {layer!r} is not called once with one tensor: it cannot be fine-tuned.")
    features: Tensor = read[0][0]
    return features


class Output(nn.Module):
    """An output layer and what the network does behind it: from features to logits [N, classes].

    The layer is the network's own: training one trains the other.
    """

    def __init__(self, layer: nn.Module, tail: Sequence[_Call]) -> None:
        super().__init__()
        self.layer = layer
        self.tail = tuple(tail)

    @classmethod
    def of(cls, network: nn.Module, layer: str, pictures: Tensor) -> Self:
        """The output of a network, as seen in a run on the first of at least two images and checked on all.

        Raises:
            ModelError: what comes behind the layer also depends on the image in other ways, or knows no negative
                logits, as SqueezeNet's ReLU: for several labels at once every output would fade to nothing.
        """
        module = network.get_submodule(layer)
        with torch.no_grad():
            with _Noting() as noting:
                handle = module.register_forward_hook(lambda _module, _given, answer: noting.begin(answer))
                try:
                    last = main_output(network(pictures[:1]))
                finally:
                    handle.remove()
            output = cls(module, noting.calls[: getattr(last, _PLACE, 0)])
            expected = _flat(main_output(network(pictures)))
            features = features_of(network, layer, pictures)
            if not output._gives(expected, features):
                raise ModelError(f"what the network does behind {layer!r} cannot be repeated without the image.")
            if not bool((output._behind(module(features) - FAR) < 0).all()):
                raise ModelError(
                    f"behind its output layer {layer!r} the network cuts off what is negative, so it could never say "
                    "that something is not there: fine-tune another network."
                )
        return output

    def forward(self, features: Tensor) -> Tensor:
        """The logits."""
        return self._behind(self.layer(features))

    def _behind(self, answer: Tensor) -> Tensor:
        """The logits that the network makes of what the layer answers."""
        values = [answer]
        for call in self.tail:
            values.append(call(values))
        return _flat(values[-1])

    def _gives(self, expected: Tensor, features: Tensor) -> bool:
        try:
            found = self(features)
        except RuntimeError:  # a shape that held for one image only
            return False
        near = ROUNDING * float(expected.abs().max())
        return found.shape == expected.shape and torch.allclose(found, expected, rtol=0, atol=near)


@dataclass(frozen=True)
class _Slot:
    """Stands for a tensor that was made by the layer (0) or by one of the calls behind it (from 1)."""

    place: int


@dataclass(frozen=True)
class _Call:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self, values: Sequence[Tensor]) -> Tensor:
        result: Tensor = self.function(*_filled(self.args, values), **_filled(self.kwargs, values))
        return result


class _Noting(TorchFunctionMode):
    """Notes every call that reads what the layer gave, or what was made of it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []

    def begin(self, answer: Tensor) -> None:
        setattr(answer, _PLACE, 0)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        behind = any(hasattr(tensor, _PLACE) for tensor in tensors_in((args, kwargs)))
        call = _Call(func, _emptied(args), _emptied(kwargs))  # before it is made: it may write to what it reads
        result = func(*args, **kwargs)
        if behind and isinstance(result, Tensor):
            self.calls.append(call)
            setattr(result, _PLACE, len(self.calls))
        return result


def _emptied(given: Any) -> Any:
    """Arguments with slots for what is behind the layer."""
    if isinstance(given, Tensor):
        return _Slot(getattr(given, _PLACE)) if hasattr(given, _PLACE) else given
    return _mapped(_emptied, given)


def _filled(noted: Any, values: Sequence[Tensor]) -> Any:
    """Arguments with tensors in the slots."""
    return values[noted.place] if isinstance(noted, _Slot) else _mapped(lambda inner: _filled(inner, values), noted)


def _mapped(change: Callable[[Any], Any], given: Any) -> Any:
    if isinstance(given, dict):
        return {key: change(item) for key, item in given.items()}
    if type(given) in {tuple, list}:
        return type(given)(change(item) for item in given)
    return given


def _flat(logits: Tensor) -> Tensor:
    """One logit for each class: the mean over places, as in `excite.Classifier.probabilities`."""
    return logits.flatten(2).mean(2) if logits.dim() > 2 else logits
