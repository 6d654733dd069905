"""torchvision's model definitions beside a CPU torch: its wheel is a CUDA build, so the operators it would load are
declared here (never run) before it is imported. For tests only; see FIELD.md."""

import importlib.util
from functools import cache

import torch

_OPERATORS = """
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
def torchvision_models():
    """The module torchvision.models."""
    if importlib.util.find_spec("torchvision") is None:
        raise ImportError("torchvision is not installed: pip install torchvision")
    try:
        torch.ops.torchvision.nms  # noqa: B018 - asks whether torchvision's own operators are there
    except AttributeError:
        torchvision_models.library = torch.library.Library("torchvision", "DEF")
        for operator in _OPERATORS.strip().splitlines():
            torchvision_models.library.define(operator)
    import torchvision.models

    return torchvision.models
