"""One forward pass of a network with taps on its layers; the network is left as it was found."""

from __future__ import annotations

import difflib
import math
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._pytree import tree_map_only

from excite.errors import ExciteError, LayerError, ModelError, NoRuleError, NumberError
from excite.propagation import provenance, unknown
from excite.propagation.attention import EDGES, read_edges, split_edges
from excite.propagation.fast import is_concrete
from excite.propagation.graph import rule_of
from excite.propagation.mode import RuleMode
from excite.propagation.provenance import UNKNOWN, Neuron, is_activation, leads_to_tap, nodes_below, set_provenance
from excite.propagation.rules import SignRouter, Tap, apply, version_of
from excite.propagation.taint import Taint, lost, origin_of
from excite.propagation.tokens import ReadAsMaps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch.autograd.graph import GradientEdge

    from excite.propagation.operations import Operation

    Inputs = tuple[Any, ...]  # what the network is called with
    Disturb = Callable[[Tensor], Tensor]

Layer = str | nn.Module  # its name, as in ``named_modules()``, or the module itself
Layers = Layer | Iterable[Layer]
INPUT = "input"  # as a layer: what the network is given (a module of that name is still there as ``input#0``)
_USUAL = frozenset([bool, int, float, str, tuple, list, dict, set, OrderedDict, type(None)])  # what modules are made of


class ForwardPass(ReadAsMaps):
    """The forward pass of a network in which each operation got its rule from a table."""

    def __init__(
        self,
        module: nn.Module,
        inputs: Tensor | tuple[Any, ...],
        layers: Layers,
        operations: Mapping[str, Operation],
        compared: Sequence[str] = (),
    ) -> None:
        self._module, self._inputs = module, inputs if isinstance(inputs, tuple) else (inputs,)
        names = layer_names(module, layers)
        self._traced, self.readings = forward_pass(module, self._inputs, names, operations, compared)
        self.compared: dict[str, Tensor] = {}
        for layer in compared:
            self.compared[layer] = self.readings.pop(layer).activation
        self.output = self._traced.detach()
        if is_concrete():
            self._check_output()
        reached = self._probes_reached()
        for layer, reading in self.readings.items():
            if reading.probe not in reached:
                raise unread(module, self._inputs, layer, operations)

    def _check_output(self) -> None:
        """Refuse an input or an output that is not finite; a logit of -inf is allowed."""
        first = self._inputs[0] if self._inputs else None
        if isinstance(first, Tensor) and not all_finite(first):
            raise _in_input(first)
        if not all_finite(self.output) and bool((self.output.isnan() | (self.output == torch.inf)).any()):
            raise _not_finite("the answer of the network", self._module, self._inputs)

    def check_maps(self, maps: Iterable[Tensor]) -> None:
        """Refuse maps that are not finite."""
        if is_concrete() and not all(map(all_finite, maps)):
            raise _not_finite("the map", self._module, self._inputs)

    def _probes_reached(self) -> set[Tensor]:
        return {node.variable for node in nodes_below(self.top) if hasattr(node, "variable")}

    @property
    def top(self) -> Any:
        """The node of autograd's graph that made the output."""
        return self._traced.grad_fn


def forward_pass(
    module: nn.Module,
    inputs: Inputs,
    layers: Sequence[str],
    operations: Mapping[str, Operation],
    compared: Sequence[str],
) -> tuple[Tensor, dict[str, Reading]]:
    """The network's output units, with the graph down to the taps, and what is read of each layer."""
    modules = plain_modules(module)
    if any(isinstance(child, LazyModuleMixin) for child in modules):  # its parameters get their shape in the first call
        with torch.no_grad():
            modules[0](*inputs)
    taint = Taint(modules)
    output, read = _run(modules, inputs, layers, operations, taint, compared=compared)
    if taint.unknown:  # are these tensors the same for other images and other activations at the taps?
        trials = [Taint(modules) for _ in unknown.TRIALS]
        try:
            for other, disturb in zip(trials, unknown.TRIALS, strict=True):
                _run(modules, tree_map_only(Tensor, disturb, inputs), layers, operations, other, disturb)
        except Exception as error:
            raise NoRuleError(unknown.hidden_in(taint.unknown[0])) from error
        activations = unknown.activations_among(modules[0], taint.unknown, [other.unknown for other in trials])
        if activations:
            output, read = _run(modules, inputs, layers, operations, Taint(modules, activations), compared=compared)
    return output, read


