"""Move the facts of one object to others like it.   the guards of layers[0]  ->  those of layers[1]

In: the guards whose sources start at one object (`Pattern`), and the source of another (`PatternInstance`).
Out: the same guards about that one, made when they are read. `lower` needs none of them: it numbers the nodes of a
pattern once and shifts them for each instance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stator.guards.guard import Guard
from stator.source import CallOf, DictOf, Index, Key, Source, parents, with_base

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
        for each in self.sources[len(self._makers):number + 1]:
            self._makers.append(self._maker(each))
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
    """A pattern, said of the object at another source."""

    __slots__ = ("pattern", "root", "_made", "_guards")

    def __init__(self, pattern: Pattern, root: Source) -> None:
        self.pattern, self.root = pattern, root
        self._made: dict[int, Source] = {0: root}
        self._guards: list[Guard] | None = None

    @property
    def key(self) -> tuple[Pattern, Source]:
        """What deduplication compares."""
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
        """The sources that somebody has asked for so far."""
        return self._made.items()

    def guard(self, number: int) -> Guard:
        """One of its guards."""
        guard, place = self.pattern.facts[number]
        return guard.moved(self.source(place), guard.value)

    def guards(self) -> list[Guard]:
        """All of its guards, in the order in which the first object's arose."""
        if self._guards is None:
            self._guards = [self.guard(number) for number in range(len(self.pattern.facts))]
        return self._guards
