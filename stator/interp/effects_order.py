"""The order of calls that must not run twice and other effects.   log.append(1); custom(x); t[i]  ->  cut at custom

In: a node that must not run twice (see graph/mutation), or one recorded behind such a node.  Out: a break where the
program has done something else before.  Effects on outside objects are written after the graph: a custom operator could
see that, and an error would lose them, as such a graph is not run again in eager.  Cut before the node, the first part
of the graph and its effects run to their end, and the node runs natively.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from stator.breaks import Break
from stator.graph.may_fail import Memory, node_may_fail
from stator.graph.mutation import is_repeatable, operator_name
from stator.heap.changes import changed_trackers


def keep_order(vm: Any, node: fx.Node) -> None:
    """Break at a call that must not run twice behind effects; behind one, at what may fail.

    Writes to tensors are effects for a compiler, which does them at the end of the graph, and only what may fail is
    kept from them: cutting at each custom operator of a model with a cache would leave no graph.
    """
    recorder = vm.recorder
    if recorder.enclosing is not None or _keeps_order_itself(node.target):
        return
    if not is_repeatable(node):
        if has_effects(vm):
            raise Break("SB006", f"{node.name} sees effects outside, which come after the graph")
        return
    late = recorder.writes_in_place and not recorder.in_order
    if node.all_input_nodes and node_may_fail(node, Memory(frozenset())) and (late or has_effects(vm)):
        name = operator_name(node.target) or node.name
        raise Break("SB006", f"{name}, which may fail after a call that must not run twice")


def _keeps_order_itself(target: Any) -> bool:
    """Prints of the graph and collectives, which do not fail and see nothing but tensors."""
    return isinstance(target, OpOverload) and target.namespace in ("stator", "_c10d_functional", "c10d")


def has_effects(vm: Any) -> bool:
    """Whether the trace has changes of outside objects, output or settings to be done after the graph."""
    with torch._C.DisableTorchFunction():
        changed = changed_trackers(vm.heap)
    return bool(changed or vm.effects or changed_beside_trackers(vm))


def changed_beside_trackers(vm: Any) -> bool:
    """Whether the trace has changed namespaces, classes, settings or the bookkeeping of outside tensors."""
    return bool(vm.class_overlays or vm.tensor_attributes or vm.context_sets or vm.hooks or vm.grad_flags
                or vm.data_notes or vm.tensor_grads or any(scope.overlay for scope in vm.heap.scopes.values()))
