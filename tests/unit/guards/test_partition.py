"""Which places share an address: C++ and Python agree, over objects, storages and byte ranges."""

from __future__ import annotations

import array
import itertools
from typing import Any

import numpy as np
import pytest
import torch

from stator import _core
from stator.guards.guard import Guard, Kind
from stator.guards.guard_semantics import explain
from stator.guards.partition import Address, NoAddress, SharedPlace, partition
from stator.source import DictOf, Key, Local
from tests.unit.guards.agreement import holds, program

NAMES = "abcdef"
LOCALS = [Local(name, index) for index, name in enumerate(NAMES)]


def guard_of(values: Any, address: Address = Address.OBJECT, written: Any = True) -> Guard:
    flags = written if isinstance(written, tuple) else (written,) * len(values)
    places = [SharedPlace(source, address, flag) for source, flag in zip(LOCALS, flags, strict=False)]
    return Guard(places[0].source, Kind.PARTITION, partition(places, values))


def layouts(count: int) -> list[tuple[int, ...]]:
    """Every partition of so many places, as the number of the object in each."""
    return [each for each in itertools.product(range(count), repeat=count)
            if all(number <= max(each[:place], default=-1) + 1 for place, number in enumerate(each))]


def expected(before: tuple[int, ...], now: tuple[int, ...], written: tuple[bool, ...]) -> bool:
    """The meaning, pair by pair: who shares an object with a written place is as it was."""
    def shared(layout: tuple[int, ...]) -> set[frozenset[int]]:
        classes = [frozenset(i for i, n in enumerate(layout) if n == number) for number in layout]
        return {each for each in classes if len(each) > 1 and any(written[i] for i in each)}
    return shared(before) == shared(now)


@pytest.mark.parametrize("count", [2, 3])
def test_every_partition_of_objects(count: int) -> None:
    objects: list[Any] = [[] for _ in range(count)]
    for written in itertools.product((True, False), repeat=count):
        for before in layouts(count):
            guard = guard_of([objects[n] for n in before], written=written)
            for now in layouts(count):
                assert holds(guard, *[objects[n] for n in now]) is expected(before, now, written), (written, before, now)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_partition_of_storages(count: int) -> None:
    storages = [torch.arange(8.0) for _ in range(count)]
    for before in layouts(count):
        guard = guard_of([storages[n][i:] for i, n in enumerate(before)], Address.STORAGE)
        for now in layouts(count):
            assert holds(guard, *[storages[n][2:4] for n in now]) is (before == now)


def test_many_places_are_sorted() -> None:
    objects: list[Any] = [[] for _ in range(600)]
    places = [SharedPlace(Local(f"x{i}", i), Address.OBJECT, i < 3) for i in range(600)]
    guard = Guard(places[0].source, Kind.PARTITION, partition(places, objects))
    assert holds(guard, *objects)
    assert not holds(guard, *objects[:599], objects[1])
    assert holds(guard, *objects[:599], objects[10])  # two that were only read


BASE = torch.arange(16.0)
ARRAY = np.arange(16.0)
BYTES = bytearray(64)
PACKED = array.array("d", range(4))
OTHER = torch.zeros(2, 3)

MEMORY: dict[str, tuple[Any, Any, bool]] = {
    "apart in one storage": (BASE[:4], BASE[4:8], False),
    "overlapping": (BASE[:5], BASE[4:8], True),
    "inside": (BASE[:8], BASE[2:4], True),
    "interleaved, by their ranges": (BASE[::2], BASE[1::2], True),
    "the same": (BASE, BASE, True),
    "an empty one": (BASE[:8], BASE[2:2], False),
    "two storages": (BASE, torch.zeros(16), False),
    "an expanded one": (BASE[3:4].expand(100), BASE[4:], False),
    "a transposed one": (OTHER.t(), OTHER[1], True),
    "of another dtype": (BASE.view(torch.int32)[:2], BASE[:1], True),
    "two tensors of one array": (torch.from_numpy(ARRAY), torch.from_numpy(ARRAY), True),
    "tensors of two parts of one array": (torch.from_numpy(ARRAY[:8]), torch.from_numpy(ARRAY[6:]), True),
    "a tensor and its array": (BASE[2:], BASE.numpy()[:3], True),
    "an array that is walked backwards": (ARRAY[7:3:-1], ARRAY[4:5], True),
    "arrays apart": (ARRAY[:4], ARRAY[4:], False),
    "a bytearray and a tensor": (BYTES, torch.frombuffer(BYTES, dtype=torch.float32), True),
    "a bytearray and a memoryview": (BYTES, memoryview(BYTES)[8:], True),
    "two bytearrays": (BYTES, bytearray(64), False),
    "an array.array and its array": (PACKED, np.frombuffer(PACKED), True),
    "nothing in the CPU's memory": (torch.zeros(3, device="meta"), torch.zeros(3, device="meta"), False),
}


