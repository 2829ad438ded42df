"""Facts that differ between an entry and a call.   guards of an entry, a call it refused  ->  x.size(1): 3 -> 4

In: the guards of one entry, the bound arguments of a call, and the names that the user has for both.
Out: `Change`, one for each fact, with its value before and after and the user's line that read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from stator import events
from stator.contracts.patterns import Fact, rooted
from stator.graph.analysis.shared_memory import is_member
from stator.guards.global_state import global_state
from stator.guards.guard import Guard, Kind
from stator.guards.guard_semantics import Unreadable, evaluate, explain
from stator.guards.tensor_meta import TensorMeta, tensor_meta
from stator.host import shown_names
from stator.host.value_kinds import is_a
from stator.report.names import terms_of, translate

SAME_NAME = ("dtype", "device", "layout", "requires_grad")  # of a TensorMeta and of a tensor


@dataclass(frozen=True)
class Change:
    """A fact that is no longer so."""

    fact: Fact
    old: str
    new: str
    guard: Guard
    place: tuple[str, int] | None = None
    readable: bool = True  # False: the way to the value is gone, which another change explains

    def text(self) -> str:
        where = f" ({self.place[0]}:{self.place[1]})" if self.place is not None else ""
        if self.fact.operands:
            return f"{self.fact.text} no longer holds: {self.new}{where}"
        return f"{self.fact.text} was {self.old}, is {self.new}{where}"

    @property
    def to_add(self) -> tuple[Fact, ...]:
        """The facts that must vary for this one to vary."""
        return self.fact.operands or (self.fact,)


class UserTerms:
    """The user's names for the values of one site."""

    def __init__(self, fn: Callable[..., object], point: object, bound: Sequence[object], of_module: bool) -> None:
        self.terms: events.Terms = terms_of(fn, point, bound)
        self.of_module = of_module

    def __call__(self, text: str) -> str:
        return rooted(translate(text, self.terms), self.of_module)


def changes(guards: Sequence[Guard], bound: Sequence[object], named: UserTerms,
            begins: tuple[str, int] | None = None) -> list[Change]:
    """All facts of an entry that a call contradicts; those that follow from another one are left out.

    `begins` is the line of the function, for facts that no line of the user has read.
    """
    found: dict[str, Change] = {}
    for guard in guards:
        failure = explain(guard, bound)
        for change in () if failure is None else _changes_of(guard, bound, named, failure.expected, failure.found):
            place = None if begins is None else shown_names.names.line(guard, guards, begins)
            fact = replace(change.fact, is_weight=is_member(guard.source))
            found.setdefault(fact.text, replace(change, fact=fact, place=place))
    rows = [each for each in found.values() if each.readable] or list(found.values())
    keyed = {each.fact.subject for each in rows if each.fact.text.endswith(f" in {each.fact.subject}")}
    rows = [each for each in rows if each.fact.subject not in keyed or not each.fact.text.startswith("len(")]
    kinds = {each.fact.subject for each in rows if each.fact.text in _of_kind(each.fact.subject)}
    return [each for each in rows if each.fact.subject not in kinds or each.fact.text in _of_kind(each.fact.subject)]


def _of_kind(subject: str) -> tuple[str, str]:
    """Facts beside which no other fact of a value counts."""
    return f"{subject} is None", f"type({subject})"


def _changes_of(guard: Guard, bound: Sequence[object], named: UserTerms, expected: str, now: str) -> Iterator[Change]:
    if guard.kind is Kind.GLOBAL_STATE:
        for name, old, new in guard.value.differences(global_state()):
            if name != "torch_function_disabled":  # Stator itself turns functions off while it looks
                yield Change(Fact(f"torch.{name}", "torch"), str(old), str(new), guard)
        return
    subject = named(guard.source.text())
    if guard.kind is Kind.SHAPE:
        parts = tuple(Fact(named(each.text()), named(each.source.text())) for each in guard.value.operands)
        yield Change(Fact(named(guard.text()), subject, operands=parts), "true", named(now), guard)
        return
    try:
        value = evaluate(guard.source, bound)
    except Unreadable:
        yield Change(Fact(named(guard.text()), subject), expected, f"{named(now)}", guard, readable=False)
        return
    yield from _of_value(guard, value, subject, named(expected), named(now), named)


