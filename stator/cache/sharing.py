"""Entries of one place that share a compiled graph.   batch n and batch 1: two traces, one compilation

In: a trace that is about to be compiled, and the entries there are.  Out: the compiled graph of an entry whose graph is
the same but for sizes, if it may be used at the sizes of this call; else None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stator.graph.fx.graph_instances import Description, describe_graph, is_instance
from stator.guards.guard import Guard, Kind
from stator.guards.guard_semantics import explain
from stator.guards.shape_check import Operand


@dataclass
class Shareable:
    """A compiled graph, what it was made from, and for which sizes it is not."""

    compiled: Any
    description: Description
    grad_at_start: bool
    relied: frozenset[Operand]  # sizes for which the backend ruled out 1


def description_of(done: Any, residual: Any) -> Description | None:
    """Describe a graph for comparison with later traces; None where nothing can be shared, as with a late backward."""
    symbols = done.vm.recorder.symbols
    outputs = next(node for node in reversed(residual.graph.graph.nodes) if node.op == "output")
    if any(getattr(node.meta.get("example_value"), "requires_grad", False) for node in outputs.all_input_nodes):
        return None
    return describe_graph(residual.graph.graph, residual.graph_inputs, symbols, done.vm.recorder.log.in_place)


def shareable(done: Any, compiled: object, description: Description | None) -> Shareable | None:
    """The record of a graph that has just been compiled, if it has sizes that may be others."""
    symbols = done.vm.recorder.symbols
    if description is None or not symbols.origins:
        return None
    relied = frozenset(symbols.origins[symbol] for symbol in symbols.shape_env.relied if symbol in symbols.origins)
    return Shareable(compiled, description, done.grad_at_start, relied)


def find_shared(entries: Sequence[Any], done: Any, description: Description | None, residual: Any,
                bound: tuple[Any, ...]) -> tuple[Any, list[Guard]] | None:
    """The compiled graph that serves this trace as well, and the relations that it was made under."""
    if description is None:
        return None
    state = _global_state(done.vm.heap.guards)
    for _, _, tag in entries:
        other: Shareable | None = None if tag is None else tag.shareable
        if other is None or other.grad_at_start != done.grad_at_start or _global_state(tag.guards) != state:
            continue
        if is_instance(other.description, description, residual.graph_inputs, done.vm.recorder.symbols):
            failed = [guard for guard in tag.guards if guard.kind in _DECIDED and explain(guard, bound) is not None]
            if all(guard.kind is Kind.SHAPE and guard.value.is_rule and guard.value.operands[0] not in other.relied
                   for guard in failed):
                kept = [guard for guard in tag.guards if guard.kind is Kind.SHAPE and guard not in failed]
                return other.compiled, kept
    return None


_DECIDED = frozenset({Kind.TENSOR, Kind.SHAPE, Kind.FRESH_CALL, Kind.ALIAS, Kind.NOT_ALIAS, Kind.VALUES,
                      Kind.PARTITION})


def _global_state(guards: Any) -> Any:
    return next((guard.value for guard in guards if guard.kind is Kind.GLOBAL_STATE), None)
