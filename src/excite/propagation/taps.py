"""Reading layers: taps on a network's modules, and where walks from those layers start."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from excite.propagation.graph import rule_of
from excite.propagation.notes import Note, is_live, leads_to_tap, note_of, set_note
from excite.propagation.rules import Facing, Tap, follow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn
    from torch.autograd.graph import GradientEdge

    from excite.propagation.notes import Neuron

__all__ = ["Reading", "Start", "tap_on", "tapped"]


class Start:
    """Where a walk from the units of a layer goes on: below the layer's own tap.

    The units of a neuron's response have two ports, and which one they leave by is known only when the whole neuron is
    known: a norm behind the layer may turn it round. So the latest norm or activation of the neuron is remembered.
    """

    def __init__(
        self,
        own: list[GradientEdge],
        ports: list[GradientEdge] | None = None,
        tapped_port: Tensor | None = None,
    ) -> None:
        self._own = own  # the way down from the layer's own response, the only one where no neuron is known
        self._ports = ports
        self.tapped_port = tapped_port
        self._final: tuple[Facing, Tensor] | None = None
        self._direction: Tensor | None = None

    @property
    def edges(self) -> list[GradientEdge]:
        """Where in autograd's graph the walk goes on; nothing at the lowest layer."""
        return self._own if self._ports is None or self._final is None else self._ports

    @property
    def facing(self) -> Facing | None:
        """The neuron's latest norm or activation."""
        return None if self._final is None else self._final[0]

    def continue_with(self, facing: Facing, port: Tensor) -> None:
        """A norm or an activation joined the neuron; ``port`` is the tapped port in its shape."""
        self._final = facing, port

    def split(self, probability: Tensor) -> list[Tensor]:
        """The probability for each edge."""
        if self.tapped_port is None or self._final is None:
            return [probability]
        if self._direction is None:
            facing, port = self._final
            self._direction = facing.direction()
            if port is not self.tapped_port:  # seen through other taps or a change of shape: undo that
                (self._direction,) = torch.autograd.grad(port, self.tapped_port, self._direction, retain_graph=True)
        return [probability * (self._direction > 0), probability * (self._direction < 0)]


@dataclass(frozen=True)
class Reading:
    """A tapped layer: its tap, the probe that records, its own output, and where walks from it start."""

    tap: Tap
    probe: Tensor
    activation: Tensor
    start: Start


@contextmanager
def tapped(calls: dict[nn.Module, list[Reading | str]], begin: Callable[[], None]) -> Iterator[None]:
    """Read those modules, at each of their calls, while their network runs (a str: it gave that type, no tensor).

    ``begin`` is called at each tap: what comes after it is above.
    """
    thread = get_ident()

    def read(module: nn.Module, _arguments: Any, answer: Any) -> Any:
        if get_ident() != thread:  # somebody else runs the same network just now
            return answer
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - our own mode must not see the tap
            if not isinstance(answer, Tensor):
                calls[module].append(type(answer).__name__)
                return answer
            begin()
            reading, given = tap_on(answer)
            calls[module].append(reading)
            return given

    handles = [module.register_forward_hook(read) for module in calls]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def tap_on(answer: Tensor) -> tuple[Reading, Tensor]:
    """Read an activation here. What the network goes on with is a copy, so that it may overwrite it."""
    note = replace(note_of(answer), fresh=False) if is_live(answer) else Note()
    answer = answer if leads_to_tap(answer) else answer.detach()
    tap = Tap()
    probe = torch.empty_like(answer.detach()).requires_grad_()
    given: Tensor = follow(tap, answer.detach().clone, [answer, probe])
    start = Start([get_gradient_edge(answer)] if answer.requires_grad else [])
    neuron = note.made_by() if answer.requires_grad else None
    if neuron is not None:  # a norm that joins the neuron later must come by this tap too
        ports = (neuron.up, neuron.down)
        up, down = (follow(tap, port.detach, [port, probe]) for port in ports)
        start = Start([get_gradient_edge(answer)], [get_gradient_edge(port) for port in ports], up)
        final = rule_of(answer.grad_fn)
        if isinstance(final, Tap) and neuron.starts:  # the same tensor is tapped twice: a module within a module
            final = neuron.starts[-1].facing
        if isinstance(final, Facing):
            start.continue_with(final, up)
        note = replace(note, neuron=_seen(neuron, up, down, start), parts=None)
    return Reading(tap, probe, answer.detach(), start), set_note(given, note)


def _seen(neuron: Neuron, up: Tensor, down: Tensor, start: Start) -> Neuron:
    """The neuron behind a tap: whatever joins it comes by the tap, so no other ports may be used."""
    return replace(neuron, up=up, down=down, starts=(*neuron.starts, start), turning=None)