def _of_value(guard: Guard, value: object, subject: str, old: str, new: str, named: UserTerms) -> Iterator[Change]:
    def change(text: str, was: str = old, now: str = new, rank: int = 0) -> Change:
        return Change(Fact(text, subject, rank), was, now, guard)

    nothing = guard.value in (None, type(None)) if guard.kind in (Kind.EQUALS, Kind.ID, Kind.TYPE) else False
    if guard.kind in (Kind.EQUALS, Kind.ID, Kind.TYPE, Kind.TENSOR) and (value is None) is not nothing:
        yield change(f"{subject} is None", str(nothing), str(value is None))
    elif guard.kind is Kind.TENSOR:
        if not is_a(value, torch.Tensor) or type(value) is not guard.value.type:
            yield change(f"type({subject})", guard.value.type.__name__, type(value).__name__)
        else:
            assert isinstance(value, torch.Tensor)
            yield from (Change(Fact(text, subject, value.dim()), was, now, guard) for text, was, now
                        in _of_tensor(subject, guard.value, tensor_meta(value, with_offset=True)))
    elif guard.kind is Kind.TYPE or guard.kind is Kind.EQUALS and type(value) is not type(guard.value):
        yield change(f"type({subject})", getattr(guard.value, "__name__", type(guard.value).__name__),
                     type(value).__name__)
    elif guard.kind in (Kind.LEN, Kind.KEYS, Kind.ABSENT, Kind.PRESENT):
        yield from (Change(Fact(text, subject), was, now, guard)
                    for text, was, now in _of_container(guard, value, subject, old, new))
    elif guard.kind in (Kind.EQUALS, Kind.ID):
        yield change(subject)
    elif guard.kind is Kind.VALUES:
        yield change(f"{subject}.tolist()")
    else:
        yield change(named(guard.text()), "true", "false" if old == new else new)


def _of_tensor(subject: str, old: TensorMeta, new: TensorMeta) -> Iterator[tuple[str, str, str]]:
    for name in SAME_NAME:
        if getattr(old, name) != getattr(new, name):
            yield f"{subject}.{name}", str(getattr(old, name)), str(getattr(new, name))
    if len(old.sizes) != len(new.sizes):
        yield f"{subject}.dim()", str(len(old.sizes)), str(len(new.sizes))
        return
    differing = [dim for dim, size in enumerate(old.sizes) if size not in (None, new.sizes[dim])]
    yield from ((f"{subject}.size({dim})", str(old.sizes[dim]), str(new.sizes[dim])) for dim in differing)
    if not differing and old.strides != new.strides and old.strides is not None:
        yield f"{subject}.stride()", str(old.strides), str(new.strides)
    if old.storage_offset not in (None, new.storage_offset):
        yield f"{subject}.storage_offset()", str(old.storage_offset), str(new.storage_offset)


def _of_container(guard: Guard, value: object, subject: str, old: str,
                  new: str) -> Iterable[tuple[str, str, str]]:
    if guard.kind is Kind.LEN:
        return [(f"len({subject})", old.removeprefix("length "), new.removeprefix("length "))]
    if guard.kind is not Kind.KEYS or not isinstance(value, dict):
        key = guard.value if guard.kind is not Kind.KEYS else None
        return [(f"{key!r} in {subject}" if key is not None else f"list({subject})",
                 str(guard.kind is Kind.PRESENT), str(guard.kind is Kind.ABSENT))]
    before, after = dict.fromkeys(guard.value), dict.fromkeys(dict.keys(value))
    moved = [(f"{key!r} in {subject}", str(key in before), str(key in after))
             for key in (*before, *after) if (key in before) is not (key in after)]
    return moved or [(f"list({subject})", old, new)]
