"""The guards of one trace.   guards as they arise, with repeats  ->  each once, pruned, in checking order

Cheap guards that are likely to fail come first, and a parent before its children.  A `Pattern` holds the guards whose
sources start at one object (layers[0]), a `PatternInstance` the source of another (layers[1]); `lower` shifts nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, overload

from stator.guards.guard import Guard, Kind, is_constant, same_constant
from stator.source import CallOf, DictOf, Index, Key, Local, Source, parents, with_base

_NOTHING = object()


class Pattern:
    """Sources that start at one object, numbered, parents first, the object's own being 0; and facts about them."""

    __slots__ = ("sources", "numbers", "facts", "inside", "lowered", "_makers")

    def __init__(self, root: Source, inside: set[Source]) -> None:
        self.sources: list[Source] = []
        self.numbers: dict[Source, int] = {}
        self.facts: list[tuple[Guard, int]] = []  # guards whose value is no source, and the number of their source
        self.inside = inside  # every known source that starts at the object
        self.lowered: Any = None  # see `lower`
        self._makers: list[tuple[Any, int, Any, Source | None]] = []
        self.number(root)

    def number(self, source: Source) -> int:
        """The number of a source that starts at the object."""
        known = self.numbers.get(source)
        if known is None:
            for parent in parents(source):
                if parent in self.inside:
                    self.number(parent)
            known = self.numbers[source] = len(self.sources)
            self.sources.append(source)
        return known

    def maker(self, number: int) -> tuple[Any, int, Any, Source | None]:
        """(class, number of the base, detail, None); for steps that are made otherwise, the step itself is last."""
        self._makers += map(self._maker, self.sources[len(self._makers):number + 1])
        return self._makers[number]

    def _maker(self, source: Any) -> tuple[Any, int, Any, Source | None]:
        cls = type(source)
        if cls is CallOf or self.numbers[source] == 0:
            return (cls, -1, None, source)
        base = self.numbers[source.base]
        if cls is Key:
            return (cls, base, source.key, None)
        if cls is DictOf:
            return (cls, base, _NOTHING, None)
        return (cls, base, source.index, None) if cls is Index else (cls, base, None, source)

    def settle(self) -> None:
        """No more sources will be numbered: what only numbering needs is let go."""
        self.inside = set()


class PatternInstance:
    """A pattern, for the object at another source."""

    __slots__ = ("pattern", "root", "_made", "_guards")

    def __init__(self, pattern: Pattern, root: Source) -> None:
        self.pattern, self.root = pattern, root
        self._made: dict[int, Source] = {0: root}
        self._guards: list[Guard] | None = None

    @property
    def key(self) -> tuple[Pattern, Source]:
        return (self.pattern, self.root)

    def source(self, number: int) -> Source:
        """The source of that number, of this object."""
        made = self._made.get(number)
        if made is not None:
            return made
        cls, base, detail, model = self.pattern.maker(number)
        if model is None:
            above = self.source(base)
            made = cls(above) if detail is _NOTHING else cls(above, detail)
        elif cls is CallOf:
            numbers: Any = self.pattern.numbers
            arguments: Any = model.args  # type: ignore[attr-defined]
            made = CallOf(model.fn, tuple([  # type: ignore[attr-defined]
                self.source(numbers[each]) if each in numbers else each for each in arguments]))
        else:
            made = with_base(model, self.source(base))
        self._made[number] = made
        return made

    def made(self) -> Iterable[tuple[int, Source]]:
        """The sources that were made so far."""
        return self._made.items()

    def guard(self, number: int) -> Guard:
        guard, place = self.pattern.facts[number]
        return guard.moved(self.source(place), guard.value)

    def guards(self) -> list[Guard]:
        """All of its guards, in the order in which the first object's arose."""
        if self._guards is None:
            self._guards = [self.guard(number) for number in range(len(self.pattern.facts))]
        return self._guards


_HEAP_TYPE = 1 << 9
_type_flags = type.__dict__["__flags__"].__get__

