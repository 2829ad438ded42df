"""stator.bisect finds the operation, guard or effect at fault, and writes a script that shows it."""

from __future__ import annotations

import itertools
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import stator
from stator.emit.effects import write_back
from stator.guards.guard import Kind
from stator.heap.heap import Heap

X = torch.tensor([1.0, -2.0, 3.0])


def wrong_mul(gm, example_inputs):
    """A backend that multiplies by adding, where a relu comes before."""
    for node in gm.graph.nodes:
        if getattr(node.target, "__name__", "") == "mul":
            node.target = torch.add
    gm.recompile()
    return gm


def only_together(gm, example_inputs):
    """A backend that is wrong about sin only after a relu, as a bad fusion would be."""
    for node in gm.graph.nodes:
        if node.target is torch.sin and getattr(node.args[0], "target", None) is torch.relu:
            node.target = torch.cos
    gm.recompile()
    return gm


def program(x):
    y = torch.relu(x) + 1
    for _ in range(5):
        y = y - 1
    z = y * 3
    return torch.tanh(z) + y


def fused(x):
    y = torch.relu(x + 1)
    return torch.sin(y) * 2


def breaks_first(x):
    y = x + 1
    stator.graph_break()
    return y * 3 - 1


def changes(x, out):
    out.append(x.sum())
    out.append(2)
    return x + 1


def prints(x):
    print("one")
    y = x + 1
    print("two")
    return y


def test_nothing_is_found_where_nothing_is_wrong(tmp_path: Path) -> None:
    assert stator.bisect(program, str(tmp_path), backend="eager")(X) is None
    assert list(tmp_path.iterdir()) == []


def test_the_operation_and_a_script(tmp_path: Path) -> None:
    compiled = stator.compile(program, backend=wrong_mul)
    compiled(X)
    found = stator.bisect(compiled, str(tmp_path))(X)
    assert found.kind == "operation" and "mul wrong" in found.what
    assert found.line == program.__code__.co_firstlineno + 4 and found.filename == __file__
    operations = [node for node in found.graph.graph.nodes if node.op.startswith("call")]
    assert len(operations) == 1 and len(found.inputs) == 1
    script = Path(found.path)
    assert script.parent == tmp_path and stat.S_IMODE(script.stat().st_mode) == 0o600
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=Path(__file__).parents[3],
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])})
    assert done.returncode == 1 and "AssertionError" in done.stderr, done.stderr
    assert "z = y * 3" in str(found)


def test_a_fault_that_needs_two_operations() -> None:
    found = stator.bisect(fused, None, backend=only_together)(X)
    assert found.kind == "operation" and "sin wrong" in found.what
    names = [node.name for node in found.graph.graph.nodes if node.op.startswith("call")]
    assert names[-2:] == ["relu", "sin"] and found.line == fused.__code__.co_firstlineno + 2


def test_a_graph_after_a_break() -> None:
    found = stator.bisect(breaks_first, None, backend=wrong_mul)(X)
    assert found.kind == "operation" and found.line == breaks_first.__code__.co_firstlineno + 3


def test_the_guard(monkeypatch: Any) -> None:
    def scaled(x, n):
        return x * n

    guard = Heap.guard
    monkeypatch.setattr(Heap, "guard", lambda heap, source, kind, value:
                        None if kind is Kind.EQUALS and source.text() == "n" else guard(heap, source, kind, value))
    compiled = stator.compile(scaled, backend="eager", dynamic=False)
    compiled(X, 2)
    monkeypatch.undo()
    assert compiled(X, 3).equal(X * 2), "the fault is there"
    found = stator.bisect(compiled, None)(X, 3)
    assert found.kind == "guard" and "n == 3" in found.what and found.line == scaled.__code__.co_firstlineno + 1


def test_effects(monkeypatch: Any, tmp_path: Path) -> None:
    diff = write_back._diff
    monkeypatch.setattr(write_back, "_diff", lambda build, tracker, lines:
                        None if type(tracker.original) is list else diff(build, tracker, lines))
    out: list[Any] = []
    found = stator.bisect(changes, str(tmp_path), backend="eager")(X, out)
    assert found.kind == "effect" and found.line == changes.__code__.co_firstlineno + 1 and out == []
    assert "def changes(x, out):" in Path(found.path).read_text()
    monkeypatch.undo()
    replay = write_back.write_effect
    monkeypatch.setattr(write_back, "write_effect", lambda build, effect:
                        "pass" if "two" in str(effect) else replay(build, effect))
    found = stator.bisect(prints, None, backend="eager")(X)
    assert found.kind == "effect" and "printed text" in found.what
    assert found.line == prints.__code__.co_firstlineno + 3


def test_a_program_that_differs_from_itself() -> None:
    clock = itertools.count()

    def ticks(x):
        return x + hash(next(clock))

    found = stator.bisect(ticks, None, backend="eager")(X)
    assert found.kind == "program" and "twice" in found.what
