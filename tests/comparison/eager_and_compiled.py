"""Run one program eagerly and compiled over a list of calls, each side on a world of its own, and compare the outcomes.

    same_as_eager(fn, call(x), call(y), graphs=1)      one function; raises AssertionError with the differences
    compare_worlds(make_world, compiler)               any world; a `Report` with differences and Stator's events

In: a function and its calls, or a factory of `World`s, which builds function, inputs and state afresh for each side.
Out: a `Report`. Every part of an outcome (call_outcome.py) is compared after each call: the first input, the same
again, then the other inputs.

STATOR_TEST_IDENTITY=1 compiles with the identity: eager must then equal eager (well-formed cases).
STATOR_TEST_FAULT=<kind> corrupts the compiled side (injected_faults.py): the comparison must then fail.
"""

from __future__ import annotations

import contextlib
import copy
import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

import stator
from stator import events
from tests.comparison.call_outcome import (
    CLOSE,
    EXACT,
    Call,
    Checks,
    Surroundings,
    no_change,
    observe_call,
)
from tests.comparison.injected_faults import corrupt
from tests.comparison.value_snapshot import Snapshot, differences, without_addresses

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
Inputs = Call | tuple[Any, ...] | Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]
CALL_NAMES = ("first call", "repeat")


def call(*args: Any, **kwargs: Any) -> Call:
    return Call(args, kwargs)


def fresh_inputs(inputs: Inputs) -> Call:
    """New inputs for one call: a factory is called, a tuple is copied with its inner aliasing."""
    if isinstance(inputs, Call):
        return copy.deepcopy(inputs)
    if isinstance(inputs, tuple):
        return Call(copy.deepcopy(inputs), {})
    args, kwargs = inputs()
    return Call(args, kwargs)


@dataclass
class World:
    """All that one side owns: the function, its inputs, the state that is compared, changes between the calls."""

    fn: Callable[..., Any]
    calls: Sequence[Inputs]
    surroundings: Surroundings
    before: Callable[[int], Any] = no_change  # before call number i
    undo: Callable[[], Any] = lambda: None
    names: Sequence[str] = CALL_NAMES  # of the calls


@dataclass
class Report:
    """Result of a comparison. `graphs` counts the graphs that the backend got in each call, `captures` the captures."""

    calls: int = 0
    graphs: list[int] = field(default_factory=list)
    captures: list[int] = field(default_factory=list)
    raised: bool = False
    differences: list[str] = field(default_factory=list)
    unsupported: str | None = None
    log: list[events.Event] = field(default_factory=list)

    @property
    def captured_whole(self) -> bool:
        return self.unsupported is None

    @property
    def recompiled_on_repeat(self) -> bool:
        return len(self.graphs) > 1 and self.graphs[1] > 0

    def of(self, kind: type | tuple[type, ...]) -> list[Any]:
        return [event for event in self.log if isinstance(event, kind)]

    @property
    def graph_modules(self) -> list[Any]:
        return [event.graph for event in self.of(events.CaptureFinished) if event.graph is not None]

    @property
    def breaks(self) -> list[str]:
        return [event.code for event in self.of(events.GraphBreak)]

    @property
    def causes(self) -> list[str]:
        return [event.cause for event in self.of(events.GraphBreak)]

    @property
    def fallbacks(self) -> list[str]:
        return [event.why for event in self.of(events.EagerFallback)]

    @property
    def failures(self) -> list[Any]:
        return [event.error for event in self.of(events.InternalFailure)]

    def gave_up(self) -> list[str]:
        """Events of a call that was not captured whole: it would equal eager by running eagerly."""
        return [without_addresses(str(event)) for event in self.of(GIVING_UP)]


GIVING_UP = (events.GraphBreak, events.EagerFallback, events.InternalFailure, events.CacheLimit)


class Programs(dict[str, Callable[..., Any]]):
    """Programs by their names; it is the decorator that adds one."""

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        self[fn.__name__] = fn
        return fn


# ---------------------------------------------------------------------- one function


def same_as_eager(
    fn: Callable[..., Any],
    *calls: Inputs,
    graphs: int | None = None,
    fullgraph: bool = True,
    setup: Callable[[], Any] | None = None,
    backend: Any = "eager",
    dynamic: bool | None = None,
    checks: Checks | None = None,
    **settings: Any,
) -> Report:
    """Compare `fn` with its compiled self; `setup()` gives fresh globals, laid over those of `fn`."""
    counter = GraphCounter(backend)
    compiler = stator_compiler(counter.backend, fullgraph=fullgraph, dynamic=dynamic, **settings)
    if checks is None:
        checks = EXACT if counter.counts else CLOSE
    report = compare_worlds(lambda: world_of(fn, calls, setup), compiler, fullgraph, checks, counter)
    return require_same(report, graphs)


def require_same(report: Report, graphs: int | None = None) -> Report:
    if report.unsupported is not None:
        raise AssertionError(f"not captured whole: {report.unsupported}")
    if report.differences:
        raise AssertionError("differs from eager\n  " + "\n  ".join(report.differences[:12]))
    if graphs is not None and report.graphs and report.graphs[0] != graphs:
        raise AssertionError(f"expected {graphs} graph(s) from the first call, got {report.graphs[0]}")
    return report


