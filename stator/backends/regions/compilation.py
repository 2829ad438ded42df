"""Compile the unique pieces of a graph, and join them.   a graph  ->  a function over compiled pieces"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import fx
from torch._functorch import config
from torch._subclasses.fake_tensor import FakeTensorMode

from stator import events
from stator.backends.graph_key import Key
from stator.backends.pieces import torch_set_to
from stator.backends.regions.extraction import Piece, module_of
from stator.backends.regions.flow import Flow
from stator.backends.regions.plan import plan_regions
from stator.backends.regions.stitching import stitch
from stator.graph.state.torch_state import GRAD_MODE
from stator.settings.options import Settings

Compile = Callable[[fx.GraphModule, list[Any], bool], Callable[..., Any]]


def compile_regions(gm: fx.GraphModule, inputs: Sequence[Any], settings: Settings, mode: FakeTensorMode,
                    grad_enabled: bool, compile_one: Compile) -> Callable[..., Any]:
    """`compile_one` is called with each unique piece, its fake inputs and the grad mode where it begins."""
    plan = plan_regions(gm, inputs, settings, mode, grad_enabled)
    compiled: dict[Key, Callable[..., Any]] = {}
    uses = Counter([piece.key for piece in plan.pieces])
    sizes = {}
    for piece in plan.pieces:
        if piece.key not in compiled:
            compiled[piece.key] = compile_unique(plan.flow, piece, mode, compile_one)
            sizes[piece.key] = len(piece.nodes)
        piece.function = compiled[piece.key]
    events.emit(events.GraphCut(tuple([(sizes[key], uses[key]) for key in compiled])))
    return stitch(plan.flow, plan.steps)


def compile_unique(flow: Flow, piece: Piece, mode: FakeTensorMode, compile_one: Compile) -> Callable[..., Any]:
    module, values = module_of(flow, piece, mode)
    state = flow.states[piece.start]
    grad = next((value[0] for (setting, _), value in state.items() if setting is GRAD_MODE), flow.grad_enabled)
    with backward_as_around(state), torch_set_to(state):
        return compile_one(module, values, grad)


def backward_as_around(state: dict[Any, Any]) -> AbstractContextManager[Any]:
    """The autocast under which AOTAutograd traces a backward pass: that around the whole graph, as for a whole graph."""
    kinds = {key[0] for setting, key in state if setting.setter is torch._C.set_autocast_enabled}
    if not kinds or config.backward_pass_autocast != "same_as_forward":
        return nullcontext()
    around = [{"device_type": kind, "dtype": torch.get_autocast_dtype(kind)} for kind in ("cpu", "cuda")
              if torch.is_autocast_enabled(kind)]
    return config.patch(backward_pass_autocast=around or "off")  # type: ignore[no-any-return]
