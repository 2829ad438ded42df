"""The mechanisms of one trace, in one place."""

from __future__ import annotations

from typing import Any

import torch

from stator.host.mechanism import Mechanism
from stator.interp.services import VM
from stator.interp.state.capture_policy import CapturePolicy, ModeState
from stator.interp.state.class_state import ClassState, FunctionState, IdentityState
from stator.interp.state.effect_state import EffectState, ResidualState, WarningState
from stator.interp.state.library_state import CacheState, ContextState, LockState, RandomState
from stator.interp.state.tensor_state import AutogradState, TensorState
from stator.strategy import Strategy


class Mechanisms:
    """State that opcodes and rules keep for one trace, by mechanism."""

    def __init__(self) -> None:
        self.classes = ClassState()
        self.functions = FunctionState()
        self.identity = IdentityState()
        self.tensors = TensorState()
        self.autograd = AutogradState()
        self.modes = ModeState()
        self.locks = LockState()
        self.caches = CacheState()
        self.random = RandomState()
        self.contexts = ContextState()
        self.warnings = WarningState()
        self.effects = EffectState()
        self.residual = ResidualState()
        self.policy = CapturePolicy()
        self.mechanisms: list[Mechanism] = [*vars(self).values()]  # in the order in which they are written back

    @property
    def turned_off(self) -> set[Strategy]:
        return self.policy.turned_off


def fingerprints(vm: VM, of_graph: bool = True) -> list[Any]:
    """State of all mechanisms, to be compared with a later one; not `of_graph`: without notes that the graph holds."""
    with torch._C.DisableTorchFunction():
        return [each.fingerprint() for each in vm.mechanisms if of_graph or not each.feeds_graph]


def has_changes(vm: VM) -> bool:
    """Whether the trace has changed namespaces, classes, settings or the bookkeeping of outside tensors."""
    return any(each.has_changes() for each in vm.mechanisms)


def undo(vm: VM) -> None:
    for each in vm.mechanisms:
        each.undo()


def clear(vm: VM) -> None:
    for each in vm.mechanisms:
        each.clear()