def _run(
    modules: Sequence[nn.Module],
    inputs: Inputs,
    layers: Sequence[str],
    operations: Mapping[str, Operation],
    taint: Taint,
    disturb: Disturb = Tensor.detach,
    compared: Sequence[str] = (),
) -> tuple[Tensor, dict[str, Reading]]:
    """Run a network once; ``disturb`` changes the activations at the taps. What is only ``compared`` gets none."""
    module = modules[0]
    mode = RuleMode(operations, module, taint)
    wanted: dict[str, tuple[list[Reading | str], int]] = {}  # what is read in a module, and which of that is meant
    calls: dict[nn.Module, list[Reading | str]] = {}
    edges: dict[str, list[Reading | str]] = {}
    untapped: set[nn.Module] = set()
    for layer in (*layers, *compared):
        if is_edges(layer):
            name, number = split_edges(layer)
            child = find_layer(module, name)[0] if name else module
            wanted[layer] = edges.setdefault(mode.names[id(child)], []), number
        elif layer != INPUT:
            child, number = find_layer(module, layer)
            if layer in compared and child not in calls:
                untapped.add(child)
            wanted[layer] = calls.setdefault(child, []), number
    arguments = list(inputs)
    read: dict[str, Reading] = {}
    mode.disturbs = disturb is not Tensor.detach
    mode.read_weights = read_edges(mode, edges, partial(tap_on, disturb=disturb)) if edges else None
    tapped = _tapped(calls, untapped, mode, disturb)
    with torch.inference_mode(mode=False), torch.enable_grad(), as_found(modules), taint, tapped, mode:
        if INPUT in layers:
            mode.below = False
            read[INPUT], arguments[0] = _tap_input(arguments[0], disturb)
        output = main_output(module(*map(activated, arguments)))
    mode.read_weights = None  # which refers to the mode, and so would keep all readings
    read |= {layer: _chosen(layer, readings, number) for layer, (readings, number) in wanted.items()}
    for attributes in map(vars, modules):  # activations that a network keeps (``self.last = x``) stay without our graph
        for name, value in list(attributes.items()):
            if value.__class__ not in _USUAL and is_activation(value):
                attributes[name] = value.detach()
    return output, {layer: read[layer] for layer in (*layers, *compared)}


def unread(module: nn.Module, inputs: Inputs, layer: str, operations: Mapping[str, Operation]) -> ExciteError:
    """The error for a layer that has no part in the output, or none that can be followed."""
    modules, outputs, taint = plain_modules(module), [], None
    with torch.random.fork_rng(devices=[]), suppress(Exception):  # a network that refuses others depends on them
        for disturb in (Tensor.detach, unknown.TRIALS[0]):
            torch.manual_seed(0)
            taint = Taint(modules)
            outputs.append(_run(modules, inputs, [layer], operations, taint, disturb)[0])
    severed = origin_of(outputs[0])
    if severed is not None:
        return NoRuleError(lost(severed))
    same = len(outputs) == 2 and torch.allclose(outputs[0], outputs[1], rtol=0, atol=0, equal_nan=True)
    if same and not (taint and taint.left):
        return LayerError(f"layer {layer!r} does not feed the output of this network: choose another layer")
    return NoRuleError(
        f"layer {layer!r} feeds the output of this network, but by code that hides its operations (NumPy, another "
        "thread, numbers, memory), or only as a gate, a divisor, queries or keys, which take nothing: write it with "
        "torch functions, or read a layer above it"
    )


def _tap_input(first: Any, disturb: Disturb) -> tuple[Reading, Tensor]:
    if not isinstance(first, Tensor) or not first.is_floating_point():
        raise LayerError("the input of this network is no tensor of floats and cannot be read: choose a layer")
    with torch._C.DisableTorchFunction():  # noqa: SLF001 - our own mode must not see the tap
        return tap_on(first.clone() if first.is_inference() else first.detach(), disturb)


def activated(argument: Any) -> Any:
    """An argument of the network as an activation (an alias: the user's own tensor is not marked)."""
    if is_activation(argument):
        return argument
    if isinstance(argument, Tensor):
        return set_provenance(argument.clone() if argument.is_inference() else argument.detach(), UNKNOWN)
    if type(argument) in {tuple, list}:
        return type(argument)(activated(item) for item in argument)
    return {key: activated(item) for key, item in argument.items()} if type(argument) is dict else argument


