"""Operations that may fail after effects that must not be repeated.   custom(x); log.append(1); t[i]  ->  cut at t[i]

In: a node recorded behind an operation that must not run twice (see graph/mutation).  Out: a break where its failure
would lose what the program has done before.  A failed graph is run again in eager, which does all of that in order;
this one cannot be.  Cut before the node, the first part of the graph runs to its end, and the node runs natively.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from stator.breaks import Break
from stator.graph.may_fail import Memory, node_may_fail
from stator.graph.mutation import is_repeatable, operator_name
from stator.heap.changes import changed_trackers


def refuse_failure(vm: Any, node: fx.Node) -> None:
    """Break at what may fail, where the error would come before effects of the trace, or before writes.

    A graph that runs in order has done its writes by then.  Operators that must not run twice are no reason: cutting at
    each of them would leave no graph.
    """
    recorder = vm.recorder
    if recorder.enclosing is not None or not is_repeatable(node) or not node_may_fail(node, Memory(frozenset())):
        return
    if recorder.writes_in_place and not recorder.in_order or has_effects(vm):
        name = operator_name(node.target) or node.name
        raise Break("SB006", f"{name}, which may fail after a call that must not run twice")


def has_effects(vm: Any) -> bool:
    """Whether the trace has changes of outside objects, output or settings to be done after the graph."""
    with torch._C.DisableTorchFunction():
        changed = changed_trackers(vm.heap)
    return bool(changed or vm.effects or vm.class_overlays or vm.tensor_attributes or vm.context_sets or vm.hooks
                or vm.grad_flags or vm.data_notes or vm.tensor_grads
                or any(scope.overlay for scope in vm.heap.scopes.values()))
