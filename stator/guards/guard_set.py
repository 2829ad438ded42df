"""The guards of one trace.   guards as they arise, with repeats  ->  each once, pruned, in checking order

`add` is on the hot path of capture, so it is one hash lookup.  `prune` drops what another guard
already says.  Iteration puts what is likely to fail and cheap first, and a parent before its children,
so that the first failure is also the best explanation.

Patterns of one object (`pattern.PatternInstance`) stand among them as they arrived, and become guards when they are
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import overload

from stator.guards.guard import Guard, Kind, is_constant, same_constant
from stator.guards.pattern import PatternInstance
from stator.source import Key, Local, Source

_HEAP_TYPE = 1 << 9
_type_flags = type.__dict__["__flags__"].__get__

_COST = {Kind.TYPE: 0, Kind.ID: 0, Kind.NOT_ID: 0, Kind.CELL_EMPTY: 0, Kind.SLOT_EMPTY: 0, Kind.LEN: 0,
         Kind.GLOBAL_STATE: 1, Kind.EQUALS: 1, Kind.TENSOR: 1, Kind.TYPE_ATTR: 1, Kind.TYPE_FIELD: 1,
         Kind.ABSENT: 2, Kind.PRESENT: 2, Kind.KEYS: 3, Kind.SET_EQUALS: 3, Kind.VALUES: 3,
         Kind.FRESH_CALL: 4, Kind.ALIAS: 5, Kind.NOT_ALIAS: 5, Kind.SHAPE: 5, Kind.PARTITION: 5}  # fmt: skip


# Relations between two sources come last: by then both ends have been checked themselves.
_FIXED = {Kind.ALIAS: (4, 0, 0), Kind.NOT_ALIAS: (4, 0, 0), Kind.SHAPE: (4, 0, 0), Kind.PARTITION: (4, 0, 0),
          Kind.GLOBAL_STATE: (1, 0, 0),
          Kind.FRESH_CALL: (3, 0, 0)}


# Guards that say what others may follow from, and those that may follow.
_STRONG = frozenset({Kind.TENSOR, Kind.EQUALS, Kind.FRESH_CALL, Kind.ID, Kind.KEYS, Kind.SET_EQUALS})
_IMPLIED = frozenset({Kind.TYPE, Kind.LEN, Kind.PRESENT, Kind.ABSENT, Kind.EQUALS})


class GuardSet:
    """Guards in order of arrival, without repeats."""

    __slots__ = ("_by_key", "_said")

    def __init__(self, guards: Iterable[Guard] = ()) -> None:
        self._by_key: dict[object, Guard | PatternInstance] = {}
        self._said: list[PatternInstance] = []
        for guard in guards:
            self.add(guard)

    def add(self, guard: Guard) -> bool:
        """Keep the guard; False when the same fact is already there (the first line that used it stays)."""
        return self._by_key.setdefault(guard.key, guard) is guard

    def say(self, said: PatternInstance) -> None:
        """Keep the guards of a pattern."""
        if self._by_key.setdefault(said.key, said) is said:
            self._said.append(said)

    def update(self, guards: Iterable[Guard]) -> None:
        for guard in guards:
            self.add(guard)

    def prune(self) -> None:
        """Drop every guard that another one implies."""
        facts = _Facts(self.single())
        for key in [key for key, guard in self._by_key.items()
                    if type(guard) is Guard and guard.kind in _IMPLIED and facts.imply(guard)]:
            del self._by_key[key]

    def arrived(self) -> Iterable[Guard | PatternInstance]:
        """In order of arrival."""
        return self._by_key.values()

    def single(self) -> list[Guard]:
        """The guards that arrived one by one."""
        if not self._said:
            return list(self._by_key.values())  # type: ignore[arg-type]
        return [guard for guard in self._by_key.values() if type(guard) is Guard]

    def said(self) -> list[PatternInstance]:
        return self._said

    def spelled_out(self) -> GuardSet:
        """The same facts, each a guard of its own."""
        if not self._said:
            return self
        found = GuardSet()
        for each in self._by_key.values():
            found.update((each,) if type(each) is Guard else each.guards())  # type: ignore[union-attr]
        return found

    def __len__(self) -> int:
        """How many arrived; a pattern counts as one."""
        return len(self._by_key)

    def __iter__(self) -> Iterator[Guard]:
        """In checking order."""
        return iter(in_order(self.spelled_out().single()))

    def __repr__(self) -> str:
        return f"<GuardSet of {len(self)}>"


def in_order(guards: Iterable[Guard]) -> list[Guard]:
    """In checking order; sorting is stable, so arrival decides between equals."""
    return sorted(guards, key=_rank)


class GuardList(Sequence[Guard]):
    """The guards of a set, each once, pruned, in checking order; made when somebody looks at them."""

    __slots__ = ("_set", "_made")

    def __init__(self, guards: GuardSet) -> None:
        self._set: GuardSet | None = guards
        self._made: list[Guard] = []

    def _list(self) -> list[Guard]:
        if self._set is not None:
            found = self._set.spelled_out()
            found.prune()
            self._made, self._set = list(found), None
        return self._made

    def arrived(self) -> list[Guard]:
        """Those that arrived one by one, where nobody has looked at them yet."""
        return self._made if self._set is None else self._set.single()

    def __len__(self) -> int:
        return len(self._list())

    @overload
    def __getitem__(self, index: int) -> Guard: ...

    @overload
    def __getitem__(self, index: slice) -> list[Guard]: ...

    def __getitem__(self, index: int | slice) -> Guard | list[Guard]:
        return self._list()[index]

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._list())


def needed(guards: Sequence[Guard]) -> list[int]:
    """The numbers of those that no other one implies, in checking order."""
    facts = _Facts(guards)
    return sorted([number for number, guard in enumerate(guards)
                   if guard.kind not in _IMPLIED or not facts.imply(guard)],
                  key=lambda number: _rank(guards[number]))


def _rank(guard: Guard) -> tuple[int, int, int]:
    source, kind = guard.source, guard.kind
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return fixed
    # Arguments change more often than what hangs on pinned objects.
    return (0 if type(source.root or source) is Local else 2, source.depth, _COST[kind])


class _Facts:
    """An index of the strong guards, to find what they imply."""

    def __init__(self, guards: Iterable[Guard]) -> None:
        self.typed: dict[Source, type] = {}
        self.identified: dict[Source, object] = {}
        self.equal: dict[Source, object] = {}
        self.keys: dict[Source, tuple[object, ...]] = {}
        self.sets: dict[Source, frozenset[object]] = {}
        for guard in guards:
            if guard.kind in _STRONG:
                self._note(guard)

    def _note(self, guard: Guard) -> None:
        source, value = guard.source, guard.value
        if guard.kind is Kind.TENSOR:
            self.typed[source] = value.type
        elif guard.kind in (Kind.EQUALS, Kind.FRESH_CALL):
            self.typed[source] = type(value)
            self.equal[source] = value
        elif guard.kind is Kind.ID:
            self.identified[source] = value
            if _has_fixed_type(value):
                self.typed[source] = type(value)
        elif guard.kind is Kind.KEYS:
            self.keys[source] = value
        elif guard.kind is Kind.SET_EQUALS:
            self.sets[source] = value

    def imply(self, guard: Guard) -> bool:
        source, value = guard.source, guard.value
        if guard.kind is Kind.TYPE:
            return self.typed.get(source) is value
        if guard.kind is Kind.ABSENT and not self.keys:
            return False
        if guard.kind is Kind.LEN:
            return self._length(source) == value
        if guard.kind is Kind.PRESENT:
            return any(same_constant(key, value) for key in self.keys.get(source, ())) or self._is_read(
                Key(source, value) if is_constant(value) else None
            )
        if guard.kind is Kind.ABSENT:
            return source in self.keys and not any(same_constant(key, value) for key in self.keys[source])
        if guard.kind is Kind.EQUALS:
            return source in self.identified and same_constant(self.identified[source], value)
        return False

    def _is_read(self, source: Source | None) -> bool:
        """Whether some strong guard reads the very value, which it can only do when the key is there."""
        return source is not None and (source in self.typed or source in self.identified)

    def _length(self, source: Source) -> int | None:
        if source in self.keys:
            return len(self.keys[source])
        if source in self.sets:
            return len(self.sets[source])
        value = self.equal.get(source)
        return len(value) if isinstance(value, (tuple, frozenset)) else None


def _has_fixed_type(value: object) -> bool:
    """Whether `value.__class__` can never be assigned: instances of static types, modules excepted."""
    return not _type_flags(type(value)) & _HEAP_TYPE and type(value) is not ModuleType