def _chosen(layer: str, readings: list[Reading | str], call: int) -> Reading:
    if not readings:
        others = "one of excite.propagation.attention_layers(module, inputs)" if is_edges(layer) else "another layer"
        raise LayerError(f"layer {layer!r} was not used for this input: choose {others}")
    if call >= len(readings):
        times = "attends" if is_edges(layer) else "was called"
        last = f"{len(readings)} times, so its last call is #{len(readings) - 1}"
        raise LayerError(f"layer {layer!r}: that module {times} {last}")
    reading = readings[call]
    if isinstance(reading, str):
        raise LayerError(f"layer {layer!r} returns {reading}, not a tensor: choose a layer inside it")
    return reading


# --- taps ----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Start:
    """Where paths from the units of a layer start: below the layer's own tap.

    Whether the positive or the negative input of a neuron counts is decided by its latest norm: so that is recorded.
    """

    own: list[GradientEdge]  # below the response itself, where no neuron is known; none at the lowest layer
    inputs: list[GradientEdge] | None = None  # below the neuron's two inputs
    tapped: Tensor | None = None  # the neuron's positive input, behind the tap
    final: tuple[SignRouter, Tensor] | None = None  # its latest norm or activation function, and its positive input

    @property
    def edges(self) -> list[GradientEdge]:
        """Where in autograd's graph the paths start."""
        return self.own if self.inputs is None or self.final is None else self.inputs

    def split(self, probability: Tensor) -> list[Tensor]:
        """The probability for each edge."""
        if self.tapped is None or self.final is None:
            return [probability]
        router, positive = self.final
        direction = router.direction()
        if positive is not self.tapped:  # seen through other taps or a change of shape: undo that
            (direction,) = torch.autograd.grad(positive, self.tapped, direction, retain_graph=True)
        return [probability * (direction > 0), probability * (direction < 0)]


@dataclass(frozen=True)
class Reading:
    """A tapped layer: its tap, the probe that records, its own output, and where paths from it start."""

    tap: Tap
    probe: Tensor
    activation: Tensor
    start: Start


@contextmanager
def _tapped(
    calls: dict[nn.Module, list[Reading | str]], untapped: set[nn.Module], mode: RuleMode, disturb: Disturb
) -> Iterator[None]:
    """Read each call of some modules while their network runs; a str stands for an output that is no tensor."""
    thread = get_ident()

    def read(module: nn.Module, _arguments: Any, answer: Any) -> Any:
        if get_ident() != thread:  # as `heard_in`, in one call: this is the hook of every map
            return answer
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - our own mode must not see the tap
            if not isinstance(answer, Tensor):
                calls[module].append(type(answer).__name__)
                return answer
            if module in untapped:  # a copy: the network may overwrite its own
                calls[module].append(Reading(Tap(), answer, answer.detach().clone(), Start([])))
                return answer
            mode.below = False
            reading, given = tap_on(answer, disturb)
            calls[module].append(reading)
            return given

    with ExitStack() as hooks:
        for module in calls:
            hooks.callback(module.register_forward_hook(read).remove)
        yield


def heard_in(thread: int, hook: Callable[..., Any], *given: Any) -> Any:
    """Call a hook in that thread only: the same network may run in others at the same time."""
    return hook(*given) if get_ident() == thread else None


def tap_on(answer: Tensor, disturb: Disturb) -> tuple[Reading, Tensor]:
    """Read an activation here. The network continues with a copy, so that it may overwrite it."""
    known = replace(provenance.provenance_of(answer), preactivation=False) if is_activation(answer) else UNKNOWN
    answer = answer if leads_to_tap(answer) else answer.detach()
    tap = Tap()
    tap.plain = known.plain
    probe = torch.empty_like(answer.detach()).requires_grad_()
    given: Tensor = apply(tap, (disturb(answer).clone(),), [answer, probe])
    start = Start([get_gradient_edge(answer)] if answer.requires_grad else [])
    neuron = known.neuron if answer.requires_grad else None
    if neuron is not None:  # a norm that joins the neuron later must pass this tap too
        inputs = (neuron.positive, neuron.negative)
        positive, negative = (apply(tap, (each.detach(),), [each, probe]) for each in inputs)
        start = Start([get_gradient_edge(answer)], [get_gradient_edge(each) for each in inputs], positive)
        rule = rule_of(answer.grad_fn)
        if isinstance(rule, SignRouter):
            start.final = rule, positive
        elif isinstance(rule, Tap) and neuron.starts:  # the same tensor is tapped twice: a module within a module
            before = neuron.starts[-1].final
            start.final = before and (before[0], positive)
        known = replace(known, neuron=Neuron(positive, negative, neuron.polarity, (*neuron.starts, start)))
    return Reading(tap, probe, answer.detach(), start), set_provenance(given, known)


