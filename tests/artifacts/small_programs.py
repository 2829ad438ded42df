"""Hostile changes between two processes, one small program each.   python -m tests.artifacts.small_programs [names]

In: `small_python_programs.py` and `small_torch_programs.py`: programs that read one kind of fact (a global, a closure, a
custom operator, a setting), and changes of that fact by a statement or in the source.  Out: a line for each program whose loaded result or gradient
differs from eager (a stale result), or that misses without a change of its own; and counts.

Processes are forked from one that has imported torch and Stator.  A miss runs eagerly.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import torch

import stator
from stator import events
from stator.capture import first_call
from tests.artifacts import small_python_programs, small_torch_programs
from tests.artifacts.package_mutations import in_fork
from tests.artifacts.small_program import Small
from tests.comparison import CLOSE, EXACT, Snapshotter, differences

INPUT = torch.arange(6.0).reshape(2, 3) / 5 + 0.1


def outcome(fn: Any, given: torch.Tensor) -> list[Any]:
    """The result of a call and the gradient of its input, or the exception."""
    x = given.clone().requires_grad_()
    try:
        out = fn(x)
        parts = [each for each in (out if isinstance(out, (tuple, list)) else [out])
                 if isinstance(each, torch.Tensor) and each.requires_grad]
        if parts:
            sum([each.sum().abs() for each in parts]).backward()  # type: ignore[union-attr]
        return [out, x.grad]
    except Exception as error:
        return [type(error).__name__]


def imported(folder: Path, text: str) -> types.ModuleType:
    folder.mkdir(parents=True)
    (folder / "small_program.py").write_text(f"import torch\n{text}")
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    return importlib.import_module("small_program")


def save(folder: Path, small: Small) -> Any:
    compiled = stator.compile(imported(folder, small.text).program, backend=small.backend)
    outcome(compiled, INPUT)
    return [stator.save(compiled, str(folder / "entries")), stator.why_not_cached(compiled)]


def load(folder: Path, small: Small, change: str | tuple[str, str], path: str) -> Any:
    """Whether an entry was used, and differences from eager."""
    statement, text = change if type(change) is str else "", small.text
    if type(change) is tuple:
        assert change[0] in text, change
        text = text.replace(*change)
    module = imported(folder, text)
    exec(statement, {"m": module, "torch": torch, "sys": sys, "os": os, "types": types})  # noqa: S102  a line of the list
    first_call.tracer().may_compile = lambda *_: False  # type: ignore[attr-defined]
    compiled = stator.load(path, module.program, backend=small.backend)
    with events.record() as log:
        found = outcome(compiled, INPUT)
    with contextlib.redirect_stdout(io.StringIO()):
        expected = outcome(module.program, INPUT)
    hit = any(isinstance(each, events.EntryLoaded) for each in log)
    one, other = (Snapshotter("small").take(each, "result") for each in (expected, found))
    tolerance = EXACT.tolerance if small.backend == "eager" else CLOSE.tolerance
    return [hit, [str(each) for each in differences(one, other, "result", tolerance)][:2], stator.why_not_cached(compiled)]


def tried(small: Small, folder: Path) -> tuple[int, int, list[str]]:
    """Changes, hits, and problems of one program."""
    with stator.config.patch(artifact_key_file=str(folder / "key")):
        saved = in_fork(lambda: save(folder / "saved", small))
        if type(saved) is dict or not saved[0]:
            return 0, 0, [f"not stored: {small.name}: {saved}"]
        path, problems, hits = str(folder / "saved" / "entries"), [], 0
        changes: list[str | tuple[str, str]] = ["", *small.unrelated, *small.changes]
        for number, change in enumerate(changes):
            place = folder / str(number)
            row = in_fork(lambda place=place, change=change: load(place, small, change, path))  # type: ignore[misc]
            if type(row) is dict:
                problems.append(f"failed: {small.name}: {change}: {row['error']}")
            elif row[1]:
                problems.append(f"stale: {small.name}: {change}: {row[1]}")
            elif not row[0] and (not change or change in small.unrelated):
                problems.append(f"missed: {small.name}: {change}: {row[2]}")
            else:
                hits += bool(change) and row[0]
        return len(changes) - 1, hits, problems


def main(names: list[str]) -> int:
    stator.compile(torch.sin, backend="aot_eager")(INPUT)  # loads the tracer and AOTAutograd, which each child needs
    stator.reset()
    gc.freeze()  # a collection in a child would copy every page of its parent
    changes, hits, problems = 0, 0, list[str]()
    for small in (*small_python_programs.PROGRAMS, *small_torch_programs.PROGRAMS):
        if not names or small.name in names:
            with tempfile.TemporaryDirectory() as folder:
                some, hit, found = tried(small, Path(folder))
            changes, hits, problems = changes + some, hits + hit, problems + found
            print("\n".join([*found, f"{small.name}: {some} changes, {hit} hits"]), flush=True)
    print(f"{changes} changes, {hits} hits, {len(problems)} problems")
    return len(problems)


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