def world_of(fn: Callable[..., Any], calls: Sequence[Inputs], setup: Callable[[], Any] | None) -> World:
    """A side of its own for a plain callable: cells, defaults and the names of `setup` are copied."""
    overlay = setup() if setup is not None else {}
    if not isinstance(overlay, Mapping):
        overlay = vars(overlay)
    calls = (calls[0], *calls)
    if not isinstance(fn, types.FunctionType):
        own: Any = copy.deepcopy(fn)
        code = getattr(getattr(fn, "__func__", None), "__code__", None)
        file = code.co_filename if code is not None else __file__
        return World(own, calls, Surroundings(type(fn).__module__, file, lambda: {"callable": own, **overlay}))
    names = {**fn.__globals__, **overlay} if overlay else fn.__globals__
    own = copy_function(fn, names)
    return World(own, calls, Surroundings(fn.__module__, fn.__code__.co_filename, lambda: {
        "callable": own, **{name: names.get(name) for name in overlay}}))


def copy_function(fn: types.FunctionType, names: dict[str, Any]) -> types.FunctionType:
    cells = tuple(copy_cell(cell) for cell in fn.__closure__ or ())
    own = types.FunctionType(fn.__code__, names, fn.__name__, copy.deepcopy(fn.__defaults__), cells)
    own.__kwdefaults__ = copy.deepcopy(fn.__kwdefaults__)
    own.__qualname__, own.__module__ = fn.__qualname__, fn.__module__
    own.__dict__.update(fn.__dict__)
    return own


def copy_cell(cell: types.CellType) -> types.CellType:
    try:
        return types.CellType(copy.deepcopy(cell.cell_contents))
    except ValueError:
        return types.CellType()  # an empty cell


# ---------------------------------------------------------------------- any world


def compare_worlds(
    make_world: Callable[[], World],
    compiler: Compiler | None = None,
    fullgraph: bool = False,
    checks: Checks = EXACT,
    counter: GraphCounter | None = None,
) -> Report:
    """Run both sides and list the differences; an `Unsupported` is reported, not raised."""
    report = Report()
    world = make_world()
    names = [world.names[i] if i < len(world.names) else f"call {i}" for i in range(len(world.calls))]
    eager = list(outcomes(world, identity, checks))
    report.calls = len(eager)
    report.raised = "raised" in eager[0].parts
    compiled = compiled_outcomes(make_world(), compiler or stator_compiler(), fullgraph, checks, report, counter)
    if report.unsupported is None:
        for name, left, right in zip(names, eager, compiled, strict=True):
            report.differences.extend(differences(left, right, name, checks.tolerance))
        report.differences.extend(f"internal failure: {error!r}" for error in report.failures)
    return report


def compiled_outcomes(world: World, compiler: Compiler, fullgraph: bool, checks: Checks, report: Report,
                      counter: GraphCounter | None = None) -> list[Snapshot]:
    """Run the compiled side; fill in what Stator reported of each call."""
    if identity_mode():
        return list(outcomes(world, identity, checks, fault=os.environ.get("STATOR_TEST_FAULT")))
    found: list[Snapshot] = []
    sides = outcomes(world, compiler, checks, report.log, os.environ.get("STATOR_TEST_FAULT"))
    while True:
        before = len(report.log)
        try:
            found.append(next(sides))
        except StopIteration:
            return found
        except stator.Unsupported as declined:
            report.unsupported = without_addresses(str(declined))
            return found
        new = report.log[before:]
        report.captures.append(sum(isinstance(event, events.CaptureFinished) for event in new))
        if counter is not None:
            report.graphs.append(counter.take())
        given_up = [event for event in new if isinstance(event, GIVING_UP)]
        if fullgraph and given_up:
            report.unsupported = without_addresses(str(given_up[0]))
            return found


def outcomes(world: World, compiler: Compiler, checks: Checks = EXACT, log: list[events.Event] | None = None,
             fault: str | None = None) -> Iterator[Snapshot]:
    """The outcome of each call of a world, in turn; `log` gets the events of the calls."""
    declined = (stator.Unsupported,) if compiler is not identity else ()
    surroundings = world.surroundings
    if log is not None:
        surroundings = replace(surroundings, around=lambda: recorded(world.surroundings.around, log))
    try:
        subject = compiler(world.fn)
        if fault:
            subject = corrupt(subject, fault, world.fn, let_through=declined)
        for number, inputs in enumerate(world.calls):
            world.before(number)
            yield observe_call(subject, fresh_inputs(inputs), surroundings, checks, declined)
    finally:
        world.undo()


@contextlib.contextmanager
def recorded(around: Callable[[], Any], log: list[events.Event]) -> Iterator[None]:
    with around(), events.record() as seen:
        try:
            yield
        finally:
            log.extend(seen)


# ---------------------------------------------------------------------- compilers


def identity(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


def identity_mode() -> bool:
    return os.environ.get("STATOR_TEST_IDENTITY") == "1"


def stator_compiler(backend: Any = "eager", strict: bool = True, **settings: Any) -> Compiler:
    """`stator.compile` with fixed settings.

    A trace that raises where the program does not is made good by CPython; under `strict` it is an error of ours.
    """
    options = {**({"strict": True} if strict else {}), **settings.pop("options", {})}
    return lambda fn: stator.compile(fn, backend=backend, options=options, **settings)


class GraphCounter:
    """The backend, counting the graphs that it is given."""

    def __init__(self, backend: Any) -> None:
        self.inner = backend
        self.count = 0
        # A named backend other than "eager" is resolved by the compiler itself and is not counted.
        self.counts = backend == "eager" or callable(backend)
        self.backend: Any = self if self.counts else backend

    def __call__(self, graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        operations = [n for n in graph_module.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
        self.count += bool(operations)
        return self.inner(graph_module, example_inputs) if callable(self.inner) else graph_module

    def take(self) -> int:
        count, self.count = self.count, 0
        return count