# --- a user's network ----------------------------------------------------------------------------------------------


def plain_modules(module: nn.Module) -> list[nn.Module]:
    """The modules of a network, itself first, without torch.compile's wrapper; TorchScript is refused by name."""
    if not isinstance(module, nn.Module):
        raise ModelError(f"expected a torch.nn.Module, got {type(module).__name__}")
    module = getattr(module, "_orig_mod", module)
    modules = list(module.modules())
    for child in modules:
        if isinstance(child, torch.jit.ScriptModule):
            name = next(name for name, each in module.named_modules() if each is child)
            where = f"its module {name!r} is" if name else "it is"
            raise ModelError(
                f"this network cannot be explained because {where} TorchScript, which hides its operations: "
                "load the same network as plain PyTorch code (TorchScript files keep no such code)"
            )
    return modules


def layer_names(module: nn.Module, layers: Layers) -> list[str]:
    """The names of layers of a network, one or several, also given as the modules themselves (``net.layer3``)."""
    several = isinstance(layers, Iterable) and not isinstance(layers, str | nn.Module)
    given: list[Any] = list(layers) if several else [layers]  # type: ignore[arg-type]
    names: dict[int, str] = {}
    for k, layer in enumerate(given):
        if not isinstance(layer, str):
            names = names or {id(child): name for name, child in plain_modules(module)[0].named_modules() if name}
            if id(layer) not in names:
                raise LayerError(
                    f"this {type(layer).__name__} is no layer of {type(module).__name__}: give one of the modules of "
                    "that very network, such as net.layer3, or its name"
                )
            given[k] = names[id(layer)]
    return given


def find_layer(module: nn.Module, layer: str) -> tuple[nn.Module, int]:
    """A layer's module, and which of its calls is meant (``relu#0`` is the first; plain ``relu`` the last, -1)."""
    name, _, call = layer.partition("#")
    names: list[str] = []
    if name and (not call or call.isdecimal()):
        with suppress(AttributeError):
            return module.get_submodule(name), int(call or -1)
        names = [known for known, _ in module.named_modules(remove_duplicate=False) if known.startswith(f"{name}/")]
        if len(names) == 1:  # Caffe's pool2/3x3_s2 is the paper's pool2
            return module.get_submodule(names[0]), int(call or -1)
    names = [known for known, _ in module.named_modules(remove_duplicate=False) if known]
    close = difflib.get_close_matches(layer, names, n=3)
    hint = f" (closest: {', '.join(close)})" if close else ""
    raise LayerError(f"no layer {layer!r} in this network{hint}; its layers: {_outline(names)}")


def is_edges(layer: str) -> bool:
    """Whether a layer is the edges of a module's attention: ``blocks.3.attn:edges``, or ``blocks.3.attn:edges#0``."""
    return layer.partition("#")[0].endswith(EDGES)


def _outline(names: list[str], most: int = 60) -> str:
    """The layers' names, the upper levels first where there are too many to list."""
    depth = 1
    while depth < 10 and sum(name.count(".") <= depth for name in names) <= most:
        depth += 1
    shown = [name for name in names if name.count(".") < depth]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f", and {more} more inside them (`excite ls layers MODEL` lists all)" if more else "")


def main_output(answer: Any) -> Tensor:
    """The tensor of output units in whatever a network returns."""
    if isinstance(answer, Tensor):
        return answer
    for name in ("logits", "out"):
        value = answer.get(name) if isinstance(answer, dict) else getattr(answer, name, None)
        if isinstance(value, Tensor):
            return value
    if isinstance(answer, (tuple, list)) and answer and isinstance(answer[0], Tensor):
        return answer[0]
    raise ModelError(
        f"the network returned {type(answer).__name__}, in which no output units were found: wrap it in a module "
        "that returns one tensor with a score for each class"
    )


