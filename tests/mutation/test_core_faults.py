"""The faults that the core can be built with still have their places in it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.mutation.core_faults import Fault, numbered
from tests.mutation.faulty_core import patched
from tests.mutation.switch import has_faults

CSRC = Path(__file__).resolve().parents[2] / "csrc"


def test_each_fault_has_one_place() -> None:
    by_file: dict[str, list[tuple[int, Fault]]] = defaultdict(list)
    for number, fault in numbered():
        by_file[fault.file].append((number, fault))
    for name, faults in by_file.items():
        text = patched((CSRC / name).read_text(), faults)
        assert all(f"stator_fault == {number})" in text for number, _ in faults), name


def test_names_are_told_apart() -> None:
    names = [fault.mutant for _, fault in numbered()]
    assert len(set(names)) == len(names)


def test_the_core_that_is_shipped_has_no_faults() -> None:
    if "faults" not in CSRC.parts:
        assert not has_faults()
