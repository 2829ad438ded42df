"""Rules for hooks on saved tensors.   disable_saved_tensors_hooks("why")  ->  a setting; pushing hooks  ->  a break

Hooks run while a graph does, on tensors that only it knows, and may do anything: a region of the program under them is
a graph of its own, which begins after they are pushed.  Forbidding them is a setting that no operation looks at.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from stator.breaks import Break
from stator.graph.modes_aside import saved_hooks_around
from stator.graph.torch_state import SAVED_HOOKS
from stator.guards.guard import Kind
from stator.interp.rule_registry import rule
from stator.source import CallOf, Pinned

A: Any = torch._C._autograd


@rule(saved_tensors_hooks.__enter__, saved_tensors_hooks.__exit__)
def _hooks(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    raise Break("SB016", "hooks on saved tensors")


def why_disabled(vm: Any) -> str | None:
    """What whoever has forbidden the hooks says; a fact, unless the program has done it itself."""
    message: str | None = A._saved_tensors_hooks_get_disabled_error_message()
    if not vm.torch_state.is_changed(SAVED_HOOKS):
        vm.heap.guard(CallOf(Pinned(A._saved_tensors_hooks_get_disabled_error_message)), Kind.FRESH_CALL, message)
    return message


@rule(A._saved_tensors_hooks_get_disabled_error_message)
def _message(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(why_disabled(vm), cont)


@rule(A._saved_tensors_hooks_disable)
def _disable(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if kwargs or len(args) != 1 or type(args[0]) is not str:
        raise Break("SB016", "hooks on saved tensors, forbidden in another way than torch's own")
    vm.heap.guard(CallOf(Pinned(saved_hooks_around)), Kind.FRESH_CALL, saved_hooks_around())
    if saved_hooks_around():
        raise Break("SB016", "hooks on saved tensors are forbidden where there are some")
    vm.torch_state.change(SAVED_HOOKS, (False, args[0]), {})
    vm.give(None, cont)


@rule(A._saved_tensors_hooks_enable)
def _enable(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.torch_state.change(SAVED_HOOKS, (True, None), {})
    vm.give(None, cont)
