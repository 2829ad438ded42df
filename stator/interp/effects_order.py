"""The order of calls that must not run twice and other effects.   log.append(1); custom(x); t[i]  ->  cut at custom

In: a node that must not run twice (see graph/analysis/mutation), or one recorded behind such a node.  Out: a break
where the program has done something else before.  Effects on outside objects are written after the graph: a custom
operator could see that, and an error would lose them, as such a graph is not run again in eager.  Cut before the node,
the first part of the graph and its effects run to their end, and the node runs natively.
"""

from __future__ import annotations

import torch
from torch import fx
from torch._ops import OpOverload

from stator.breaks import Break
from stator.graph.analysis.may_fail import CAUGHT, CLEANUP, Memory, is_caught, node_may_fail
from stator.graph.analysis.mutation import is_repeatable, operator_name, writes
from stator.graph.analysis.shared_memory import sharing_memory
from stator.heap.outside_changes import changed_trackers
from stator.heap.reached_state import Reach
from stator.interp.handled_errors import leaves_settings
from stator.interp.lookup import mro_of
from stator.interp.services import VM
from stator.interp.state.mechanisms import has_changes


def keep_order(vm: VM, node: fx.Node, whole: bool) -> None:
    """Break at a call that must not run twice behind effects; behind one, at what may fail.

    Writes to tensors are effects for a compiler, which does them at the end of the graph, and only what may fail is
    kept from them: cutting at each custom operator of a model with a cache would leave no graph.  A capture that must
    be `whole` breaks at reads of state alone.
    """
    recorder = vm.recorder
    if not is_repeatable(node) and not _keeps_order_itself(node.target):
        _keep_reads(vm, node, whole)
    if whole or recorder.scope.enclosing is not None or _keeps_order_itself(node.target):
        return
    if recorder.unexplained_asserts():
        raise Break("SB006", f"{node.name}, where sizes are asserted beside a call that must not run twice")
    if not is_repeatable(node):
        first, vm.effects.runs_once = not vm.effects.runs_once, True
        if has_effects(vm):
            raise Break("SB006", f"{node.name} sees effects outside, which come after the graph")
        if _cleans_up(node) or first and _loses_an_effect(vm, node):
            raise Break("SB006", f"{node.name} must not run twice, beside effects that an error leaves behind")
        return
    late = recorder.log.in_place and not recorder.backend.in_order
    if (late or _cleans_up(node) or has_effects(vm)) and _may_fail(vm, node):
        name = operator_name(node.target) or node.name
        raise Break("SB006", f"{name}, which may fail after a call that must not run twice")


def _keep_reads(vm: VM, node: fx.Node, whole: bool) -> None:
    """Break where a call may change state that the trace has read; note that state for later reads."""
    reach = Reach(node.target)
    others = reach.objects.keys() - {id(node.target)}
    seen = reach.unbounded and not whole or not others.isdisjoint(vm.heap.by_original)
    for number, name in reach.names:
        scope = vm.heap.scopes.get(number)
        seen = seen or scope is not None and (scope.shadow is not None or name in scope.seen)
    if seen or reach.names and any((id(base), name) in reach.names for cls, name in vm.classes.lookups
                                   for base in mro_of(cls)):
        raise Break("SB006", f"{node.name} may change state that the program has read")
    if reach.objects or reach.names:
        vm.heap.changes.reached.append(reach)


def _may_fail(vm: VM, node: fx.Node) -> bool:
    if not node.all_input_nodes:
        return False
    return node_may_fail(node, Memory(sharing_memory(vm.recorder.inputs) if writes(node) else frozenset()))


def _cleans_up(node: fx.Node) -> bool:
    """Whether code of the program runs when a node raises; an error raised as it is would skip it."""
    caught = node.meta.get(CAUGHT, 0)
    return bool(caught) and (bool(caught & CLEANUP) or is_caught(node))


def _loses_an_effect(vm: VM, last: fx.Node) -> bool:
    """Whether an error before the first call that must not run twice would skip clean-up code or a late write."""
    written = False
    for node in last.graph.nodes:
        if node is not last and node.op.startswith("call_") and (written or _cleans_up(node)) and _may_fail(vm, node):
            return True
        written = written or not vm.recorder.backend.in_order and writes(node)
    return False


def _keeps_order_itself(target: object) -> bool:
    """Prints of the graph and collectives, which do not fail and see nothing but tensors."""
    return isinstance(target, OpOverload) and target.namespace in ("stator", "_c10d_functional", "c10d")


def has_effects(vm: VM) -> bool:
    """Whether the trace has changes of outside objects, output or settings to be done after the graph."""
    with torch._C.DisableTorchFunction():
        changed = changed_trackers(vm.heap)
    return bool(changed or vm.effects.noted or has_changes(vm) or leaves_settings(vm))
