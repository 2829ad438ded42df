"""Rules for what the program says to Stator itself: where breaks are errors, what is not captured, the stance."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.modules.lazy

from stator.breaks import Break
from stator.interp.rule_registry import INTERPRETED, refuse, rule
from stator.interp.vm import VM
from stator.settings import marks, stance


@rule(marks.error_policy)
def _error_policy(vm: VM) -> Any:
    return vm.policy.error_policy


@rule(marks.set_error_policy)
def _set_error_policy(vm: VM, value: Any) -> Any:
    """The trace's own policy changes; the residual leaves the thread's as the trace leaves its own."""
    before, vm.policy.error_policy = vm.policy.error_policy, value
    return before


@rule(marks.skip_frame)
def _skip_frame(vm: VM, reason: Any = "") -> None:
    raise Break("SB023", f"the program called stator.skip_frame({reason!r})" if reason else "")


@rule(stance.apply)
def _stance(vm: VM, stance: Any, backend: Any = None) -> None:
    raise Break("SB022", f"the stance becomes {stance!r}")


refuse(stance.set_stance.__init__, stance.set_stance.__enter__, stance.set_stance.__exit__, code="SB022",
       detail="stator.set_stance in captured code")
# The frame with the region runs natively, and its callers go on captured.
refuse(marks.DisabledContext.__enter__, marks.DisabledBlock.__enter__, code="SB010", detail="a stator.disable() region",
       whole_frame=True)


@rule(torch.nn.modules.lazy.LazyModuleMixin._infer_parameters)
def _initialise_lazily(vm: VM, self: Any, *args: Any, **kwargs: Any) -> Any:
    """A lazy module gets its parameters, and another class, in its first call; that call runs as it is."""
    if vm.heap.tracker_of(self) is not None:
        raise Break("SB010", "a lazy module is initialised in this call", once=True)
    return INTERPRETED
