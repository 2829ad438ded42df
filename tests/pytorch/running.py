"""One test of a file of PyTorch's at a time, each in a forked child.

In: the path of a test file, and whose compiler it meets.  Out: one `Result` per test method.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import importlib.util
import linecache
import os
import re
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import stator
from tests.cpython.running import Ending, _flat, in_child, name_of
from tests.cpython.running import run_case as run_compiled

COUNTS = re.compile(r"frame_count|op_count|counters|assertExpectedInline|len\(.*graphs\)|call_count|num_guards")
ASSERTIONS = ("assertEqual", "assertNotEqual", "assertTrue", "assertFalse", "assertGreater", "assertLess", "assertLessEqual",
              "assertGreaterEqual", "assertIn", "assertNotIn", "assertExpectedInline", "assertExpectedInlineMunged")
SECONDS = 60.0
SECONDS_OF_A_METHOD = 30.0


@dataclass
class Result:
    """`verdict`: passed, skipped, counts (graphs or operations differ in number or in text, values do not), fewer
    (a number of them is smaller than the test wants), refused
    (fullgraph=True met a break), internal, different, crashed or timeout."""

    test: str
    verdict: str
    detail: str
    breaks: list[str]


def run_file(path: str, redirected: bool, wanted: Callable[[str], bool], values: bool = False) -> Iterator[Result]:
    if redirected:
        from tests.pytorch.redirect import redirect

        redirect()
    if values:
        ignore_counts(unittest.TestCase)
    cases = cases_of(path)
    load_all(redirected)
    for case in cases:
        if wanted(name_of(case)):
            ending = in_child(lambda case=case: run_case(case), SECONDS)
            yield Result(name_of(case), verdict_of(ending), ending.detail, ending.breaks)


def load_all(compiled: bool) -> None:
    """Load for all children at once what a first capture loads, and exempt it from the collector."""
    if compiled:
        torch.compile(grown_rows, backend="aot_eager")(torch.ones(2, 3, requires_grad=True)).sum().backward()
        torch._dynamo.reset()
    gc.collect()
    gc.freeze()


def grown_rows(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.softmax(x.reshape(-1, x.shape[0]), dim=0) + len(x)


def ignore_counts(base: type) -> None:
    """Assertions about numbers and texts of graphs hold, in `base` and its subclasses: those behind them are met."""
    for name in ASSERTIONS:
        for owner in {*base.__subclasses__(), base}:
            if name in vars(owner):
                setattr(owner, name, lenient(vars(owner)[name]))
    for derived in base.__subclasses__():
        ignore_counts(derived)


def lenient(assertion: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(assertion)
    def checked(case: Any, *given: Any, **named: Any) -> None:
        if torch.compiler.is_compiling() or not COUNTS.search(assertion.__name__ + statement_of(sys._getframe(1))):
            assertion(case, *given, **named)  # a frame of compiled code cannot be read

    return checked


def statement_of(frame: types.FrameType) -> str:
    """Source lines of the call that `frame` executes."""
    first, last, _, _ = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    return "".join(linecache.getline(frame.f_code.co_filename, line) for line in range(first or 0, (last or 0) + 1))


def run_methods(path: str, wanted: Callable[[str], bool]) -> Iterator[Result]:
    """Files that compile nothing themselves: each test method that passes is run again, compiled, as a whole."""
    cases = cases_of(path)
    stator.compile(grown_rows, backend="eager")(torch.ones(2, 3))
    load_all(compiled=False)
    for case in cases:
        if not wanted(name_of(case)):
            continue
        eager = in_child(lambda case=case: run_compiled(case, compiled=False), SECONDS_OF_A_METHOD)
        if eager.status != "passed":
            yield Result(name_of(case), "skipped", f"in eager: {eager.status}", [])
            continue
        ending = in_child(lambda case=case: run_compiled(case, compiled=True), SECONDS_OF_A_METHOD)
        verdict = "internal" if ending.internal else "different" if ending.status == "failed" else ending.status
        yield Result(name_of(case), verdict, "\n".join((ending.detail, *ending.internal)), ending.breaks)


def cases_of(path: str) -> list[unittest.TestCase]:
    folder = os.path.dirname(os.path.abspath(path))
    sys.path[:0] = [folder, os.path.dirname(folder)]
    name = os.path.basename(path).removesuffix(".py")
    supply_missing_names(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module).pop("load_tests", None)  # it insists on the file being the script that runs
    for each in vars(module).values():
        if isinstance(each, type) and "guard_manager_clone_hook_fn" in vars(each):  # called with less in that release
            setattr(each, "guard_manager_clone_hook_fn", lambda *given: None)
    return list(_flat(unittest.TestLoader().loadTestsFromModule(module)))


def supply_missing_names(path: str, seen: set[str] | None = None) -> None:
    """Another release's helpers, also of the files beside it: decorators that this one does not have decorate nothing."""
    seen = set() if seen is None else seen
    if path in seen or not os.path.exists(path):
        return
    seen.add(path)
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            module = getattr(statement, "module", None) or ""
            for alias in statement.names:
                if module.split(".")[0] in ("torch", "functorch"):
                    supply(module, alias.name)
                elif not module:
                    supply_missing_names(os.path.join(os.path.dirname(path), f"{alias.name}.py"), seen)


