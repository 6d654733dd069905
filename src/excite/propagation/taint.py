"""What leaves the graph is noticed: tensors made from activations by ways that lose their history.

Every tensor is an activation (below all taps, or live: with a way down to one), constant (made from parameters, buffers
and literals only), severed (made from a live one by integers, a buffer, ``torch.tensor``: it may select or divide, and
is refused where it meets a live one or reaches the output), or, where no seen call has made it, of unknown origin.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from excite.errors import ExciteError, NoRuleError
from excite.propagation import provenance
from excite.propagation.fast import is_concrete
from excite.propagation.graph import has_memory, hide, memory_of, refusal, trust
from excite.propagation.operations import OPERATIONS
from excite.propagation.provenance import UNKNOWN, is_above_tap, is_activation, leads_to_tap, set_provenance, tensors_in
from excite.propagation.rewrites import complex_magnitude
from excite.propagation.rules import Refused, version_of
from excite.propagation.unknown import Unknown, known_constant
from excite.propagation.writes import after_write_to_view, update_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.propagation.mode import Call

_ORIGIN = "_excite_origin"


@dataclass(frozen=True)
class Severed:
    """The origin of a tensor that was made from activations above a tap, but has no way down to them."""

    operation: str  # the call that lost the history, and
    module: str = ""  # the module in whose code that was; "" where it is not known
    choice: bool = False  # it was made by a comparison or an argmax, and can only select
    source: Any = field(default=None, compare=False, repr=False)  # the node of what was compared

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, ()  # see `_Mark`


def origin_of(tensor: Tensor) -> Severed | None:
    """Of a tensor that is no activation: from where it was severed; None: it is constant, or its origin is unknown."""
    origin = getattr(tensor, _ORIGIN, None)
    return origin if isinstance(origin, Severed) else None


def _set_severed(tensor: Tensor, severed: Severed) -> None:
    provenance.unset_provenance(tensor)
    setattr(tensor, _ORIGIN, severed)


def _state_of(tensor: Tensor) -> tuple[int, int]:
    """A tensor is constant as long as its address and torch's counter of in-place changes stay as they were marked."""
    return tensor.data_ptr() if is_concrete() and has_memory(tensor) else 0, version_of(tensor)


