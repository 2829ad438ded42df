"""A `__hash__` with effects is called as often as in eager: for keys of outside dicts, members of sets, and new keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stator


def outcomes(kind: str, wrap: Callable[[Any], Any]) -> Iterator[Any]:
    log: list[Any] = []

    class Key:
        asked = 0

        def __init__(self, number: int) -> None:
            self.number, self.own = number, 0

        def __hash__(self) -> int:
            if kind == "list":
                log.append(self.number)
            if kind == "class":
                Key.asked += 1
            if kind == "instance":
                self.own += 1
            if kind == "print":
                print("hash", self.number)
            return hash(self.number)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Key) and self.number == other.number

    table, members, key, member = {Key(1): 10, (Key(2), 3): 20}, {Key(1), Key(5)}, Key(1), Key(5)
    empty: dict[Any, int] = {}
    added: set[Any] = set()

    def read(x: torch.Tensor) -> Any:
        return x * table[key], member in members, x + len(table)

    def written(x: torch.Tensor) -> Any:
        empty[Key(3)] = 30
        added.add(Key(4))
        return x + 1

    def removed(x: torch.Tensor) -> Any:
        return x + empty.pop(Key(3)), added.discard(Key(4)), empty.setdefault(Key(7), 3)

    for program in (read, written, removed):
        compiled = wrap(program)
        for number in range(2):
            try:
                found = compiled(torch.ones(2))
            except KeyError:
                found = "KeyError"
            yield repr(found), list(log), Key.asked, key.own, member.own, len(empty), len(added), number


@pytest.mark.parametrize("kind", ["list", "class", "instance", "print", "none"])
def test_hashes_are_taken_as_often_as_in_eager(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = list(outcomes(kind, lambda function: function))
    printed = capsys.readouterr().out
    with stator.events.record() as log:
        assert list(outcomes(kind, lambda function: stator.compile(function, backend="eager"))) == expected
    assert capsys.readouterr().out == printed
    assert not [event for event in log if isinstance(event, stator.events.InternalFailure)]
    if kind == "none":
        assert not [event for event in log if isinstance(event, stator.events.GraphBreak)]
