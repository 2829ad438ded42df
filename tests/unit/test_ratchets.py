"""The tree keeps what it has reached, and each rule of tools/ratchets.py finds its own violation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import ratchets

STORED = json.loads(ratchets.STORE.read_text())


def class_of(fields: int, on_self: int) -> str:
    """A class with annotated fields, and attributes that two of its methods assign."""
    lines = ["class Large:", *(f"    f{n}: int" for n in range(fields)), "    def __init__(self):", "        self.a0 = 1",
             "    def change(self):", "        self.a0 += 1", *(f"        self.a{n}, x = n, 1" for n in range(on_self))]
    return "\n".join(lines)


def test_tree_keeps_its_ratchets():
    found = ratchets.problems(ratchets.ROOT, STORED)
    assert not found, "\n" + "\n".join(found)


def test_a_class_has_few_attributes():
    assert not list(ratchets.large_classes({"m.py": class_of(10, 5)}, {}))
    assert list(ratchets.large_classes({"m.py": class_of(10, 6)}, {})) == ["m.py:Large has 16 attributes, more than 15"]


def test_an_exception_has_a_reason_and_is_needed():
    large, small = {"m.py": class_of(10, 6)}, {"m.py": class_of(10, 5)}
    assert not list(ratchets.large_classes(large, {"m.py:Large": "it mirrors another"}))
    assert list(ratchets.large_classes(large, {"m.py:Large": ""})) == ["m.py:Large has 16 attributes, more than 15"]
    assert list(ratchets.large_classes(small, {"m.py:Large": "x"})) == ["m.py:Large is no exception any more"]


def test_there_are_five_exceptions_at_most():
    excepted = {f"m{n}.py:Large": "a reason" for n in range(6)}
    sources = {f"m{n}.py": class_of(16, 0) for n in range(6)}
    assert list(ratchets.large_classes(sources, excepted)) == ["6 classes are excepted, more than 5"]


def test_any_only_falls():
    sources = {"m.py": "def f(x: Any, y: list[Any], *a: Any) -> Any: ...\nz: Any = 1\n"}
    assert ratchets.count_any(sources) == 4
    assert not list(ratchets.too_many_any(sources, 4))
    assert list(ratchets.too_many_any(sources, 3)) == ["4 annotations are Any, more than the 3 that there were"]


@pytest.mark.parametrize("path", ["stator/m.py", "csrc/m.cpp"])
def test_files_are_short(path: str):
    assert not ratchets.long_files({path: "x\n" * 500})
    assert ratchets.long_files({path: "x\n" * 501}) == {path: 501}
    assert list(ratchets.too_long({path: 501}, {}, 500)) == [f"{path} has 501 lines, more than 500"]
    assert not list(ratchets.too_long({path: 510}, {path: 510}, 500))
    assert list(ratchets.too_long({path: 511}, {path: 510}, 500)) == [f"{path} has 511 lines, more than 510"]


def test_functions_are_short():
    def method_of(lines: int) -> str:
        return "class Each:\n    def walk(self):\n" + "        x = 1\n" * (lines - 1) + "    y = 1\n"

    assert dict(ratchets.functions_of(method_of(7))) == {"Each.walk": 7}
    assert not ratchets.long_functions({"m.py": method_of(60)})
    assert ratchets.long_functions({"m.py": method_of(61)}) == {"m.py:Each.walk": 61}


def test_lines_are_counted_by_room():
    sources = {"stator/api.py": "x\n", "stator/interp/a.py": "x\n" * 2, "stator/interp/calls/deep/b.py": "x\n" * 5}
    assert ratchets.lines_of_rooms(sources) == {"stator/interp/calls": 5, "stator/interp": 2, "stator": 1}


def test_words_of_file_names_are_known():
    glossary = ratchets.glossary_words("| word | meaning |\n|---|---|\n| write-back | apply changes |\n")
    assert {"write", "back"} <= glossary
    assert not list(ratchets.unknown_words(["stator/emit/write_back.py", "stator/interp/opcodes_since_312.py"], glossary))
    found = list(ratchets.unknown_words(["stator/interp/tensor_gizmos.py"], glossary))
    assert len(found) == 1 and "`gizmos`" in found[0]


def test_update_lowers_and_never_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stored = {"any": 10, "long_files": {"a.c": 600, "b.c": 600, "c.c": 600}, "long_functions": {"f": 70}}
    measured = {"any": 11, "long_files": {"a.c": 550, "b.c": 700, "d.c": 501}, "long_functions": {"f": 65, "g": 61}}
    assert ratchets.lowered(stored, measured) == {
        "any": 10, "long_files": {"a.c": 550, "b.c": 600}, "long_functions": {"f": 65}}
    store = tmp_path / "ratchets.json"
    store.write_text(json.dumps({"any": 10**6, "long_files": {}, "long_functions": {}}))
    monkeypatch.setattr(ratchets, "STORE", store)
    ratchets.main(["--update"])
    kept = json.loads(store.read_text())
    assert 0 < kept["any"] < 10**6 and kept["long_files"] == kept["long_functions"] == {}