class Taint:
    """What is known of all tensors of one forward pass that are no activations."""

    def __init__(self, modules: Sequence[nn.Module], activations: frozenset[int] = frozenset()) -> None:
        # ``activations``: which of the tensors of unknown origin are activations below all taps.
        self.module, self._modules, self._activations, self._number = modules[0], modules, activations, 0
        self.unknown: list[Unknown] = []  # tensors of unknown origin, where they met live ones
        self.left = ""  # the call with which values have left torch, as numbers or arrays
        self.transformed = False  # torch.func or torch.vmap has run a part of the network
        self._state: dict[int, int] = {}  # versions of the network's own parameters and buffers, by id
        self._marked: list[Tensor] = []  # tensors that may outlive the pass
        # Memory that activations were written to, while it lasts, and what it is seen through tensors without history.
        self._written: dict[int, tuple[StorageWeakRef, Severed | None]] = {}
        self._exposed: set[int] = set()  # memory of constants that can be written to without torch's counting it
        self._written_to = False  # activations were written to: their views may not know of it

    def in_state(self, tensor: Any) -> bool:
        """Whether it is one of the network's own parameters and buffers."""
        return id(tensor) in self._state

    def origins(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The severed tensors, and those of unknown origin; what else holds activations is marked as such."""
        severed: list[Tensor] = []
        unknown: list[Tensor] = []
        for tensor in tensors:
            if not is_activation(tensor) or provenance.is_copied(tensor):
                if not self._is_constant(tensor):
                    self._look_up(tensor, severed, unknown)
            elif self._written_to and tensor._is_view():  # noqa: SLF001 - it has no public name
                update_view(tensor)
        return severed, unknown

    def _is_constant(self, tensor: Tensor) -> bool:
        if self._exposed and memory_of(tensor) in self._exposed:
            return False
        state = getattr(tensor, _ORIGIN, None)
        return self._state.get(id(tensor)) == version_of(tensor) or (state is not None and state == _state_of(tensor))

    def _look_up(self, tensor: Tensor, severed: list[Tensor], unknown: list[Tensor]) -> None:
        """Find the origin of a tensor by its mark, its history and its memory."""
        history = tensor.grad_fn  # read first: torch then updates that of a view
        written, origin = self._written.get(memory_of(tensor), (None, None))
        holds = written is not None and not written.expired()  # type: ignore[no-untyped-call]  # torch has no type for it
        if origin_of(tensor) is not None:
            severed.append(tensor)
        elif history is not None and leads_to_tap(tensor):
            if not holds:
                hide(history, unless_plain=self.transformed)
            set_provenance(tensor, UNKNOWN)
        elif holds and origin is not None:
            self.mark_severed(tensor, origin)
            severed.append(tensor)
        elif holds:
            set_provenance(tensor, UNKNOWN)
        else:
            unknown.append(tensor)

    def mark_severed(self, tensor: Tensor, severed: Severed) -> None:
        """Mark a tensor that may be the network's own: the mark is removed after the pass."""
        _set_severed(tensor, severed)
        self._marked.append(tensor)

    def mark_constant(self, tensor: Tensor) -> None:
        """Mark a result that was made from constants only."""
        if self.in_state(tensor):
            self._state[id(tensor)] = version_of(tensor)
        else:
            setattr(tensor, _ORIGIN, _state_of(tensor))

    def wrote(self, subject: Tensor, known: provenance.Provenance | Severed) -> Tensor:
        """Record what is now held in the memory of ``subject``, through whichever tensor it is seen."""
        memory = memory_of(subject)
        unseen = known if isinstance(known, Severed) else Severed("data") if leads_to_tap(subject) else None
        self._written[memory] = StorageWeakRef(subject.untyped_storage()), unseen  # type: ignore[no-untyped-call]  # as above
        trust(subject)
        if isinstance(known, Severed):
            self.mark_severed(subject, known)
            return subject
        set_provenance(subject, known)
        self._written_to |= known.baseline is not None or known.neuron is not None
        if subject._is_view():  # noqa: SLF001 - it has no public name
            self._written_to |= after_write_to_view(subject)
        return subject

    def constant_call(self, call: Call, result: Any, severed: Sequence[Tensor], unknown: Sequence[Tensor]) -> None:
        """Mark the results of a call on no activation: their origin is that of its arguments."""
        made, written = tensors_in(result), tensors_in(call.subject) if call.writes else []
        made += written
        if severed:
            if call.name in _LEAVING and any(_holds_values(each) or not _is_chosen(each) for each in severed):
                self.left = call.name
            sever(made, call, severed)
            for tensor in written:
                self.wrote(tensor, origin_of(tensor) or Severed(call.name))
        elif not unknown and not (self.left and _from_numbers(call)):
            for tensor in made:
                self.mark_constant(tensor)
        if call.name in _EXPOSING:
            self._exposed.update(map(memory_of, call.tensors))

    def value_call(self, call: Call, result: Any) -> None:
        """Mark the result of a call that makes numbers, or constants like its subject, from an activation."""
        given = call.options
        if call.name in _LEAVING:
            self.left = call.name
        for tensor in tensors_in(result):
            if call.name == "__deepcopy__" or any(is_activation(each) or origin_of(each) for each in tensors_in(given)):
                sever([tensor], call)
            elif not (self.left and _from_numbers(call)):
                self.mark_constant(tensor)

    def note(self, call: Call, unknown: Sequence[Tensor]) -> None:
        """Keep the values of tensors of unknown origin, and of numbers if any left torch, that meet an activation."""
        noted: list[Any] = [tensor for tensor in unknown if not only_selects(call, tensor)]
        noted += _numbers(call) if self.left and call.name not in {"mul", "div"} else []
        for each in noted if is_concrete() else ():
            if isinstance(each, Tensor) and not (has_memory(each) and not each.is_nested):
                continue  # refused, where it meets a live one
            self._number += 1
            values = torch.as_tensor(each).detach()
            if self._number in self._activations:
                self._activate(call, each)
            elif not known_constant(self.module, values):
                module = call.mode.module_name()
                self.unknown.append(Unknown(self._number, call.name, module, call.above_tap, values.clone()))

    def check_sure(self, call: Call) -> None:
        """Refuse a call of a live tensor with one from below all taps, where hidden code had a part in that."""
        if self._activations and call.above_tap:
            for tensor in call.tensors:
                if is_activation(tensor) and not is_above_tap(tensor) and not only_selects(call, tensor):
                    reason = "it gets a tensor from below the layer that hidden code had a part in"
                    raise NoRuleError(refusal(call.name, call.mode.module_name(), reason))

    def _activate(self, call: Call, each: Any) -> None:
        """Let a tensor or number of a call be an activation below all taps."""
        if isinstance(each, Tensor):
            set_provenance(each, UNKNOWN)
        elif call.name in {"add", "sub"}:
            number = set_provenance(call.subject.new_tensor(each), UNKNOWN)
            call.args = tuple(number if argument is each else argument for argument in call.args)

    def __enter__(self) -> None:
        """Begin a forward pass."""
        for child in self._modules:
            for tensor in (*child._parameters.values(), *child._buffers.values()):  # noqa: SLF001 - asking torch is slow
                if tensor is not None:
                    self._state[id(tensor)] = version_of(tensor)

    def __exit__(self, *_error: object) -> None:
        """Remove the marks from tensors that may outlive it."""
        for tensor in self._marked:
            vars(tensor).pop(_ORIGIN, None)


# --- severed tensors -------------------------------------------------------------------------------------------------

_EXPOSING = frozenset("data numpy __array__ __dlpack__ data_ptr untyped_storage storage".split())
_LEAVING = _EXPOSING - {"data"} | frozenset("item tolist __float__ __int__ __complex__".split())
_FROM_NUMBERS = frozenset("tensor as_tensor asarray full scalar_tensor new_tensor new_full full_like".split())
_ARITHMETIC = _FROM_NUMBERS | frozenset("add sub rsub mul div pow fill fill_ __setitem__".split())


def _from_numbers(call: Call) -> bool:
    """Whether a call may make a tensor from numbers or arrays."""
    return call.name in _FROM_NUMBERS or bool(_numbers(call))


def _numbers(call: Call) -> list[float]:
    """The numbers among the arguments of a call that may be values; integers are mostly sizes."""
    given = tree_leaves((call.args, call.kwargs))
    kinds = (float, int) if call.name in _ARITHMETIC else (float,)
    return [each for each in given if isinstance(each, kinds) and not isinstance(each, bool)]


# Which arguments of an operation only select among the values of the others.
_SELECTING: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(["where", "embedding"], (0,)),
    **dict.fromkeys("getitem __setitem__ take take_along_dim index_put masked_fill masked_select".split(), (1,)),
    **dict.fromkeys("masked_scatter repeat_interleave max_unpool1d max_unpool2d max_unpool3d".split(), (1,)),
    **dict.fromkeys("gather index_select index_fill index_copy scatter".split(), (2,)),
    "scaled_dot_product_attention": (3,),
}
_BY_NAME = frozenset("index indices mask attn_mask condition repeats".split())
# Where the factors of a product stand, and the divisor.
_FACTORS: dict[str, tuple[int | str, ...]] = {
    **dict.fromkeys("mul matmul mm bmm mv".split(), (0, 1, "other", "mat2")),
    **dict.fromkeys("linear conv1d conv2d conv3d".split(), (1, "weight")),
    "einsum": (1, 2),
    "div": (1, "other"),
}
_NORMS = {"batch_norm": torch.batch_norm, "instance_norm": torch.instance_norm}
# Operations whose integers are positions: to choose with, not values.
_CHOOSING = frozenset(
    """argmax argmin argsort sort topk max min median nanmedian mode kthvalue nonzero where count_nonzero multinomial
    max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d_with_indices
    adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices""".split()
)


