"""Branches before a backward pass.   if not isfinite(h).all(): ...; loss.backward()  ->  whether to capture the branch

A break between the losses and their backward pass takes the pass out of the graph.  So where a frame on the stack has
a call of backward() ahead, branches on data are captured: by the random numbers that decide them, or both ways.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.code.instruction import CodeUnit
from stator.interp.frame import Frame
from stator.interp.services import VM
from stator.settings.process_config import config
from stator.shapes.environment import UNKNOWN
from stator.shapes.symbolic_values import is_unbacked

_LOADS = frozenset({"LOAD_METHOD", "LOAD_ATTR", "LOAD_GLOBAL"})


def captures_branch(vm: VM, value: object) -> bool:
    """Whether both ways of a branch on `value` are to be captured."""
    if isinstance(value, FakeTensor):
        if id(value) in vm.recorder.classes or type(value.numel()) is not int or value.numel() != 1:
            return False  # the class of a tensor may have an answer of its own
    elif not is_unbacked(value):
        return False
    wanted: bool | None = vm.policy.capture_control_flow
    if wanted is not None or vm.recorder.known.ahead:
        return bool(wanted)
    if vm.policy.breaks_are_errors and not vm.modes.active:
        return type(value) is not FakeTensor or vm.recorder.items.truth_of(value) is None \
            and vm.recorder.known.of_scalar(value) is UNKNOWN
    if type(value) is not FakeTensor or vm.modes.active or not backward_is_ahead(vm) \
            or vm.recorder.items.truth_of(value) is not None:
        return False
    return vm.recorder.known.of_scalar(value) is UNKNOWN and truth_ahead(vm, value) is UNKNOWN


def truth_ahead(vm: VM, value: object) -> Any:
    """The truth of a tensor that follows from random numbers, under a guard that draws them ahead."""
    ahead = vm.recorder.known.ahead
    if type(value) is not FakeTensor or not ahead and (vm.policy.capture_control_flow is not None
                                                       or not backward_is_ahead(vm)):
        return UNKNOWN
    return vm.random.ahead.truth_of(vm.recorder, vm.recorder.node_of(value))


def backward_is_ahead(vm: VM) -> bool:
    frame: Frame | None = vm.frame
    if not config.capture_backward or not torch.is_grad_enabled():
        return False
    while frame is not None:
        if frame.unit.analysis("backward", _last_backward) > frame.ip:
            return True
        frame = frame.caller()
    return False


def _last_backward(unit: CodeUnit) -> int:
    """The place of the last instruction that reads a function named `backward`; -1: there is none."""
    places = [index for index, instruction in enumerate(unit.instructions)
              if instruction.opname in _LOADS and instruction.argval == "backward"]
    return max(places, default=-1)
