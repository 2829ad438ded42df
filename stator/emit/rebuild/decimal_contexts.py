"""Contexts of decimals.   getcontext().prec = 5; Context()  ->  the settings are put back, a new context is made

In: the contexts that the trace has met or made.  Out: statements behind the graph; the context of the thread last.
"""

from __future__ import annotations

import decimal

from stator.emit.services import Rebuilder
from stator.heap.adopt.decimal_state import ThreadContext, context_state, made_context, put_state, raise_flags


def rebuild_decimal_context(build: Rebuilder, value: decimal.Context) -> str:
    make, state = build.writer.constant(made_context), build.writer.constant(context_state(value), "decimal_state")
    return build.variable(value, "context", f"{make}({state})")


def raised_flags(thread: ThreadContext) -> tuple[type[decimal.DecimalException], ...]:
    return tuple(signal for signal, raised in thread.base.flags.items() if raised)


def write_decimal_contexts(build: Rebuilder, thread: ThreadContext, statements: list[str]) -> None:
    if signals := raised_flags(thread):
        statements.append(f"{build.writer.constant(raise_flags)}({build.writer.constant(signals, 'signals')})")
    for tracker in thread.changed():
        state = build.writer.constant(context_state(tracker.standin), "decimal_state")
        statements.append(f"{build.writer.constant(put_state)}({build.outside(tracker.source)}, {state})")
    if thread.current is not None:
        statements.append(f"{build.writer.constant(decimal.setcontext)}({build.value(thread.current)})")
