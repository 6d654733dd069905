"""Torch's public functions with small arguments: those that torch tests them with, and a table for the others.

A `Case` is one call: which of the tensors among the arguments are live (activations), and how the call is spelled.
"""

from __future__ import annotations

import inspect
import sys
import types
import unittest
import warnings
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import get_testing_overrides
from torch.utils._pytree import tree_flatten, tree_unflatten

from hunt.others import OTHERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

__all__ = ["MANY", "Case", "Function", "functions", "quick_seeds", "tensors_of"]

PLACES = ("", "nn.functional", "special", "linalg", "fft")  # of torch
FEW, MANY = 40, 150  # numbers of an argument: of those that are preferred, and of all
CROPPED = 5  # along each dimension of larger ones
RANDOM_BITS = 1e-3  # added to all numbers, so that no two are equal
MOST_LIVE = 3


def tensors_of(value: Any) -> list[Tensor]:
    """All tensors in nested containers."""
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]


def exchanged(value: Any, tensors: Iterable[Tensor]) -> Any:
    """The same containers with other tensors."""
    leaves, kind = tree_flatten(value)
    queue = iter(tensors)
    return tree_unflatten([next(queue) if isinstance(leaf, Tensor) else leaf for leaf in leaves], kind)


def quick_seeds() -> AbstractContextManager[Any]:
    """Torch's samples and some functions set the seed of all devices at each call, which takes most of the time."""
    return patch.object(torch, "manual_seed", torch.default_generator.manual_seed)


# --- how a function is called --------------------------------------------------------------------------------------


