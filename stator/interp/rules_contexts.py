"""Rules for context variables.   scale.get()  ->  its value in this context, asked again by a guard"""

from __future__ import annotations

import contextvars
from typing import Any

from stator.breaks import Break
from stator.guards.guard import MISSING, Kind
from stator.interp.frame import Raised
from stator.interp.rule_registry import rule
from stator.source import CallOf, Pinned


def value_in_context(variable: contextvars.ContextVar[Any]) -> Any:
    """A pure reader for guards: the value, or MISSING where there is none and no default."""
    try:
        return variable.get()
    except LookupError:
        return MISSING


def _without_default(variable: contextvars.ContextVar[Any]) -> Any:
    """A pure reader for guards: the value that was set in this context, or MISSING."""
    return variable.get(MISSING)


@rule(contextvars.ContextVar.get, arity=(1, 2))
def _get(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    variable = args[0]
    if vm.heap.tracker_of(variable) is None:
        raise Break("SB013", "a ContextVar made inside the trace")
    reader: Any = value_in_context if len(args) == 1 else _without_default
    source = CallOf(Pinned(reader), (vm.heap.source_of(variable),))
    if source not in vm.heap.answers:
        value = reader(variable)
        if value is MISSING:
            vm.heap.guard(source, Kind.ID, MISSING)
        vm.heap.answers[source] = value if value is MISSING else vm.heap.adopt(value, source)
    value = vm.heap.answers[source]
    if value is not MISSING:
        return vm.give(value, cont)
    if len(args) == 1:
        raise Raised(LookupError(vm.heap.original_of(variable)))
    vm.give(args[1], cont)
