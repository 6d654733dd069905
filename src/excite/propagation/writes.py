"""What is known of a tensor that holds values of several: joined, or written to through an index, a mask or a view."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from excite.propagation.graph import trust
from excite.propagation.provenance import UNKNOWN, Neuron, Provenance, is_activation, provenance_of, set_provenance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Change = Callable[[Tensor], Tensor]
    Side = Callable[[Neuron | None, Tensor], Tensor]  # of the neuron behind a tensor
    Write = Callable[[Tensor, Change], object]  # to a tensor, from the sources as they are changed

# Operations that put values of several tensors side by side, whatever the values are.
PLACING = frozenset(
    """cat concat concatenate stack hstack vstack dstack column_stack where masked_fill masked_scatter index_copy
    index_fill scatter index_put""".split()
)


def baseline_of(tensor: Tensor) -> Tensor:
    """The baseline of an activation: the same call on baselines gives the baseline of its output."""
    if not is_activation(tensor) or tensor.dtype == torch.bool:
        return tensor.detach()
    baseline = provenance_of(tensor).baseline
    return torch.zeros_like(tensor.detach()) if baseline is None else baseline.clone()  # the call may overwrite it


def joined_neuron(known: Sequence[Provenance], run: Callable[[Side], Tensor]) -> Neuron | None:
    """The neurons behind several tensors as one; what is no neuron takes its probability at any sign.

    ``run`` makes the joined tensor from its sources, as they are changed for one side.
    """
    neurons = [each.neuron for each in known if each.neuron is not None]
    if not neurons:
        return None

    def polarity_of(neuron: Neuron | None, tensor: Tensor) -> Tensor:
        polarity = None if neuron is None else neuron.polarity
        return torch.ones_like(tensor.detach()) if polarity is None else polarity.expand(tensor.shape)

    with torch.enable_grad():
        positive = run(lambda neuron, tensor: tensor if neuron is None else neuron.positive)
        negative = run(lambda neuron, tensor: tensor if neuron is None else neuron.negative)
    polarity = run(polarity_of) if any(neuron.polarity is not None for neuron in neurons) else None
    return Neuron(positive, negative, polarity, tuple(start for neuron in neurons for start in neuron.starts))


def of_sources(side: Side) -> Change:
    """One side of the neuron behind each tensor; copied, as the call may overwrite it."""
    return lambda each: side(provenance_of(each).neuron, each).clone() if is_activation(each) else each


def after_write(
    whole: Tensor, before: Provenance, sources: Sequence[Tensor], write: Write, *, chosen: bool = False
) -> Provenance:
    """What is known of ``whole``: the same write to what was known ``before``, from what is known of the sources.

    ``chosen``: an activation decides where, as in ReLU by a mask; that is an activation function, and ends a neuron.
    """
    known = [before, *(provenance_of(source) for source in sources if is_activation(source))]
    if all(each.plain for each in known):
        return UNKNOWN

    def written(values: Tensor | None, change: Change) -> Tensor:
        target = torch.empty_strided(whole.shape, whole.stride(), dtype=whole.dtype, device=whole.device)
        write(target.zero_() if values is None else target.copy_(values), change)
        trust(target)
        return target

    moved = any(each.baseline is not None for each in known)
    neuron = None
    if not chosen:
        neuron = joined_neuron(known, lambda side: written(side(before.neuron, whole), of_sources(side)))
    return Provenance(neuron, baseline=written(before.baseline, baseline_of) if moved else None)


def after_write_to_view(view: Tensor) -> bool:
    """Record what is known of the base of a view that was written to; whether there is anything to know."""
    base = view._base  # noqa: SLF001 - it has no public name
    mark = getattr(base, "_excite_provenance", None)  # as it was before this write
    if base is None:
        return False
    known = after_write(
        base, mark.known if mark else UNKNOWN, [view], lambda target, change: _part(target, view).copy_(change(view))
    )
    if known.plain:
        return False
    set_provenance(base, known)
    return True


def update_view(view: Tensor) -> None:
    """Let a view know what its base got to know when it, or another view of it, was written to."""
    base = view._base  # noqa: SLF001 - it has no public name
    if base is None or not is_activation(base) or provenance_of(view) is not UNKNOWN:
        return
    known = provenance_of(base)
    baseline, neuron = known.baseline, known.neuron
    if baseline is not None or neuron is not None:
        baseline = None if baseline is None else _part(baseline, view)
        neuron = None if neuron is None else neuron.moved(lambda whole: _part(whole, view), 0)
        set_provenance(view, Provenance(neuron, baseline=baseline))


def _part(whole: Tensor, view: Tensor) -> Tensor:
    """The part of a tensor like a base that belongs to a view of the base."""
    start = view.storage_offset() - view._base.storage_offset()  # type: ignore[union-attr]  # noqa: SLF001 - as above
    return whole.as_strided(view.shape, view.stride(), start)
