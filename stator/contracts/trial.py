"""Capture a call under a wider contract, and see which calls its entry accepts.   nothing runs, nothing is installed

In: a site, a call that none of its entries accepts, the changes between the two, and a contract that lets them vary.
Out: `Tried`: whether one entry would accept the call and the one before it, or the guard that distinguishes them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from stator import events
from stator.capture import first_call, miss
from stator.capture.call_site import CallSite
from stator.contracts.facts import Change, UserTerms
from stator.contracts.violation import Tried
from stator.guards.guard import Guard, Kind
from stator.guards.guard_semantics import Unreadable, evaluate, failing
from stator.guards.shape_check import Operand, Property, ShapeCheck
from stator.guards.tensor_meta import TensorMeta
from stator.host import shown_names
from stator.settings.options import Settings
from stator.source import Local, Source


def trial_settings(settings: Settings) -> Settings:
    """The same program without a compiler, on a site of its own."""
    return replace(settings, backend="eager", mode=None, options={}, isolate_recompiles=True, start="now", audit=0,
                   regions="off")


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Emit no event of this thread."""
    before, events.trial.active = events.trial.active, True
    try:
        yield
    finally:
        events.trial.active = before


def captured_guards(site: CallSite, root: CallSite, bound: tuple[object, ...],
                    prepare: Callable[[CallSite], object]) -> Sequence[Guard] | str:
    """Guards of a capture of this call on a site like this one; or why there is none."""
    with unseen(), first_call.lock:
        first = first_call.opened(first_call.make_entry(root.fn, trial_settings(root.stance.own_settings)))
        other = first if site.point is None else miss.make_point_entry(first, site.point)._stator_site
        prepare(other)
        try:
            entry = miss.traced(other, bound)
        except Exception as error:
            return f"the capture fails: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    if entry is None:
        return "the call cannot be captured"
    guards: Sequence[Guard] = entry[2].guards
    return guards


def guards_accept_before(guards: Sequence[Guard], changed: Sequence[Change], bound: tuple[object, ...],
                          named: UserTerms, begins: tuple[str, int]) -> Tried:
    """Whether these guards, made for the call as it is, accept it as it was before the changes."""
    old = {change.guard.source: change.guard for change in changed}
    state = next((change.guard for change in changed if change.guard.kind is Kind.GLOBAL_STATE), None)
    for guard in guards:
        if guard.kind is Kind.SHAPE:
            accepted = _holds(guard.value, [_before(operand, old, bound) for operand in guard.value.operands])
        elif guard.kind is Kind.GLOBAL_STATE:
            accepted = state is None or guard.value == state.value
        else:
            before = old.get(guard.source)
            accepted = before is None or _accepts(guard, before)
        if not accepted:
            filename, line = shown_names.names.line(guard, guards, begins)
            fact = next((each.fact.text for each in changed if each.guard.source == guard.source), named(guard.text()))
            text = named(guard.text()) if guard.kind is Kind.SHAPE else fact
            return Tried(False, f"the code depends on {text} ({filename}:{line})")
    return Tried(True)


_OF_CONTENTS = (Kind.LEN, Kind.KEYS, Kind.PRESENT, Kind.ABSENT)  # of a container whose type has not changed


def _accepts(guard: Guard, before: Guard) -> bool:
    if guard.kind is Kind.TENSOR and before.kind is Kind.TENSOR:
        return _covers(guard.value, before.value)
    if guard.kind is Kind.TYPE and before.kind in (Kind.EQUALS, Kind.TENSOR):
        return (before.value.type if before.kind is Kind.TENSOR else type(before.value)) is guard.value
    return guard.kind is Kind.TYPE and before.kind in _OF_CONTENTS or guard.key == before.key


def _covers(new: TensorMeta, old: TensorMeta) -> bool:
    same = ("type", "dtype", "device", "layout", "requires_grad", "dispatch_keys")
    extents = [(new.sizes, old.sizes), (new.strides or (), (old.strides or ()) if new.strides else ())]
    return all(getattr(new, name) == getattr(old, name) for name in same) and all(
        len(now) == len(then) and all(size in (None, was) for size, was in zip(now, then, strict=True))
        for now, then in extents)


def _holds(relation: ShapeCheck, values: Sequence[object]) -> bool:
    """Whether a relation is true of other values than those of a call."""
    numbers = tuple(operand.of(value) for operand, value in zip(relation.operands, values, strict=True))
    operands = tuple(Operand(Local(f"v{index}", index), Property.REAL if type(number) is float else Property.NUMBER)
                     for index, number in enumerate(numbers))
    return not failing((Guard(operands[0].source, Kind.SHAPE, replace(relation, operands=operands)),), numbers)


@dataclass
class Extents:
    """Sizes and strides of a tensor of an earlier call; a size that no guard has read is the present one."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def size(self) -> tuple[int, ...]:
        return self.sizes

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def storage_offset(self) -> int:
        return self.offset


def _before(operand: Operand, old: dict[Source, Guard], bound: tuple[object, ...]) -> object:
    """The value of an operand in the call before."""
    guard = old.get(operand.source)
    try:
        now: object = evaluate(operand.source, bound)
    except Unreadable:
        now = None
    if guard is None:
        return now
    if operand.property in (Property.NUMBER, Property.REAL):
        return guard.value if guard.kind is Kind.EQUALS else now
    if guard.kind is not Kind.TENSOR or not isinstance(now, torch.Tensor):
        return now
    meta: TensorMeta = guard.value
    sizes = tuple(have if was is None else was for was, have in zip(meta.sizes, now.size(), strict=False))
    strides = tuple(have if was is None else was
                    for was, have in zip(meta.strides or (), now.stride(), strict=False))
    return Extents(sizes, strides, now.storage_offset())
