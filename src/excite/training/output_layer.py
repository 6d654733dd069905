"""The output layer of a classifier: which module it is, its input, and the operations behind it.

While only this layer is trained, everything below it is computed once. Most networks end with it; operations behind it
(the pooling of a convolution that answers at each position) are recorded in one forward pass and replayed on whatever
the layer computes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from excite.errors import ModelError
from excite.models import Card, Preprocess, find_card, load
from excite.models.loading import FACTS, Saved, read_saved, save_classifier
from excite.models.weights import fill
from excite.propagation.provenance import tensors_in
from excite.propagation.taps import main_output

FAR = 1e6  # beyond any logit
ROUNDING = 1e-4  # of the largest logit: the same sums in another order
_SLOT = "_excite_slot"
_Call = tuple["Callable[..., Any]", Any, Any]  # a function, args and kwargs with slots


@dataclass(frozen=True, eq=False)
class NewClassifier:
    """A classifier with a new output layer, to be trained."""

    card: Card  # of the base classifier
    base: nn.Module  # its network
    preprocess: Preprocess  # and its preprocessing
    network: nn.Module  # the same with a new output layer
    layer: str  # the name of that layer
    architecture: str  # the name of the network; not a folder

    @classmethod
    def of(cls, model: str, weights: str | None, classes: int, seed: int) -> Self:
        """A new output layer for a classifier of `excite.load`."""
        card, base = find_card(model), load(model, weights=weights, fully_convolutional=False)
        if not isinstance(base.preprocess, Preprocess):
            raise ModelError(f"{card.name} prepares its images in an unknown way: it cannot be trained.")
        network, layer = with_new_output(card, base.module, classes, seed)
        name = read_saved(Path(model)).base if (Path(model) / FACTS).is_file() else card.name
        return cls(card, base.module, base.preprocess, network, layer, name)

    def save(self, folder: Path, labels: Sequence[tuple[str, ...]], training: Mapping[str, Any]) -> list[Path]:
        """Write the trained classifier with the synonyms of each output and the facts of its training."""
        facts = Saved(
            base=self.architecture,
            labels=tuple(labels),
            multilabel=True,
            layers=self.card.layers,
            size=self.preprocess.shorter_side,
            fully_convolutional=self.card.fully_convolutional,
            training=training,
        )
        return save_classifier(folder, self.network.cpu(), facts)


def with_new_output(card: Card, base: nn.Module, classes: int, seed: int = 0) -> tuple[nn.Module, str]:
    """The network of a card for other classes, with random weights in its output layer, and the name of that."""
    network = card.build(classes)
    layers = _changed(network, base) or _changed(network, card.build(classes + 1))
    if not layers:
        raise ModelError(f"{card.name} has a fixed number of classes: its output layer cannot be replaced.")
    if len(layers) > 1:
        found = ", ".join(layers)
        raise ModelError(f"{card.name} has several output layers ({found}): only a network with one can be fine-tuned.")
    (layer,) = layers
    random = torch.Generator().manual_seed(seed)
    tensors = {name: tensor for name, tensor in base.state_dict().items() if not name.startswith(card.ignored)}
    for name, tensor in network.get_submodule(layer).state_dict().items():
        new = torch.zeros(tensor.shape)  # a bias begins at 0, weights as usual in Caffe
        tensors[f"{layer}.{name}"] = new.normal_(std=0.01, generator=random) if tensor.dim() > 1 else new
    fill(network, tensors, card.name)
    return network, layer


def _changed(network: nn.Module, other: nn.Module) -> list[str]:
    """The layers whose tensors have different shapes."""
    one, two = network.state_dict(), other.state_dict()
    return sorted({name.rpartition(".")[0] for name in one.keys() & two.keys() if one[name].shape != two[name].shape})


class _Reached(Exception):  # noqa: N818 - no error: it ends a forward pass early
    pass


def features_of(network: nn.Module, layer: str, pictures: Tensor) -> Tensor:
    """The input of the output layer for these images; the rest of the network is not run."""
    inputs: list[Any] = []

    def stop(_module: nn.Module, given: tuple[Any, ...]) -> None:
        inputs.extend(given)
        raise _Reached

    handle = network.get_submodule(layer).register_forward_pre_hook(stop)
    try:
        network(pictures)
    except _Reached:
        pass
    finally:
        handle.remove()
    if len(inputs) != 1 or not isinstance(inputs[0], Tensor):
        raise ModelError(f"the output layer {layer!r} is not called once with one tensor: it cannot be fine-tuned.")
    return inputs[0]


class Output(nn.Module):
    """An output layer, shared with its network, and the operations behind it: from features to logits [N, classes]."""

    def __init__(self, layer: nn.Module, tail: Sequence[_Call]) -> None:
        super().__init__()
        self.layer = layer
        self.tail = tuple(tail)

    @classmethod
    def of(cls, network: nn.Module, layer: str, pictures: Tensor) -> Self:
        """The output of a network, recorded on the first of at least two images and checked on all."""
        module = network.get_submodule(layer)
        with torch.no_grad():
            with _Recorder() as recorder:
                handle = module.register_forward_hook(lambda _module, _given, answer: setattr(answer, _SLOT, 0))
                try:
                    last = main_output(network(pictures[:1]))
                finally:
                    handle.remove()
            output = cls(module, recorder.calls[: getattr(last, _SLOT, 0)])
            expected = _flat(main_output(network(pictures)))
            features = features_of(network, layer, pictures)
            if not output._matches(expected, features):
                raise ModelError(f"the operations behind {layer!r} cannot be replayed without the image.")
            if not bool((output._tail_of(module(features) - FAR) < 0).all()):  # as SqueezeNet's ReLU
                raise ModelError(
                    f"behind its output layer {layer!r} the network cuts off negative logits, so no category could "
                    "be absent: fine-tune another network."
                )
        return output

    def forward(self, features: Tensor) -> Tensor:
        """The logits."""
        return self._tail_of(self.layer(features))

    def _tail_of(self, answer: Tensor) -> Tensor:
        """The logits from the output of the layer."""
        values = [answer]
        for function, args, kwargs in self.tail:
            values.append(function(*_filled(args, values), **_filled(kwargs, values)))
        return _flat(values[-1])

    def _matches(self, expected: Tensor, features: Tensor) -> bool:
        try:
            found = self(features)
        except RuntimeError:  # a recorded shape that fits one image only
            return False
        near = ROUNDING * float(expected.abs().max())
        return found.shape == expected.shape and torch.allclose(found, expected, rtol=0, atol=near)


@dataclass(frozen=True)
class _Slot:
    """A placeholder for the output of the layer (0) or of one of the calls behind it (from 1)."""

    number: int


class _Recorder(TorchFunctionMode):
    """Records every call whose arguments depend on the output of the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        behind = any(hasattr(tensor, _SLOT) for tensor in tensors_in((args, kwargs)))
        call = func, _emptied(args), _emptied(kwargs)  # before it runs: it may work in place
        result = func(*args, **kwargs)
        if behind and isinstance(result, Tensor):
            self.calls.append(call)
            setattr(result, _SLOT, len(self.calls))
        return result


def _emptied(given: Any) -> Any:
    """Arguments with slots for tensors behind the layer."""
    return tree_map(lambda item: _Slot(getattr(item, _SLOT)) if hasattr(item, _SLOT) else item, given)


def _filled(noted: Any, values: Sequence[Tensor]) -> Any:
    """Arguments with tensors in the slots."""
    return tree_map(lambda item: values[item.number] if isinstance(item, _Slot) else item, noted)


def _flat(logits: Tensor) -> Tensor:
    """One logit for each class: the mean over positions, as in `excite.Classifier.probabilities`."""
    return logits.flatten(2).mean(2) if logits.dim() > 2 else logits