def _plainly(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def _by_names(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(**dict(zip(_names(function), args, strict=False)), **kwargs)


def _out(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with torch.no_grad():
        still = exchanged((args, kwargs), map(Tensor.detach, tensors_of((args, kwargs))))
        like = function(*still[0], **still[1])
    torch.default_generator.manual_seed(0)
    return function(*args, **kwargs, out=torch.empty_like(like))


def _in_place(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    subject = args[0].clone()
    function(subject, *args[1:], **kwargs)
    return subject


@cache
def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    """What a function calls its arguments; built-in ones have no signature, but torch lists them for overriding."""
    signature = inspect.signature(get_testing_overrides()[function])
    return tuple(each.name for each in signature.parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD)


SPELLED: dict[str, Callable[..., Any]] = {
    "": _plainly,
    "method": _plainly,
    "in place": _in_place,
    "out=": _out,
    "keywords": _by_names,
}


# --- functions and their arguments ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @cached_property
    def tensors(self) -> list[Tensor]:
        """All tensors among them."""
        return tensors_of((self.args, self.kwargs))

    @property
    def floats(self) -> list[int]:
        """Which of those can be activations."""
        return [
            k for k, each in enumerate(self.tensors) if each.dtype == torch.float64 and each.layout == torch.strided
        ]

    @property
    def size(self) -> int:
        """How many numbers the largest of those has; 0: there is none, or not all are finite."""
        floats = [self.tensors[k] for k in self.floats]
        if not all(bool(torch.isfinite(each).all()) for each in floats):
            return 0
        return max((each.numel() for each in floats), default=0)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Samples of one kind are much alike."""
        options = sorted((name, str(value)) for name, value in self.kwargs.items() if not isinstance(value, Tensor))
        others = tuple(str(each) for each in self.args if not isinstance(each, Tensor))
        return tuple(each.dim() for each in self.tensors), tuple(options), len(self.args), others

    def cropped(self) -> Sample:
        """The same with less of each tensor, as element-wise functions allow."""
        tensors = [each[tuple(slice(CROPPED) for _ in each.shape)] for each in self.tensors]
        return Sample(*exchanged((self.args, self.kwargs), tensors))

    def jittered(self, random: torch.Generator) -> Sample:
        """The same without ties."""
        tensors = [each.detach() for each in self.tensors]
        for k in self.floats:
            noise = torch.randn(tensors[k].shape, generator=random, dtype=torch.float64)
            tensors[k] = tensors[k] + RANDOM_BITS * noise
        return Sample(*exchanged((self.args, self.kwargs), tensors))


@dataclass(frozen=True)
class Case:
    """One call of a function, some of whose tensors are activations.

    Attributes:
        name: of the function, without ``torch.``.
        spelled: how it is called.
        number: of the sample.
        live: which of the tensors among the arguments are activations.
        given: the values of those.
        call: the function of those alone; it answers whatever the torch function does.
    """

    name: str
    spelled: str
    number: int
    live: tuple[int, ...]
    given: list[Tensor]
    call: Callable[[list[Tensor]], Any]

    @property
    def operation(self) -> str:
        """The name without its place."""
        return self.name.rpartition(".")[2]

    def __str__(self) -> str:
        how = f", {self.spelled}" if self.spelled else ""
        given = ", ".join(f"{place} {tuple(each.shape)}" for place, each in zip(self.live, self.given, strict=True))
        return f"{self.name}{how}, sample {self.number}, live: {given}"


@dataclass(frozen=True)
class Function:
    """A function of torch.

    Attributes:
        name: without ``torch.``.
        spellings: the function itself, and other functions for the same: how they are called, and what.
        make: gives its samples.
    """

    name: str
    spellings: list[tuple[str, Callable[..., Any]]]
    make: Callable[[], Iterable[Sample]]

    @cached_property
    def samples(self) -> list[Sample]:
        """Its samples, small ones first, one of each kind."""
        kinds: dict[Any, Sample] = {}
        with warnings.catch_warnings(), quick_seeds():
            warnings.simplefilter("ignore")
            torch.default_generator.manual_seed(0)
            for sample in self.make():
                sample = sample if sample.size <= 2 * MANY else sample.cropped()  # noqa: PLW2901 - from here on
                if 0 < sample.size <= 2 * MANY and sample.size < getattr(kinds.get(sample.kind), "size", 2**60):
                    kinds[sample.kind] = sample
        samples = sorted(kinds.values(), key=lambda sample: sample.size)
        return [sample for sample in samples if sample.size <= FEW] or samples[:1]

    def chosen(self, most: int) -> list[Sample]:
        """Some samples, of all sizes."""
        return self.samples[:: -(-len(self.samples) // most)] if self.samples else []

    def cases(self, most: int) -> Iterator[Case]:
        """Each of some samples, each choice of live tensors; of the first sample also each spelling."""
        random = torch.Generator().manual_seed(0)
        for number, sample in enumerate(self.chosen(most)):
            sample = sample.jittered(random)  # noqa: PLW2901 - from here on
            single = [(place,) for place in sample.floats[:MOST_LIVE]]
            for live in [*single, tuple(sample.floats[:MOST_LIVE])][: len(single) + (len(single) > 1)]:
                given = [sample.tensors[place] for place in live]
                if sum(each.numel() for each in given) > 2 * MANY:
                    continue
                for spelled, function in self.spellings[: None if number == 0 else 1]:
                    yield Case(self.name, spelled, number, live, given, _called(sample, live, spelled, function))


def _called(
    sample: Sample, live: tuple[int, ...], spelled: str, function: Callable[..., Any]
) -> Callable[[list[Tensor]], Any]:
    """The function of the live tensors alone."""
    leaves, kind = tree_flatten((sample.args, sample.kwargs))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def call(given: list[Tensor]) -> Any:
        filled = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        for place, tensor in zip(live, given, strict=True):
            filled[places[place]] = tensor
        args, kwargs = tree_unflatten(filled, kind)
        torch.default_generator.manual_seed(0)  # the same mask for each call of a dropout
        return SPELLED[spelled](function, args, kwargs)

    return call


@cache
def functions() -> dict[str, Function]:
    """All functions by name; variants that torch tests on their own have a second word."""
    found = {}
    for op in _tested():
        place, _, own = op.name.rpartition(".")
        hidden = own.startswith("_") and not own.endswith("__")
        if place in PLACES and not hidden and op.supports_dtype(torch.float64, "cpu"):
            name = f"{op.name} {op.variant_test_name}".strip()
            found[name] = Function(op.name, list(_spellings(op)), lambda op=op: _samples(op))
    for name, (function, samples) in OTHERS.items():
        found[name] = Function(name, [("", function)], lambda samples=samples: [Sample(*each) for each in samples()])
    return found


def _samples(op: Any) -> Iterator[Sample]:
    with patch.object(inspect, "stack", list):  # torch reads it to find its test, which takes most of the time
        samples = op.sample_inputs("cpu", torch.float64)
    for each in samples:
        yield Sample((each.input, *each.args), each.kwargs)


def _spellings(op: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    yield "", op.op
    if op.method_variant is not None:
        yield "method", op.method_variant
    if op.inplace_variant is not None:
        yield "in place", op.inplace_variant
    if op.supports_out:
        yield "out=", op.op
    if op.op in get_testing_overrides():
        yield "keywords", op.op
    for alias in op.aliases:
        yield "", alias.op


@cache
def _tested() -> list[Any]:
    """The functions that torch tests; their list asks for a package that only its tests would use."""
    if "expecttest" not in sys.modules:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db
