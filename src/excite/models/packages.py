"""torchvision and timm, imported when they are asked for.

torchvision fails to import where its compiled operators were built for another torch than the one installed (a CUDA
build beside a CPU torch, say). Those operators serve detectors; its classifiers are plain Python. So they are declared
in their place, without anything behind them, and it is said: a detector that calls one still fails.
"""

import importlib.util
import sys
import warnings
from functools import cache
from types import ModuleType

import torch

from excite.errors import ModelError, ReplacedOperatorsWarning

__all__ = ["timm_models", "torchvision_models"]

DETECTION_OPERATORS = """
nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor
qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor
roi_align(Tensor input, Tensor rois, float scale, int h, int w, int ratio, bool aligned) -> Tensor
qroi_align(Tensor input, Tensor rois, float scale, int h, int w, int ratio, bool aligned) -> Tensor
roi_pool(Tensor input, Tensor rois, float scale, int h, int w) -> (Tensor, Tensor)
ps_roi_align(Tensor input, Tensor rois, float scale, int h, int w, int ratio) -> (Tensor, Tensor)
ps_roi_pool(Tensor input, Tensor rois, float scale, int h, int w) -> (Tensor, Tensor)
deform_conv2d(Tensor input) -> Tensor
_roi_align_backward(Tensor grad) -> Tensor
_roi_pool_backward(Tensor grad) -> Tensor
_ps_roi_align_backward(Tensor grad) -> Tensor
_ps_roi_pool_backward(Tensor grad) -> Tensor
_deform_conv2d_backward(Tensor grad) -> Tensor
"""


@cache
def torchvision_models() -> ModuleType:
    """The module ``torchvision.models``.

    Raises:
        ModelError: torchvision is not installed, or cannot be imported beside this torch.
    """
    _check_installed("torchvision")
    try:
        import torchvision.models
    except (RuntimeError, ImportError, OSError) as error:
        if "operator torchvision::" not in str(error):
            raise _broken("torchvision", error) from error
        _declare_operators()
        import torchvision.models
    models: ModuleType = torchvision.models
    return models


@cache
def timm_models() -> ModuleType:
    """The package ``timm``, which itself needs torchvision.

    Raises:
        ModelError: timm or torchvision is not installed, or cannot be imported beside this torch.
    """
    _check_installed("timm")
    torchvision_models()
    try:
        import timm
    except (RuntimeError, ImportError, OSError) as error:
        raise _broken("timm", error) from error
    package: ModuleType = timm
    return package


def _check_installed(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ModelError(f"{package} is not installed: pip install 'excite[{package}]'.")


def _broken(package: str, error: Exception) -> ModelError:
    said = next(iter(str(error).splitlines()), type(error).__name__)
    return ModelError(f"{package} cannot be imported: {said}. Install the one made for your torch.")


def _declare_operators() -> None:
    """Let torchvision be imported without its compiled part."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # what the import that failed has left
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for operator in DETECTION_OPERATORS.strip().splitlines():
        library.define(operator)  # type: ignore[no-untyped-call]
    _kept.append(library)
    warnings.warn(
        "torchvision's compiled operators do not fit this torch: its classifiers work without them, its detectors not",
        ReplacedOperatorsWarning,
        stacklevel=3,
    )


_kept: list[torch.library.Library] = []  # a library's operators are gone when it is
