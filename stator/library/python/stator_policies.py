"""Rules for what the program says to Stator itself: where breaks are errors, what is not captured, the stance."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.modules.lazy

from stator.breaks import Break
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.settings import marks, stance


@rule(marks.error_policy)
def _error_policy(vm: VM, args: Any, kwargs: Any) -> Any:
    return vm.policy.error_policy


@rule(marks.set_error_policy)
def _set_error_policy(vm: VM, args: Any, kwargs: Any) -> Any:
    """The trace's own policy changes; the residual leaves the thread's as the trace leaves its own."""
    before, vm.policy.error_policy = vm.policy.error_policy, args[0]
    return before


@rule(marks.skip_frame)
def _skip_frame(vm: VM, args: Any, kwargs: Any) -> Any:
    reason = kwargs.get("reason", args[0] if args else "")
    raise Break("SB023", f"the program called stator.skip_frame({reason!r})" if reason else "")


@rule(marks.DisabledContext.__enter__, marks.DisabledBlock.__enter__)
def _disabled_region(vm: VM, args: Any, kwargs: Any) -> Any:
    """The frame with the region runs natively, and its callers go on captured."""
    raise Break("SB010", "a stator.disable() region", whole_frame=True)


@rule(stance.apply)
def _stance(vm: VM, args: Any, kwargs: Any) -> Any:
    raise Break("SB022", f"the stance becomes {args[0]!r}")


@rule(stance.set_stance.__init__, stance.set_stance.__enter__, stance.set_stance.__exit__)
def _set_stance(vm: VM, args: Any, kwargs: Any) -> Any:
    raise Break("SB022", "stator.set_stance in captured code")


@rule(torch.nn.modules.lazy.LazyModuleMixin._infer_parameters)
def _initialise_lazily(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    """A lazy module gets its parameters, and another class, in its first call; that call runs as it is."""
    if vm.heap.tracker_of(args[0]) is not None:
        raise Break("SB010", "a lazy module is initialised in this call", once=True)
    vm.push(vm.frame_for(torch.nn.modules.lazy.LazyModuleMixin._infer_parameters, args, kwargs), cont)
