"""Record one CUDA graph over all pieces.   a function over compiled pieces  ->  the function, recorded and replayed

In: a graph whose pieces are compiled without CUDA graphs of their own.  Out: for each of its passes, torch's tree of
CUDA graphs around the function that calls the pieces.  What one piece hands to the next lies in the memory of one
recording, so that no replay overwrites it; a call is one step of the tree, as it is for a whole graph.
"""

from __future__ import annotations

import importlib
from typing import Any

from stator.backends.autograd_passes import Record, unrecorded
from stator.backends.cuda_graphs import is_member_of_module
from stator.backends.inner_calls import Boxed
from stator.backends.regions.flow import Flow, Whole
from stator.graph.analysis.mutation import tensors_in
from stator.shapes.symbolic_values import SYMBOLIC
from stator.shapes.tensor_marks import ADDRESS_MARK


def recorder_of(flow: Flow) -> Record:
    """Record functions over this graph, or leave them as they are where it uses no GPU; else raise `Whole`."""
    values = [flow.value(node) for node in [*flow.inputs, *flow.body]]
    devices = {tensor.device for value in values for tensor in tensors_in(value)}
    if not any(device.type == "cuda" for device in devices):
        return unrecorded
    if len(devices) > 1 or flow.hoisted or any(type(value) in SYMBOLIC for value in values):
        raise Whole("a CUDA graph over pieces takes one device and constant sizes")
    [device] = devices
    compile_fx: Any = importlib.import_module("torch._inductor.compile_fx")
    utils = importlib.import_module("torch._inductor.cudagraph_utils")
    described = utils.get_placeholder_info(flow.gm.graph)
    stay = [number for number, node in enumerate(flow.inputs) if ADDRESS_MARK in node.meta.get("tensor_dict", ())
            or node.meta.get("source") is not None and is_member_of_module(node.meta["source"])]

    def record(kind: str, run: Boxed, saved: int) -> Boxed:
        backward = kind == "backward"
        names = [utils.PlaceholderInfo(f"saved_{number}", None, [], None) for number in range(saved + len(flow.inputs))]
        lines: list[None] = []  # a line of the program for each output: torch's tree counts them

        def run_counted(args: list[Any]) -> object:
            out: list[object] = run(args)
            lines[:] = [None] * len(out)
            return out

        return compile_fx.cudagraphify(  # type: ignore[no-any-return]
            run_counted, range(saved) if backward else stay, device_index=device.index or 0, stack_traces=lines,
            is_backward=backward, is_inference=kind == "inference",
            placeholders=tuple(names if backward else described))

    return record
