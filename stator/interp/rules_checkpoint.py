"""Rules for torch.utils.checkpoint.   checkpoint(f, x, use_reentrant=False)  ->  f(x), its nodes to be recomputed

The marks are those AOTAutograd's partitioner knows: what they are on is computed again in the backward pass.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.utils.checkpoint
from torch.utils.checkpoint import CheckpointPolicy, noop_context_fn

from stator.breaks import Break
from stator.interp.frame import Continuation, Frame
from stator.interp.rule_registry import rule

_graph_ids = itertools.count(1)
_OPTIONS = frozenset({"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"})


class EndOfRegion(Continuation):
    """The checkpointed function has ended: what follows is marked as before."""

    __slots__ = ("marks", "cont")

    def __init__(self, marks: dict[str, Any], cont: Any) -> None:
        self.marks, self.cont = marks, cont

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        vm.recorder.marks = self.marks
        vm.give(value, self.cont)

    def raised(self, vm: Any, frame: Frame, exc: BaseException) -> bool:
        vm.recorder.marks = self.marks
        return self.cont is not None and self.cont.raised(vm, frame, exc)


@rule(torch.utils.checkpoint.checkpoint)
def _checkpoint(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    options = {name: value for name, value in kwargs.items() if name in _OPTIONS}
    if options.get("use_reentrant") is not False:
        raise Break("SB016", "a reentrant checkpoint, whose function runs without gradients first")
    if options.get("context_fn", noop_context_fn) is not noop_context_fn or options.get("debug"):
        raise Break("SB016", "a checkpoint with contexts of its own")
    if torch.is_inference_mode_enabled() and torch.is_grad_enabled():
        raise Break("SB016", "a checkpoint in inference mode with gradients on, which some versions of torch refuse")
    function, *rest = args
    before = vm.recorder.marks
    # An inner region is part of the outer one, which recomputes it anyway.
    vm.recorder.marks = before or {"recompute": CheckpointPolicy.PREFER_RECOMPUTE, "ac_graph_id": next(_graph_ids)}
    given = {name: value for name, value in kwargs.items() if name not in _OPTIONS}
    vm.call(function, tuple(rest), given, EndOfRegion(before, cont))