def supply(module_name: str, name: str) -> None:
    with contextlib.suppress(ImportError, SyntaxError):  # modules for a newer Python, too
        module = importlib.import_module(module_name)
        if not hasattr(module, name) and not is_module(f"{module_name}.{name}"):
            made_later = getattr(module, f"get_{name}", None)  # a list there, a function that makes it here
            value = False if name.isupper() else made_later() if made_later is not None else \
                Exception if name.endswith(("Exception", "Error")) else Nothing()
            setattr(module, name, value)


class Nothing:
    """A decorator, one that is made by a call, or a question that is answered with no."""

    def __call__(self, *decorated: Any, **settings: Any) -> Any:
        return decorated[0] if decorated and callable(decorated[0]) else self

    def __bool__(self) -> bool:
        return False


def is_module(name: str) -> bool:
    with contextlib.suppress(ImportError):
        return importlib.util.find_spec(name) is not None
    return False


def run_case(case: Any) -> Ending:
    from stator import events

    ending = Ending("passed")

    def keep_text(event: object) -> None:  # an event itself would keep the program's objects alive
        if isinstance(event, events.GraphBreak):
            ending.breaks.append(f"{event.code}: {event.cause}")
        elif isinstance(event, events.InternalFailure):
            ending.internal.append(repr(event.error))

    result = unittest.TestResult()
    events.subscribe(keep_text)
    unittest.TestSuite([case]).run(result)
    wrong = [text for _, text in (*result.errors, *result.failures)]
    if wrong or result.unexpectedSuccesses:
        ending.status, ending.detail = "failed", wrong[0] if wrong else "unexpected success"
    elif result.skipped or result.expectedFailures:
        ending.status = "skipped"
    return ending


def verdict_of(ending: Ending) -> str:
    if ending.internal or "stator.errors.InternalError" in ending.detail:
        return "internal"
    if ending.status != "failed":
        return ending.status
    lines = ending.detail.strip().splitlines()
    last = next((line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception|Unsupported)\b", line)), "")
    if last.startswith("stator.errors.Unsupported"):
        return "refused"
    numbers = re.search(r"Scalars are not equal!\s+Expected (\d+) but got (\d+)\.", ending.detail)
    if numbers is not None and int(numbers[2]) < int(numbers[1]):
        return "fewer"
    if numbers is not None or (any(COUNTS.search(line) for line in lines if line.startswith("    ")) and "AssertionError" in ending.detail):
        return "counts"
    return "different"
