"""Contexts of decimals from outside.   a decimal.Context  ->  a stand-in with its settings, traps and flags

The context of the thread is copied where a trace begins, without flags: C code computes under the copy, which becomes
the stand-in where the program asks for that context.
"""

from __future__ import annotations

import decimal
from typing import Any

import torch

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.services import Heap
from stator.heap.tracker import ShadowKind, VariableTracker, recorded
from stator.host.value_kinds import is_a
from stator.source import Source

State = tuple[Any, ...]
FOUND_BY_C: dict[int, tuple[str, ...]] = {  # attributes that only C code finds, by the id of the method that does
    id(vars(decimal.Context).get(name)): ("flags", "traps")
    for name in ("__getattribute__", "__setattr__", "__delattr__")}


def context_state(context: object) -> State:
    """A pure reader for guards: settings, traps and flags."""
    if not isinstance(context, decimal.Context) or type(context) is not decimal.Context:
        return ()
    names = [tuple(sorted(signal.__name__ for signal, is_set in signals.items() if is_set))
             for signals in (context.traps, context.flags)]
    return (context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, *names)


def put_state(context: decimal.Context, state: State) -> decimal.Context:
    """Give a context a state; called by the residual."""
    context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, traps, flags = state
    for signals, names in ((context.traps, traps), (context.flags, flags)):
        for signal in signals:
            signals[signal] = signal.__name__ in names
    return context


def made_context(state: State) -> decimal.Context:
    """A new context; called by the residual."""
    return put_state(decimal.Context(), state)


def raise_flags(signals: tuple[type[decimal.DecimalException], ...]) -> None:
    """Raise flags in the user's context; called by the residual."""
    flags = decimal.getcontext().flags
    for signal in signals:
        flags[signal] = True


class ThreadContext:
    """The context of the thread while a trace runs, and contexts from outside that it has met."""

    __slots__ = ("users", "base", "current", "met", "heap")

    def __init__(self, users: decimal.Context) -> None:
        self.users, self.base = users, users.copy()
        self.base.clear_flags()
        self.current: decimal.Context | None = None  # another one that the program has set
        self.met: list[VariableTracker] = []

    def fingerprint(self) -> tuple[int, list[State]]:
        return id(self.current), [context_state(tracker.standin) for tracker in self.met]

    def changed(self) -> list[VariableTracker]:
        return [tracker for tracker in self.met if context_state(tracker.standin) != tracker.initial]


def same_thread_context(heap: Heap) -> None:
    """Guard how this thread computes decimals."""
    state = heap.changes.decimals
    users = decimal.getcontext() if state is None else state.users
    heap.guard_call(decimal_settings, context_state(users)[:-1])


def decimal_settings() -> State:
    """A pure reader for guards: how this thread computes decimals."""
    return context_state(decimal.getcontext())[:-1]


@recorded
def adopt_decimal_context(heap: Heap, value: decimal.Context, source: Source) -> object:
    thread: ThreadContext | None = heap.changes.decimals
    if thread is None:
        raise Break("SB005", "a context of decimals beside a trace")
    state = context_state(value)
    heap.guard(source, Kind.TYPE, decimal.Context)
    heap.guard_call(context_state, state, source)
    standin = thread.base if value is thread.users else value.copy()
    for signal, is_set in value.flags.items():
        standin.flags[signal] = is_set or standin.flags[signal]
    tracker = VariableTracker(standin, value, source, ShadowKind.VALUE, state)
    thread.met.append(tracker)
    return heap.register(tracker).standin  # type: ignore[no-any-return]


def may_convert(value: object) -> bool:
    """Whether C code that makes a decimal asks methods of the value; of most classes it takes none."""
    return is_a(value, (tuple, list)) and type(value) not in (tuple, list) or is_a(value, torch.Tensor)
