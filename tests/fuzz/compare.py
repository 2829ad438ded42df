"""Run the text of a program eagerly and compiled, each in a world of its own, and list the differences.

In: a module's text that defines `inputs(k)` and `program(...)`.
Out: the differences, call by call: value, types, aliasing, exception with its text and line, what became of
the arguments, of the module's globals and classes, and the printed text.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

import stator
from tests.portrait import Describer, Portrait, differences, without_addresses

CALLS = (0, 0, 1, 2, 3, 4)
FILE = "<fuzzed program>"
MODULE = "fuzzed_program"
STATE = ("G_COUNT", "G_LIST", "G_TABLE", "Point", "Late", "default_grows")


def load(source: str) -> types.ModuleType:
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    exec(compile(source, FILE, "exec"), module.__dict__)
    return module


def compiled(program: Callable[..., Any]) -> Callable[..., Any]:
    return stator.compile(program, backend="eager", options={"strict": True})


def observe(module: types.ModuleType, subject: Callable[..., Any], number: int) -> Portrait:
    arguments = module.inputs(number)
    seen = Describer(MODULE)
    root = Portrait("call")
    printed = io.StringIO()
    result: Any = None
    raised: Exception | None = None
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = subject(*arguments)
        except Exception as exception:  # the program's own exception is an outcome to compare
            raised = exception
    root.parts["args"] = seen.describe(list(arguments), "args")
    if raised is None:
        root.parts["result"] = seen.describe(result, "result")
    else:
        root.parts["raised"] = seen.describe(raised, "raised")
        root.parts["line"] = Portrait(f"line {raising_line(raised)}")
    root.parts["state"] = seen.describe({name: module.__dict__.get(name) for name in STATE}, "state")
    root.parts["printed"] = Portrait(repr(without_addresses(printed.getvalue())))
    root.parts["grad mode"] = Portrait(str(torch.is_grad_enabled()))
    torch.set_grad_enabled(True)
    return root


def raising_line(raised: BaseException) -> int | None:
    line, trace = None, raised.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def outcomes(source: str, compiler: Callable[[Callable[..., Any]], Callable[..., Any]]) -> list[Portrait]:
    module = load(source)
    subject = compiler(module.program)
    return [observe(module, subject, number) for number in CALLS]


def compare(source: str) -> list[str]:
    """The differences between the program and its compiled self; empty when there are none."""
    linecache.cache[FILE] = (len(source), None, source.splitlines(True), FILE)
    stator.reset()
    eager = outcomes(source, lambda program: program)
    captured = outcomes(source, compiled)
    found: list[str] = []
    for call, (left, right) in enumerate(zip(eager, captured, strict=True)):
        found.extend(differences(left, right, f"call {call}"))
    return found
