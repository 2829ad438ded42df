"""Run the text of a program eagerly and compiled, each in a world of its own, and list the differences.

In: a module's text that defines `inputs(k)` and `program(...)`.
Out: the differences, call by call: value, types, aliasing, exception with its text and line, what became of
the arguments, of the module's globals and classes, and the printed text.
"""

from __future__ import annotations

import contextlib
import gc
import io
import linecache
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

import stator
from tests.portrait import Describer, Portrait, differences, without_addresses

CALLS = (0, 0, 1, 2, 3, 4)
FILE = "<fuzzed program>"
MODULE = "fuzzed_program"
EAGER_SECONDS = 2.0
STATE = ("G_COUNT", "G_LIST", "G_TABLE", "Point", "Late", "default_grows", "G_STEP", "G_RATE", "G_DEQUE", "G_GAUGE", "G_PARAM",
         "Gauge", "Counted", "Boxed", "G_LAYER", "Base", "traced", "thrice", "Mood", "G_ARRAY", "G_FACE", "G_BYTES",
         "G_BUFFER", "G_SHORTS", "G_ONE", "G_TWO", "G_NS", "G_VARS", "G_GRADS", "G_LOG")


class Endless(BaseException):
    """No handler of a generated program catches it."""


def load(source: str) -> types.ModuleType:
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    exec(compile(source, FILE, "exec"), module.__dict__)
    return module


def compiled(program: Callable[..., Any]) -> Callable[..., Any]:
    return stator.compile(program, backend="eager", options={"strict": True})


def observe(module: types.ModuleType, subject: Callable[..., Any], number: int) -> Portrait:
    """One call; what it leaves to the garbage collector is collected before the next, and says what it says to nobody."""
    gc.disable()
    try:
        with digits(0):  # a program may make numbers that only a portrait shows
            return seen_of_a_call(module, subject, number)
    finally:
        with contextlib.redirect_stdout(io.StringIO()):
            gc.collect(0)  # all that the call has made is young: nothing was collected meanwhile
        gc.enable()
        torch.set_grad_enabled(True)


def seen_of_a_call(module: types.ModuleType, subject: Callable[..., Any], number: int) -> Portrait:
    seen = Describer(MODULE)
    root = Portrait("call")
    try:
        arguments = module.inputs(number)
    except Exception as exception:  # the calls before have changed a class that the inputs are made of
        root.parts["inputs"] = Portrait(f"{type(exception).__name__}: {exception}")
        return root
    printed = io.StringIO()
    result: Any = None
    raised: Exception | None = None
    unraisable: list[str] = []
    with contextlib.redirect_stdout(printed), warnings.catch_warnings(), digits(sys.int_info.default_max_str_digits), \
            unraisable_to(unraisable):
        warnings.simplefilter("ignore")
        try:
            result = subject(*arguments)
        except Exception as exception:  # the program's own exception is an outcome to compare
            raised = exception
    if unraisable:
        root.parts["unraisable"] = Portrait("; ".join(unraisable))
    root.parts["args"] = seen.describe(list(arguments), "args")
    if raised is None:
        root.parts["result"] = seen.describe(result, "result")
    else:
        root.parts["raised"] = seen.describe(raised, "raised")
        # CPython's own line of an unbound local changes once its code is warm: a pair of instructions became one.
        if not isinstance(raised, UnboundLocalError):
            root.parts["line"] = Portrait(f"line {raising_line(raised)}")
    root.parts["state"] = seen.describe({name: module.__dict__.get(name) for name in STATE}, "state")
    root.parts["printed"] = Portrait(repr(without_addresses(printed.getvalue())))
    root.parts["gradient"] = gradient(result, module.__dict__.get("G_PARAM"))
    root.parts["grad mode"] = Portrait(str(torch.is_grad_enabled()))
    return root


@contextlib.contextmanager
def unraisable_to(found: list[str]) -> Iterator[None]:
    """Keep the exceptions that destructors raise, and that nobody can catch."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda failure: found.append(f"{type(failure.exc_value).__name__}: {failure.exc_value}")
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextlib.contextmanager
def digits(most: int) -> Iterator[None]:
    """Let numbers of so many digits be written; 0 is any."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(most)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)


def gradient(result: Any, leaf: Any) -> Portrait:
    """What flows back to the leaf from the tensors of the result."""
    found = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor) and each.grad_fn is not None]
    if not found or leaf is None:
        return Portrait("none")
    leaf.grad = None
    try:
        torch.autograd.backward([each.sum() for each in found])
    except RuntimeError as error:  # freed by a backward pass of the program's own
        return Portrait(f"{type(error).__name__}: {str(error)[:60]}")
    return Portrait("gradient") if leaf.grad is None else Describer(MODULE).describe(leaf.grad, "gradient")


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


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises `Endless` in a program that uses more processor time; only the main thread can say so."""
    def stop(number: int, frame: Any) -> None:
        raise Endless(seconds)

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def compare(source: str) -> list[str]:
    """The differences between the program and its compiled self; empty when there are none.

    A program that never ends in eager (a list that grows while it is looped over) has nothing to compare.
    """
    linecache.cache[FILE] = (len(source), None, source.splitlines(True), FILE)
    stator.reset()
    try:
        with limited(EAGER_SECONDS):
            eager = outcomes(source, lambda program: program)
    except (Endless, MemoryError):
        return []
    captured = outcomes(source, compiled)
    found: list[str] = []
    for call, (left, right) in enumerate(zip(eager, captured, strict=True)):
        found.extend(differences(left, right, f"call {call}"))
    return found