@pytest.mark.parametrize("name", MEMORY)
def test_bytes(name: str) -> None:
    first, second, together = MEMORY[name]
    guard = guard_of([first, second], Address.MEMORY)
    assert (guard.value.groups == (0, 0)) is together
    assert holds(guard, first, second)
    apart = guard_of([torch.zeros(3), torch.zeros(3)], Address.MEMORY)
    assert holds(apart, first, second) is not together


def test_memory_that_moves_inside_a_storage() -> None:
    guard = guard_of([BASE[:4], BASE[2:6]], Address.MEMORY)
    assert not holds(guard, BASE[:4], BASE[3:7])
    assert not holds(guard, BASE[1:5], BASE[3:7])  # in their storage
    assert not holds(guard, BASE[2:6], BASE[:4])


def test_views_that_share_a_storage_without_memory() -> None:
    base = torch.zeros(6, device="meta")
    guard = guard_of([base, base[2:]], Address.STORAGE)
    assert guard.value.groups == (0, 0)
    assert not holds(guard, base, torch.zeros(6, device="meta"))


@pytest.mark.parametrize("odd", [None, 3, [], torch.zeros(2).to_sparse(), torch.nn.Module()], ids=repr)
def test_values_without_an_address_do_not_hold(odd: Any) -> None:
    for address in (Address.STORAGE, Address.MEMORY):
        guard = guard_of([torch.zeros(2), torch.zeros(2)], address)
        assert not holds(guard, torch.zeros(2), odd)
        failure = explain(guard, (torch.zeros(2), odd))
        assert failure is not None and failure.found
        with pytest.raises(NoAddress):
            partition(guard.value.places, [torch.zeros(2), odd])


@pytest.mark.parametrize(("values", "now", "text"), [
    ("ab", "aa", "a is not b; now a is b"),
    ("aa", "ab", "a is b; now a is not b"),
])
def test_a_failure_names_both_objects(values: str, now: str, text: str) -> None:
    objects: dict[str, Any] = {"a": [], "b": []}
    guard = guard_of([objects[name] for name in values])
    assert str(explain(guard, [objects[name] for name in now])) == text


def test_a_failure_names_both_tensors() -> None:
    guard = guard_of([BASE, OTHER, torch.zeros(1)], Address.STORAGE)
    failure = explain(guard, (BASE, OTHER, OTHER[0]))
    assert str(failure) == "b and c share no memory; now b and c share memory"
    assert guard.text() == "a, b, c share no memory"


class Holder:
    pass


@pytest.mark.parametrize("address", list(Address))
def test_an_alias_that_changes_behind_a_certificate(address: Address) -> None:
    """The objects on the way stay the same; what they hold, or where it lies, changes."""
    holder: Any = Holder()
    holder.a, holder.b = torch.zeros(4), torch.zeros(4)
    sources = [Key(DictOf(LOCALS[0]), name) for name in "ab"]
    guard = Guard(sources[0], Kind.PARTITION,
                  partition([SharedPlace(source, address) for source in sources], [holder.a, holder.b]))
    compiled = program([guard, *(Guard(source, Kind.TYPE, torch.Tensor) for source in sources)])
    for _ in range(4):
        assert compiled.check((holder,)) == -1
    kept = holder.b
    holder.b = holder.a
    assert compiled.check((holder,)) == 0
    holder.b = kept
    for _ in range(4):
        assert compiled.check((holder,)) == -1
    if address is not Address.OBJECT:
        holder.b.data = holder.a
        assert compiled.check((holder,)) == 0
        holder.b.data = torch.zeros(4)
        assert compiled.check((holder,)) == -1
        holder.b.set_(holder.a.untyped_storage(), 0, (4,))
        assert compiled.check((holder,)) == 0


def test_a_dict_and_the_object_it_belongs_to() -> None:
    holder: Any = Holder()
    places = [SharedPlace(DictOf(LOCALS[0])), SharedPlace(LOCALS[1])]
    guard = Guard(places[0].source, Kind.PARTITION, partition(places, [holder.__dict__, {}]))
    assert holds(guard, holder, {})
    assert not holds(guard, holder, holder.__dict__)


@pytest.mark.parametrize("payload", [
    None, (), ((), ()), (((0, 0, True),), (), ()), (((0, 9, True),), (0,), (None,)), (((7, 0, True),), (0,), (None,)),
    (((0, 0, True),), (1,), (None,)), (((0, 0, True),), ("x",), (None,)), (((0, 0, True),), (0,), (3,)), ((0,), (0,), (None,)),
])
def test_malformed_payloads_are_refused(payload: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        _core.GuardProgram([(0, -1, 0)], [(0, int(Kind.PARTITION), payload)], [], 1)
