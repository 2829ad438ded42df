"""Make the stage goldens of a program.   01_one_operation  ->  {"decode.txt": ..., "graph.txt": ..., ...}

Addresses, the checkout's path and the paths of the libraries are replaced: they differ from machine to machine.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import stator
from stator import events
from stator.code.decode import decode
from stator.report.text import graph_code
from tests.comparison import Report, Surroundings, World, compare_worlds, require_same, stator_compiler

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
PROGRAMS = sorted(path.parent.name for path in FOLDER.glob("*/program.py"))
STAGES = ("decode.txt", "graph.txt", "guards.txt", "residual.py")
# Instructions differ between versions of Python, names of operations and guards between versions of torch.
REFERENCE = "Python 3.11 and torch 2.13"
IS_REFERENCE = sys.version_info[:2] == (3, 11) and torch.__version__.startswith("2.13.")
ADDRESS = re.compile(r"0x[0-9a-f]{6,}\b|\b\d{12,}\b")
INSTALLED = re.compile(r"[^\s'\"]*/(?:site|dist)-packages/")
STANDARD = re.compile(r"[^\s'\"]*/lib/python3\.\d+/")


def portable(text: str) -> str:
    text = STANDARD.sub("<python>/", INSTALLED.sub("<installed>/", text))
    return ADDRESS.sub("0xaddress", text.replace(str(ROOT), "<root>"))


def load(name: str) -> types.ModuleType:
    path = FOLDER / name / "program.py"
    spec = importlib.util.spec_from_file_location(f"golden_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def world(name: str) -> World:
    module = load(name)

    def state() -> dict[str, Any]:
        return {key: value for key, value in vars(module).items()
                if not key.startswith("__") and not isinstance(value, types.ModuleType)}

    calls = [lambda args=args: (args, {}) for args in module.calls()]
    return World(module.program, calls, Surroundings(module.__name__, str(module.__file__), state))


def stages(name: str) -> dict[str, str]:
    """Run a program eagerly and compiled, require equal outcomes, and write down each stage."""
    stator.reset()
    report = require_same(compare_worlds(lambda: world(name), stator_compiler()))
    program = load(name).program
    function = program.forward.__func__ if isinstance(program, torch.nn.Module) else program
    texts = {
        "decode.txt": decoded(function.__code__),
        "graph.txt": each_capture(report, "#", graph_text),
        "guards.txt": each_capture(report, "#", guard_text),
        "residual.py": each_capture(report, "#", lambda event: event.residual_source),
    }
    return {stage: portable(text).rstrip() + "\n" for stage, text in texts.items()}


def decoded(code: types.CodeType) -> str:
    unit = decode(code)
    lines = []
    for each in unit.instructions:
        operand = f"to {each.target}" if each.target is not None else "" if each.arg is None else repr(each.argval)
        if isinstance(each.argval, types.CodeType):
            operand = f"<code {each.argval.co_name}>"
        lines.append(f"line {each.line or '-':<4} {each.index:>3}  {each.opname:<24} {operand}".rstrip())
    for entry in unit.exception_table:
        lines.append(f"exceptions in {entry.start} to {entry.end}: handler {entry.target}, stack depth {entry.depth}"
                     + (", with the instruction's offset" if entry.lasti else ""))
    return "\n".join(lines)


def each_capture(report: Report, comment: str, text: Callable[[Any], str]) -> str:
    """The captures in order, with the graph breaks between them."""
    parts, number = [], 0
    for event in report.log:
        if isinstance(event, events.CaptureFinished):
            number += 1
            parts.append(f"{comment} capture {number}: {event.name}\n\n{text(event).strip() or f'{comment} none'}\n")
        elif isinstance(event, events.GraphBreak):
            parts.append(f"{comment} graph break {event.code}: {event.cause.splitlines()[0]}\n")
    return "\n".join(parts)


def graph_text(event: events.CaptureFinished) -> str:
    return "" if event.graph is None else graph_code(event.graph)


def guard_text(event: events.CaptureFinished) -> str:
    return "\n".join(guard.text() + (f"    line {guard.where[1]} in {guard.where[2]}" if guard.where else "")
                     for guard in event.guard_list)
