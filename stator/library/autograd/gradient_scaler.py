"""Rules for torch.amp.GradScaler.   scaler.step(optimizer)  ->  a check that all gradients are finite, and the step

The graph takes the step for granted.  Where its check fails, the inputs are restored and the call is made again,
eagerly: the scaler skips the step, as it does once in many calls.
"""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Strategy
from stator.graph.analysis.step_functions import require_finite
from stator.interp.frame import Continuation
from stator.interp.objects.attributes import load_attr
from stator.interp.rule_registry import suspending_rule
from stator.interp.vm import VM


@suspending_rule(torch.amp.GradScaler._maybe_opt_step)
def _step_if_finite(vm: VM, cont: Continuation | None, self: object, optimizer: object, optimizer_state: object,
                    /, *args: object, **kwargs: object) -> None:
    found = vm.call_sync(counts_of, (optimizer_state,))
    if can_be_checked(vm, found):
        vm.recorder.record("call_function", require_finite, (found,), {}, None)
        vm.recorder.log.changes += 1
        step = vm.sync(lambda: load_attr(vm, optimizer, "step"))
        return vm.call(step, args, kwargs, cont)
    function = torch.amp.GradScaler._maybe_opt_step
    vm.push(vm.frame_for(function, (self, optimizer, optimizer_state, *args), kwargs), cont)


def counts_of(state: dict[str, dict[object, object]]) -> list[object]:
    return list(state["found_inf_per_device"].values())


def can_be_checked(vm: VM, found: list[object]) -> bool:
    """Whether the graph may raise here, and be cut here."""
    recorder = vm.recorder
    if Strategy.UNSPOKEN_ASSERTIONS in vm.turned_off or recorder.scope.enclosing is not None or recorder.region.marks \
            or vm.modes.active or recorder.classes or recorder.wrappers.behind \
            or recorder.symbols.has_fresh and not recorder.backend.in_order:
        return False
    if not all(type(each) is FakeTensor for each in found):
        return False
    if not recorder.backend.in_order:
        recorder.propagation.require_exact()  # pieces must know which of their inputs share memory
    return True