def is_choice(call: Call, result: Tensor) -> bool:
    """Whether a result without history was chosen: by a comparison, or as a position."""
    return result.dtype is torch.bool or (not _holds_values(result) and call.name in _CHOOSING)


def _is_chosen(tensor: Tensor) -> bool:
    origin = origin_of(tensor)
    return origin is not None and origin.choice


def _holds_values(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def sever(tensors: Sequence[Tensor], call: Call, severed: Sequence[Tensor] = ()) -> None:
    """Mark what a call has made as severed: here, or where its arguments ``severed`` were."""
    before = [origin for origin in map(origin_of, severed) if origin is not None]
    values = [origin for origin in before if not origin.choice]
    for tensor in tensors:
        if before and not (values and is_choice(call, tensor)):
            _set_severed(tensor, (values or before)[0])
        elif is_choice(call, tensor):
            source = next((each.grad_fn for each in call.tensors if is_above_tap(each)), None)
            _set_severed(tensor, Severed(call.name, choice=True, source=source))
        else:
            _set_severed(tensor, Severed(call.name, call.mode.module_name()))


def only_selects(call: Call, tensor: Tensor) -> bool:
    """Whether a tensor has no part in the values that a call with activations gives: it selects, scales or is lost."""
    name, position = call.name, _position(call, tensor)
    if call.writes and position == 0:
        return name in {"copy_", "fill_", "zero_"} or (name == "__setitem__" and _is_whole(call.args[1]))
    if name in _NORMS and call.argument(5, "training", "use_input_stats", default=False):
        return position in ({3, 4} if call.function in _NORMS.values() else {1, 2, "running_mean", "running_var"})
    if name in _FACTORS:
        return position in _FACTORS[name] and (name == "div" or _only_scales(call, tensor))
    selecting = (1,) if call.function is Tensor.where else _SELECTING.get(name, ())
    return not _holds_values(tensor) and (position in selecting or (name in _SELECTING and position in _BY_NAME))


def _only_scales(call: Call, factor: Tensor) -> bool:
    """Whether a factor selects (a mask) or scales (one for many units) activations; not so where these may gate it."""
    origin, others = origin_of(factor), [each for each in call.tensors if is_activation(each)]
    for each in others:
        if provenance.provenance_of(each).gate and (origin is None or origin.source is not each.grad_fn):
            return False
    wide = call.name == "mul" and all(factor.numel() < each.numel() for each in others)
    return wide or _is_chosen(factor)


def _is_whole(index: Any) -> bool:
    """Whether an index selects everything: ``[:]``, ``[...]``."""
    parts = index if isinstance(index, tuple) else (index,)
    return not tensors_in(parts) and all(part in (slice(None), Ellipsis) for part in parts)


def _position(call: Call, tensor: Tensor) -> int | str | None:
    """Where in a call a tensor stands: its position or its name."""
    arguments: list[tuple[Any, Any]] = [*enumerate(call.args), *call.kwargs.items()]
    for place, argument in arguments:
        if any(each is tensor for each in tensors_in(argument)):
            return cast("int | str", place)
    return None


def refuse(call: Call, severed: Tensor) -> Any:
    """The answer of a call in which a severed tensor meets a live one."""
    message = lost(origin_of(severed) or Severed(call.name), call)
    result = None if call.name == "__setitem__" else call.response()
    if not isinstance(result, Tensor):
        raise NoRuleError(message)
    if not _holds_values(result):  # a comparison: a choice, whatever it was made of
        sever([result], call, [severed])
        return result
    return call.emit(Refused(message), result, list(filter(is_above_tap, call.tensors)))


def lost(severed: Severed, call: Call | None = None) -> str:
    """The one line for a severed tensor that meets a live one in a call; None: that reaches the output."""
    use = "it reaches the output" if call is None else f"{call.name!r} combines it with others"
    made = "chosen by comparing activations" if severed.choice else "made from activations"
    where = severed.module or ("" if call is None else call.mode.module_name())
    return refusal(severed.operation, where, f"its result, {made}, has no way down to them, and {use}")


# --- calls that rules do not serve -----------------------------------------------------------------------------------


def is_ordinary(call: Call) -> bool:
    """Whether a call is on plain tensors of real numbers, as all rules expect."""
    for tensor in call.tensors:
        if tensor.is_complex() or tensor.is_nested or not has_memory(tensor):
            return False
    several = call.in_place and not isinstance(call.subject, Tensor)
    return not several and not any(isinstance(argument, complex) for argument in call.args)


def run_unusual(call: Call) -> Any:
    """Complex numbers may be copied, and have an absolute value; everything else is refused."""
    subject: Any = call.subject
    reason = ""
    if call.in_place and not isinstance(subject, Tensor):
        reason = "it overwrites several tensors at once"
    elif not all(map(has_memory, call.tensors)) or any(tensor.is_nested for tensor in call.tensors):
        reason = "on a tensor that is sparse, nested, mkldnn, or inside torch.func"
    if reason:  # the result could not even carry a refusal down
        raise NoRuleError(refusal(call.name, call.mode.module_name(), reason))
    if call.mode.operations is not OPERATIONS or call.operation.handler is None or call.operation.gradient == "same":
        return call.mode.run_ruled(call)
    return complex_magnitude(call) if call.name == "abs" else call.refuse("complex numbers")


def blame(call: Call, error: Exception) -> None:
    """Say that a call has no rule, with what torch said, if it failed although the network itself can make it."""
    if isinstance(error, ExciteError):
        return
    try:
        with torch.no_grad():
            call.changed(lambda tensor: tensor.detach().clone())
    except Exception:  # noqa: BLE001 - the network's own error, which is on its way to the user
        return
    raise NoRuleError(refusal(call.name, call.mode.module_name(), f"{type(error).__name__}: {error}")) from error
