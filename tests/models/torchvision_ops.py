"""Let libraries import torchvision where its C++ operators are missing.

timm and the vision models of transformers import torchvision, which registers fake kernels for its operators as it
is imported. A torchvision that was built for another torch does not have the operators, and the import fails. Their
names are enough for it: this declares each that is missing, with no kernel behind it, so that calling one still fails.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

import torch

# Only the number and kinds of arguments matter to the fake kernels, which are never called here.
_BOXES = "Tensor boxes, Tensor scores, float iou_threshold"
_POOL = "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_POOL_SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_DEFORM = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, "
    "SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask"
)
_BACK = _POOL.replace("Tensor input", "Tensor grad")
SCHEMAS = {
    "nms": f"({_BOXES}) -> Tensor",
    "qnms": f"({_BOXES}) -> Tensor",
    "roi_align": f"({_POOL}, int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward": f"({_BACK}, {_POOL_SIZES}, int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool": f"({_POOL}) -> (Tensor, Tensor)",
    "_roi_pool_backward": f"({_BACK.replace('Tensor rois', 'Tensor rois, Tensor argmax')}) -> Tensor",
    "ps_roi_align": f"({_POOL}, int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward": f"({_BACK}, Tensor mapping, int sampling_ratio, {_POOL_SIZES}) -> Tensor",
    "ps_roi_pool": f"({_POOL}) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward": f"({_BACK}, Tensor mapping, {_POOL_SIZES}) -> Tensor",
    "deform_conv2d": f"({_DEFORM}) -> Tensor",
    "_deform_conv2d_backward": f"(Tensor grad, {_DEFORM}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
}
_library: torch.library.Library | None = None


def declare_missing() -> None:
    """Declare the operators; nothing is done where torchvision is complete, or absent."""
    global _library
    if _library is not None or importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except (RuntimeError, ImportError, AttributeError):
        for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
    else:
        return
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            _library.define(name + schema)