@contextmanager
def as_found(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Restore whatever a forward pass changes in a network's buffers.

    Norms in training mode always write to them, so there the network works on copies. Otherwise writing is undone where
    it happened, and nothing is touched where it did not, so that several threads can explain one network.
    """
    buffers = [  # not by setattr, which may run a user's code
        (child._buffers, name, buffer, buffer.clone(), version_of(buffer))  # noqa: SLF001 - see above
        for child in modules
        for name, buffer in child._buffers.items()  # noqa: SLF001 - see above
        if buffer is not None
    ]
    try:
        if any(child.training for child in modules):
            for held, name, _, copy, _ in buffers:
                held[name] = copy
        yield
    finally:
        for held, name, buffer, copy, version in buffers:
            held[name] = buffer
            if version_of(buffer) != version:
                with torch.no_grad():
                    buffer.copy_(copy)


# NaN and infinity are refused, with the name of the layer that made the first one. The input, the output and the maps
# are each checked by their sum, which costs next to nothing; only where one is not finite the network runs once more.


def all_finite(values: Tensor) -> bool:
    """Whether no value is NaN or infinity: a finite sum is enough."""
    if not values.is_floating_point() or math.isfinite(float(values.detach().sum())):
        return True
    return bool(torch.isfinite(values).all())


def _not_finite(what: str, module: nn.Module, inputs: Inputs) -> NumberError:
    """The error for a result that is not finite: where that began, and what to do."""
    module = plain_modules(module)[0]
    for name, weight in module.named_parameters():
        if not all_finite(weight):
            reason = f"the network's weights hold {_kind(weight)} in {name!r}; load or train them again"
            return NumberError(f"{what} would not be finite: {reason}")
    begun = _begun(module, inputs)
    if begun is None:
        reason = "although all layers are: numbers of the top-down pass leave the range of their type"
        return NumberError(f"{what} would not be finite, {reason}; {_remedy(module)}")
    layer, kind, where = begun
    reason = f"{where} layer {layer!r} ({type(module.get_submodule(layer)).__name__}) numbers first become {kind}"
    return NumberError(f"{what} would not be finite: {reason}; {_remedy(module)}")


def _begun(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[str, str, str] | None:
    """The first layer that gives NaN or infinity, which of them, and whether it arose in or before that layer."""
    begun: list[tuple[str, str, str]] = []

    def look(name: str) -> Any:
        def hook(_child: nn.Module, given: Any, answer: Any) -> None:
            bad = [] if begun else [each for each in provenance.tensors_in(answer) if not all_finite(each)]
            if bad:
                sound = all(map(all_finite, provenance.tensors_in(given)))
                begun.append((name, _kind(bad[0]), "in" if sound else "before"))

        return hook

    with ExitStack() as hooks, torch.no_grad(), as_found(list(module.modules())):
        for name, child in module.named_modules():
            hooks.callback(child.register_forward_hook(partial(heard_in, get_ident(), look(name))).remove)
        module(*arguments)
    return begun[0] if begun else None


def _in_input(values: Tensor) -> NumberError:
    bad = ~torch.isfinite(values)
    pictures = bad.flatten(1).any(1).nonzero()[:, 0].tolist() if values.dim() > 1 else []
    which = f", first in image {pictures[0]} of the batch" if len(values) > 1 and pictures else ""
    return NumberError(
        f"the input of the network holds {_kind(values)} ({int(bad.sum()):,} of {values.numel():,} numbers{which}): "
        "give it finite numbers"
    )


def _kind(values: Tensor) -> str:
    return "infinity" if bool(values.isinf().any()) else "NaN"  # a layer that gives both made NaN of infinities


def _remedy(module: nn.Module) -> str:
    """The remedy for numbers that are too large for their type."""
    types = [weight.dtype for weight in module.parameters() if weight.is_floating_point()]
    wider = {torch.float16: "float()", torch.bfloat16: "float()", torch.float32: "double()"}
    name = wider.get(types[0] if types else torch.float32)
    use = f"use a wider type (module.{name}, and the input likewise), or " if name else ""
    return f"{use}give smaller numbers"