_COST = {Kind.TYPE: 0, Kind.ID: 0, Kind.NOT_ID: 0, Kind.CELL_EMPTY: 0, Kind.SLOT_EMPTY: 0, Kind.LEN: 0,
         Kind.GLOBAL_STATE: 1, Kind.EQUALS: 1, Kind.TENSOR: 1, Kind.TYPE_ATTR: 1, Kind.TYPE_FIELD: 1,
         Kind.ABSENT: 2, Kind.PRESENT: 2, Kind.KEYS: 3, Kind.SET_EQUALS: 3, Kind.VALUES: 3,
         Kind.FRESH_CALL: 4, Kind.ALIAS: 5, Kind.NOT_ALIAS: 5, Kind.SHAPE: 5, Kind.PARTITION: 5}
# Relations between two sources come last: by then both ends have been checked themselves.
_FIXED = {Kind.ALIAS: (4, 0, 0), Kind.NOT_ALIAS: (4, 0, 0), Kind.SHAPE: (4, 0, 0), Kind.PARTITION: (4, 0, 0),
          Kind.GLOBAL_STATE: (1, 0, 0), Kind.FRESH_CALL: (3, 0, 0)}
# Guards that may imply others, and guards that may be implied.
_STRONG = frozenset({Kind.TENSOR, Kind.EQUALS, Kind.FRESH_CALL, Kind.ID, Kind.KEYS, Kind.SET_EQUALS})
_IMPLIED = frozenset({Kind.TYPE, Kind.LEN, Kind.PRESENT, Kind.ABSENT, Kind.EQUALS})


class GuardSet:
    """Guards in order of arrival, without repeats."""

    __slots__ = ("_by_key", "_instances")

    def __init__(self, guards: Iterable[Guard] = ()) -> None:
        self._by_key: dict[object, Guard | PatternInstance] = {}
        self._instances: list[PatternInstance] = []
        self.update(guards)

    def add(self, guard: Guard) -> bool:
        """Keep the guard; False when the same fact is already there (the first line that used it stays)."""
        return self._by_key.setdefault(guard.key, guard) is guard

    def add_instance(self, instance: PatternInstance) -> None:
        if self._by_key.setdefault(instance.key, instance) is instance:
            self._instances.append(instance)

    def update(self, guards: Iterable[Guard]) -> None:
        for guard in guards:
            self.add(guard)

    def prune(self) -> None:
        facts = _Facts(self.single())
        for key in [key for key, guard in self._by_key.items()
                    if type(guard) is Guard and guard.kind in _IMPLIED and facts.imply(guard)]:
            del self._by_key[key]

    def arrived(self) -> Iterable[Guard | PatternInstance]:
        return self._by_key.values()

    def single(self) -> list[Guard]:
        """The guards that arrived one by one."""
        if not self._instances:
            return list(self._by_key.values())  # type: ignore[arg-type]
        return [guard for guard in self._by_key.values() if type(guard) is Guard]

    def instances(self) -> list[PatternInstance]:
        return self._instances

    def spelled_out(self) -> GuardSet:
        """The same facts, each a guard of its own."""
        if not self._instances:
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

    def __init__(self, guards: GuardSet | None, kept: Iterable[Guard] = ()) -> None:
        self._set = guards
        self._made = list(kept)  # where there is no set

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
            # `__class__` of instances of static types, modules excepted, can never be assigned.
            if not _type_flags(type(value)) & _HEAP_TYPE and type(value) is not ModuleType:
                self.typed[source] = type(value)
        elif guard.kind is Kind.KEYS:
            self.keys[source] = value
        elif guard.kind is Kind.SET_EQUALS:
            self.sets[source] = value

    def imply(self, guard: Guard) -> bool:
        source, value = guard.source, guard.value
        if guard.kind is Kind.TYPE:
            return self.typed.get(source) is value
        if guard.kind is Kind.LEN:
            return self._length(source) == value
        if guard.kind is Kind.PRESENT:
            if any(same_constant(key, value) for key in self.keys.get(source, ())):
                return True
            entry = Key(source, value) if is_constant(value) else None  # a guard that reads it implies the key
            return entry is not None and (entry in self.typed or entry in self.identified)
        if guard.kind is Kind.ABSENT:
            return source in self.keys and not any(same_constant(key, value) for key in self.keys[source])
        if guard.kind is Kind.EQUALS:
            return source in self.identified and same_constant(self.identified[source], value)
        return False

    def _length(self, source: Source) -> int | None:
        if source in self.keys:
            return len(self.keys[source])
        if source in self.sets:
            return len(self.sets[source])
        value = self.equal.get(source)
        return len(value) if isinstance(value, (tuple, frozenset)) else None
