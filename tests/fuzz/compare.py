"""Run the text of a program eagerly and compiled, each in a world of its own, and list the differences.

In: a module's text that defines `inputs(k)` and `program(...)`.
Out: the differences, call by call, in every part of an outcome but warnings (tests/comparison/call_outcome.py).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import linecache
import marshal
import signal
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

import stator
from tests.comparison import (
    Call,
    Checks,
    Inputs,
    Snapshot,
    Surroundings,
    World,
    differences,
    fresh_inputs,
    identity,
    observe_call,
)
from tests.comparison.eager_and_compiled import Compiler

# CPython's own line of an unbound local changes once its code is warm: a pair of instructions became one.
CHECKS = Checks(warnings="none", gradients="backward", no_line_of=(UnboundLocalError,))
CALLS = (0, 0, 1, 2, 3, 4)
FILE = "<fuzzed program>"
MODULE = "fuzzed_program"
EAGER_SECONDS = 2.0
STATE = ("G_COUNT", "G_LIST", "G_TABLE", "Point", "Late", "default_grows", "G_STEP", "G_RATE", "G_DEQUE", "G_GAUGE", "G_PARAM",
         "Gauge", "Counted", "Boxed", "G_LAYER", "Base", "traced", "thrice", "Mood", "G_ARRAY", "G_FACE", "G_BYTES",
         "G_BUFFER", "G_SHORTS", "G_ONE", "G_TWO", "G_NS", "G_VARS", "G_GRADS", "G_LOG")


class Endless(BaseException):
    """No handler of a generated program names it; an `__exit__` may suppress it."""


def load(source: str) -> types.ModuleType:
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    exec(marshal.loads(compiled_text(source)), module.__dict__)
    return module


@functools.lru_cache(maxsize=1)
def compiled_text(source: str) -> bytes:
    """Marshal the code of a module: each world loads a code object of its own, which is not warm yet."""
    return marshal.dumps(compile(source, FILE, "exec"))


def compiled(program: Callable[..., Any]) -> Callable[..., Any]:
    return stator.compile(program, backend="eager", options={"strict": True})


def world_of(source: str) -> World:
    """The module of a program; the globals that its prelude declares are the state that is compared."""
    module = load(source)

    def leaves(inputs: Call) -> list[torch.Tensor]:
        leaf = module.__dict__.get("G_PARAM")
        if leaf is None:
            return []
        leaf.grad = None
        return [leaf]

    surroundings = Surroundings(MODULE, FILE, lambda: {name: module.__dict__.get(name) for name in STATE}, leaves,
                                lambda: digits(sys.int_info.default_max_str_digits))
    return World(module.program, [lambda number=number: (module.inputs(number), {}) for number in CALLS], surroundings)


def outcomes(source: str, compiler: Compiler) -> list[Snapshot]:
    """The calls of a program. Garbage of one call is collected before the next; what it prints then goes nowhere."""
    found: list[Snapshot] = []
    world = world_of(source)
    gc.disable()
    try:
        subject = compiler(world.fn)
        for inputs in world.calls:
            found.append(observe(world, subject, inputs))
            with contextlib.redirect_stdout(io.StringIO()):
                gc.collect(0)  # all that the call has made is young: nothing was collected meanwhile
    finally:
        gc.enable()
        torch.set_grad_enabled(True)
    return found


def observe(world: World, subject: Callable[..., Any], inputs: Inputs) -> Snapshot:
    unraisable: list[str] = []
    with digits(0), unraisable_to(unraisable):  # a program may make numbers that only a snapshot shows
        try:
            arguments = fresh_inputs(inputs)
        except Exception as exception:  # the calls before have changed a class that the inputs are made of
            return Snapshot(f"no inputs: {type(exception).__name__}: {exception}")
        snapshot = observe_call(subject, arguments, world.surroundings, CHECKS, (Endless, KeyboardInterrupt))
    if unraisable:
        snapshot.parts["unraisable"] = Snapshot("; ".join(unraisable))
    return snapshot


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


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[list[Endless]]:
    """Raises `Endless` in a program that uses more processor time, and lists it; only the main thread can say so."""
    raised: list[Endless] = []

    def stop(number: int, frame: Any) -> None:
        raised.append(Endless(seconds))
        raise raised[-1]

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield raised
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
        with limited(EAGER_SECONDS) as raised:
            eager = outcomes(source, identity)
    except (Endless, MemoryError):
        return []
    if raised:  # a context manager of the program has suppressed it
        return []
    captured = outcomes(source, compiled)
    found: list[str] = []
    for call, (left, right) in enumerate(zip(eager, captured, strict=True)):
        found.extend(differences(left, right, f"call {call}"))
    return found
