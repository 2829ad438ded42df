"""State of one mechanism in one trace.   locks, streams, class attributes  ->  compared, undone, cleared

A subclass for each mechanism owns what the trace notes for it; `vm.mechanisms` lists them.  emit/ has a writer for a
mechanism whose state the residual has to write back.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, ClassVar


class Mechanism:
    """State that one mechanism keeps for one trace."""

    __slots__ = ()

    feeds_graph = False  # whether its notes are part of the graph or its inputs: no change of anything outside
    counted: ClassVar[tuple[str, ...]] = ()  # fields whose lengths are the fingerprint
    not_replayed: ClassVar[tuple[str, ...]] = ()  # fields that replay does not copy; it needs them of equal length
    written_back: ClassVar[tuple[str, ...]] = ()  # fields with changes of outside state
    prevents_replay: ClassVar[tuple[str, ...]] = ()  # further fields that are empty where calls are replayed
    # Derived from these: fields that `allows_replay` and `replay_key` read; None where a subclass has its own.
    empty_for_replay: ClassVar[tuple[str, ...] | None] = ()
    equal_for_replay: ClassVar[tuple[str, ...] | None] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = cls.has_changes is not Mechanism.has_changes or cls.allows_replay is not Mechanism.allows_replay
        cls.empty_for_replay = None if own else (*cls.written_back, *cls.prevents_replay)
        own = cls.fingerprint is not Mechanism.fingerprint or cls.replay_key is not Mechanism.replay_key
        cls.equal_for_replay = None if own else (*cls.counted, *cls.not_replayed)

    def fingerprint(self) -> Any:
        """Compare equal before and after a stretch of the trace that has changed nothing here."""
        return [len(getattr(self, name)) for name in self.counted]

    def replay_key(self) -> Any:
        """Compare equal before and after a call that may be replayed."""
        return self.fingerprint(), *[len(getattr(self, name)) for name in self.not_replayed]

    def has_changes(self) -> bool:
        """Whether the trace has changed outside state that the residual writes back."""
        return any([getattr(self, name) for name in self.written_back])

    def allows_replay(self) -> bool:
        """Whether calls may be replayed now."""
        return not (self.has_changes() or any([getattr(self, name) for name in self.prevents_replay]))

    def undo(self) -> None:
        """Put back what the trace itself has changed in the process."""

    def clear(self) -> None:
        """Release the objects of the program."""
        name: str
        for name in self.__slots__:
            held = getattr(self, name)
            if type(held) is dict or type(held) is list:
                held.clear()


def all_allow_replay(mechanisms: Iterable[Mechanism]) -> bool:
    """Whether each one allows it; asked before and after each call of a module."""
    for each in mechanisms:
        names = each.empty_for_replay
        if names is None:
            if not each.allows_replay():
                return False
        else:
            for name in names:
                if getattr(each, name):
                    return False
    return True


def replay_keys(mechanisms: Iterable[Mechanism]) -> list[Any]:
    """The keys of all: what is constant is left out."""
    found: list[Any] = []
    for each in mechanisms:
        names = each.equal_for_replay
        if names is None:
            found.append(each.replay_key())
        else:
            for name in names:
                found.append(len(getattr(each, name)))
    return found


def key_ids(table: dict[Hashable, dict[str, Any]]) -> list[tuple[Hashable, str, int]]:
    """Fingerprint of a table of attributes by owner."""
    return [(key, name, id(value)) for key, own in table.items() for name, value in own.items()]
