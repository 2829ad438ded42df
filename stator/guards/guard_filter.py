"""Guards that the user's filter drops.   options={"guard_filter_fn": torch.compiler.skip_guard_on_globals_unsafe}

In: the guards of an entry, and a function in the form of torch.compile.  Out: those it keeps.  The function gets one
record for each guard, with the attributes of torch's `GuardFilterEntry`; kinds of guards have torch's names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from stator.errors import OptionValueError, describe_callable
from stator.guards.guard import MISSING, Guard, Kind
from stator.guards.guard_semantics import Unreadable, evaluate
from stator.host.value_kinds import is_a
from stator.source import CallOf, Global, Source, World, parents

_NAMES = {
    Kind.TYPE: "TYPE_MATCH", Kind.ID: "ID_MATCH", Kind.EQUALS: "EQUALS_MATCH", Kind.TENSOR: "TENSOR_MATCH",
    Kind.LEN: "SEQUENCE_LENGTH", Kind.KEYS: "DICT_KEYS_MATCH", Kind.ABSENT: "DICT_NOT_CONTAINS",
    Kind.PRESENT: "DICT_CONTAINS", Kind.ALIAS: "DUPLICATE_INPUT", Kind.NOT_ALIAS: "NO_TENSOR_ALIASING",
    Kind.PARTITION: "NO_TENSOR_ALIASING", Kind.GLOBAL_STATE: "GLOBAL_STATE", Kind.SHAPE: "SHAPE_ENV",
}


@dataclass(frozen=True)
class GuardSource:
    """The source of a guard, with the methods that torch's filters call."""

    text: str
    modules: tuple[torch.nn.Module, ...]  # that the way to the value passes

    def name(self) -> str:
        return self.text

    def is_unspecialized_nn_module(self) -> bool:
        return bool(self.modules)

    def is_unspecialized_builtin_nn_module(self) -> bool:
        return any(type(each).__module__.startswith(("torch.nn.", "torch.ao.")) for each in self.modules)


@dataclass(frozen=True)
class OriginalGuard:
    """The guard behind a record."""

    name: str
    source: GuardSource
    text: str


@dataclass(frozen=True)
class GuardFilterEntry:
    """One guard, as a filter sees it."""

    name: str
    has_value: bool
    value: object
    guard_type: str
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: OriginalGuard


def kept_guards(keep: Callable[..., Sequence[bool]], guards: Sequence[Guard], bound: tuple[object, ...]) -> list[Guard]:
    """The guards for which the filter gives True."""
    records = [record_of(guard, bound) for guard in guards]
    try:
        flags = list(keep(records))
    except Exception as error:
        raise OptionValueError(f"options['guard_filter_fn'] ({describe_callable(keep)}) raised {type(error).__name__}: "
                               f"{error}") from error
    if len(flags) != len(records):
        raise OptionValueError(f"options['guard_filter_fn'] ({describe_callable(keep)}) gave {len(flags)} answers for "
                               f"{len(records)} guards; it must give one for each")
    return [guard for guard, flag in zip(guards, flags, strict=True) if flag]


def record_of(guard: Guard, bound: tuple[object, ...]) -> GuardFilterEntry:
    steps = list(path(guard.source))
    values = [value_at(step, bound) for step in steps]
    modules = tuple([each for each in values if is_a(each, torch.nn.Module)])
    name, kind = guard.source.text(), _NAMES.get(guard.kind, guard.kind.name)
    return GuardFilterEntry(name, values[0] is not MISSING, None if values[0] is MISSING else values[0], kind, (kind,),
                            any(isinstance(step, Global) for step in steps),
                            OriginalGuard(name, GuardSource(name, modules), guard.text()))


def path(source: Source) -> Iterator[Source]:
    """A source, and those that lead to it."""
    waiting = [source]
    while waiting:
        step = waiting.pop()
        yield step
        waiting += parents(step)


def value_at(source: Source, bound: tuple[object, ...]) -> object:
    if type(source) in (CallOf, World):  # code of the program, or no value
        return MISSING
    try:
        return evaluate(source, bound)
    except Unreadable:
        return MISSING
