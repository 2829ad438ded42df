"""Compile the unique pieces of a graph, and join them.   a graph  ->  a function over compiled pieces"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from torch import fx
from torch._functorch import config
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

from stator import events
from stator.backends.autograd_passes import Direct, unrecorded
from stator.backends.cuda_graphs import records_cuda_graphs
from stator.backends.graph_key import Key
from stator.backends.inner_calls import passes_kept
from stator.backends.pieces import torch_set_to
from stator.backends.regions.cuda_graphs import recorder_of
from stator.backends.regions.direct_calls import direct_passes, join_directly
from stator.backends.regions.extraction import Piece, module_of
from stator.backends.regions.flow import Flow, Whole
from stator.backends.regions.plan import ONE_PIECE, plan_regions
from stator.backends.regions.stitching import stitch
from stator.graph.state.torch_state import GRAD_MODE
from stator.settings.options import Settings

Finish = Callable[[Callable[..., Any]], Callable[..., Any]]
Compile = Callable[[fx.GraphModule, list[Any], bool], Callable[..., Any]]


def compile_regions(gm: fx.GraphModule, inputs: Sequence[Any], settings: Settings, mode: FakeTensorMode,
                    grad_enabled: bool, compile_one: Compile, finish: Callable[[], Finish]) -> Callable[..., Any]:
    """`compile_one` is called with each unique piece, its fake inputs and the grad mode where it begins.

    `finish()` gives what is to be made of a function that is one node of autograd.
    """
    plan = plan_regions(gm, inputs, settings, mode, grad_enabled)
    record = recorder_of(plan.flow) if records_cuda_graphs(settings) else unrecorded
    compiled: dict[Key, tuple[Any, Any]] = {}
    uses = Counter([piece.key for piece in plan.pieces])
    seconds: dict[Key, float] = {}
    for piece in plan.pieces:
        if piece.key not in compiled:
            started = perf_counter()
            events.emit_progress(events.PiecesCompiled(len(compiled), len(plan.unique), sum(seconds.values())))
            compiled[piece.key] = compile_unique(plan.flow, piece, mode, compile_one)
            seconds[piece.key] = perf_counter() - started
        piece.function, piece.direct = compiled[piece.key]
    events.emit_progress(events.PiecesCompiled(len(compiled), len(compiled), sum(seconds.values())))
    if len(plan.pieces) == 1 and ONE_PIECE in gm.meta:
        events.emit(events.GraphKeptWhole(len(gm.graph.nodes), "its layers repeat too seldom in a training step"))
    else:
        events.emit(events.GraphCut(tuple([(len(plan.unique[key].nodes), uses[key]) for key in compiled]),
                                    tuple(seconds.values()), tuple([plan.unique[key].name for key in compiled]),
                                    plan.refused))
    joined = join_directly(plan.flow, plan.steps, record)
    if joined is None and record is not unrecorded:
        raise Whole("a CUDA graph cannot hold its pieces")
    return stitch(plan.flow, plan.steps) if joined is None else finish()(joined)


def compile_unique(flow: Flow, piece: Piece, mode: FakeTensorMode, compile_one: Compile) -> tuple[Any, Direct | None]:
    module, values = module_of(flow, piece, mode)
    state = flow.states[piece.start]
    grad = next((value[0] for (setting, _), value in state.items() if setting is GRAD_MODE), flow.grad_enabled)
    with torch_set_to(state), passes_kept() as passes, \
            tracing(TracingContext(mode)) as context, config.patch(force_non_lazy_backward_lowering=True):
        function = compile_one(module, values, grad)
    made = [flow.value(node) for node in piece.outputs]
    return function, direct_passes(passes, context.fw_metadata, len(values), made)
