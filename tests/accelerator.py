"""An accelerator for machines without one: tensors on another device, with real values.

A tensor on it is a subclass of Tensor that says it lies on ``DEVICE``. Operations run on the CPU; one that mixes both
devices fails, as on a GPU, and so do ``.numpy()`` and (``double=False``, as Apple's) double precision. Whatever makes
the CPU wait for the device is counted in ``waits``.
"""

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("lazy")  # torch knows the name, autograd runs it in the main thread, and no CPU build has it
WAITING = {"aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::is_nonzero", "aten::unique"}
ACROSS = {"aten::copy_", "aten::_to_copy"}


class Accelerated(Tensor):
    """A tensor on the accelerator; its values are those of ``held``, a tensor on the CPU that shares its memory."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        made = Tensor._make_subclass(cls, held, False, dispatch_device=True)
        made.held = held
        return made

    def __repr__(self):
        return f"Accelerated({self.held})"

    def __reduce_ex__(self, protocol):
        raise RuntimeError("this accelerator's memory cannot be pickled")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.prim.device.default:
            return DEVICE
        raise RuntimeError(f"{func}: the accelerator is used where it is not there")


class Accelerator(TorchDispatchMode):
    """While active, ``DEVICE`` can be used; ``.to(DEVICE)`` of a module gives it new parameters there."""

    def __init__(self, *, double=True):
        super().__init__()
        self.double, self.waits = double, []

    def __enter__(self):
        self._before = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        return super().__enter__()

    def __exit__(self, *error):
        torch.__future__.set_overwrite_module_params_on_conversion(self._before)
        super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.prim.device.default:
            return DEVICE if isinstance(args[0], Accelerated) else torch.device("cpu")
        kwargs = dict(kwargs or {})
        name = func.overloadpacket._qualified_op_name
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        here = [tensor for tensor in tensors if isinstance(tensor, Accelerated)]
        if here and name not in ACROSS and any(each.dim() for each in tensors if not isinstance(each, Accelerated)):
            raise RuntimeError(
                f"{name}: expected all tensors to be on the same device, but found two: {DEVICE} and cpu"
            )
        asked = kwargs.get("device")
        there = bool(here) if asked is None else torch.device(asked).type == DEVICE.type
        if asked is not None:
            kwargs["device"] = torch.device("cpu")
        if here and (name in WAITING or (name in ACROSS and not (there and isinstance(args[0], Accelerated)))):
            self.waits.append(name)
        given, named = tree_map_only(Accelerated, lambda each: each.held, (args, kwargs))
        result = func(*given, **named)
        if name == "aten::copy_":
            return args[0]
        known = {id(each.held): each for each in here}

        def placed(tensor):
            if not there:
                return tensor
            if not self.double and tensor.dtype == torch.float64:
                raise TypeError("this accelerator has no double precision")
            return known.get(id(tensor)) if id(tensor) in known else Accelerated(tensor)

        return tree_map_only(Tensor, placed, result)
