"""Run one program twice, eagerly and compiled, on separate worlds, and compare everything observable.

In:  a function and its calls (or a `World` factory, which builds function, inputs and state afresh).
Out: a `Report`; an AssertionError naming every difference, if there is one.

Compared after each call (the first input, the same again, then the other inputs): value and exact types,
the exception with its text, line, cause, context and notes, which parts are the same object or share
storage, what became of arguments, globals, cells and class attributes, the printed text, warnings, what
is left in iterators, gradients, grad mode and its relatives, and the random streams.

STATOR_TEST_IDENTITY=1 compiles with the identity: eager must then equal eager (well-formed cases).
STATOR_TEST_FAULT=<kind> corrupts the compiled side: the comparison must then fail.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import itertools
import os
import random
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from faults import corrupt
from portrait import Describer, Portrait, differences, without_addresses

DRAIN_LIMIT = 20


class Call(NamedTuple):
    """The inputs of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call(*args: Any, **kwargs: Any) -> Call:
    return Call(args, kwargs)


Inputs = Call | tuple[Any, ...] | Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]


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
    """All that one side owns: the function, its inputs, and the names whose state is compared."""

    fn: Callable[..., Any]
    calls: Sequence[Inputs]
    state: Callable[[], Mapping[str, Any]]
    module: str
    file: str


@dataclass
class Report:
    """What the comparison saw. `graphs` counts the graphs compiled by each call."""

    calls: int = 0
    graphs: list[int] = field(default_factory=list)
    raised: bool = False
    differences: list[str] = field(default_factory=list)
    unsupported: str | None = None

    @property
    def captured_whole(self) -> bool:
        return self.unsupported is None

    @property
    def recompiled_on_repeat(self) -> bool:
        return len(self.graphs) > 1 and self.graphs[1] > 0


class NotCaptured(Exception):
    """The compiler declined the program (`stator.Unsupported`), which is no exception of the program."""


def identity_mode() -> bool:
    return os.environ.get("STATOR_TEST_IDENTITY") == "1"


class Programs(dict[str, Callable[..., Any]]):
    """Programs by their names; it is the decorator that adds one."""

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        self[fn.__name__] = fn
        return fn


def same_as_eager(
    fn: Callable[..., Any],
    *calls: Inputs,
    graphs: int | None = None,
    fullgraph: bool = True,
    setup: Callable[[], Any] | None = None,
    backend: Any = "eager",
    dynamic: bool | None = None,
) -> Report:
    """Compare `fn` with its compiled self; `setup()` gives fresh globals, laid over those of `fn`."""
    report = compare_worlds(lambda: world_of(fn, calls, setup), fullgraph, backend, dynamic)
    return require_same(report, graphs)


def require_same(report: Report, graphs: int | None) -> Report:
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
    if not isinstance(fn, types.FunctionType):
        own: Any = copy.deepcopy(fn)
        code = getattr(getattr(fn, "__func__", None), "__code__", None)
        file = code.co_filename if code is not None else __file__
        return World(own, calls, lambda: {"callable": own, **overlay}, type(fn).__module__, file)
    names = {**fn.__globals__, **overlay} if overlay else fn.__globals__
    cells = tuple(copy_cell(cell) for cell in fn.__closure__ or ())
    own = types.FunctionType(fn.__code__, names, fn.__name__, copy.deepcopy(fn.__defaults__), cells)
    own.__kwdefaults__ = copy.deepcopy(fn.__kwdefaults__)
    own.__qualname__, own.__module__ = fn.__qualname__, fn.__module__
    own.__dict__.update(fn.__dict__)
    state = {name: names.get(name) for name in overlay}
    return World(own, calls, lambda: {"callable": own, **{n: names.get(n) for n in state}},
                 fn.__module__, fn.__code__.co_filename)  # fmt: skip


def copy_cell(cell: types.CellType) -> types.CellType:
    try:
        return types.CellType(copy.deepcopy(cell.cell_contents))
    except ValueError:
        return types.CellType()  # an empty cell


def compare_worlds(
    make_world: Callable[[], World],
    fullgraph: bool = True,
    backend: Any = "eager",
    dynamic: bool | None = None,
) -> Report:
    """Run both sides and list the differences; an `Unsupported` is reported, not raised."""
    exact = backend == "eager" or callable(backend)
    report = Report()
    eager = list(observe(make_world(), lambda fn: fn, exact, report))
    report.calls = len(eager)
    report.raised = "raised" in eager[0].parts
    counter = GraphCounter(backend)
    compiler = identity if identity_mode() else StatorCompiler(counter, fullgraph, dynamic)
    try:
        compiled = []
        for portrait in observe(make_world(), compiler, exact, report, os.environ.get("STATOR_TEST_FAULT")):
            compiled.append(portrait)
            if not identity_mode():
                report.graphs.append(counter.take())
    except NotCaptured as declined:
        report.unsupported = str(declined)
        return report
    for number, (left, right) in enumerate(zip(eager, compiled, strict=True)):
        report.differences.extend(differences(left, right, CALL_NAMES.get(number, f"call {number + 1}"), exact))
    return report


CALL_NAMES = {0: "first call", 1: "repeat"}


def identity(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


class GraphCounter:
    """The backend, counting the graphs that it is given."""

    def __init__(self, backend: Any) -> None:
        self.inner = backend
        self.count = 0
        # A named backend other than "eager" is resolved by the compiler itself and is not counted.
        self.backend: Any = self if backend == "eager" or callable(backend) else backend

    def __call__(self, graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        operations = [n for n in graph_module.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
        self.count += bool(operations)
        return self.inner(graph_module, example_inputs) if callable(self.inner) else graph_module

    def take(self) -> int:
        count, self.count = self.count, 0
        return count


class StatorCompiler:
    """`stator.compile` with fixed options; translates its refusals into `NotCaptured`.

    A call that quietly ran eagerly would be equal to eager by itself, so the events are asked as well; and so would one
    whose trace alone raised, which is an error of ours under `strict`.
    """

    def __init__(self, counter: GraphCounter, fullgraph: bool, dynamic: bool | None) -> None:
        self.stator = importlib.import_module("stator")
        events = importlib.import_module("stator.events")
        self.record = events.record
        self.giving_up: tuple[type, ...] = (events.InternalFailure,)
        if fullgraph:
            self.giving_up += (events.EagerFallback, events.GraphBreak, events.CacheLimit)
        self.options = {"backend": counter.backend, "fullgraph": fullgraph, "dynamic": dynamic,
                        "options": {"strict": True}}

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        compiled = self.stator.compile(fn, **self.options)

        def guarded(*args: Any, **kwargs: Any) -> Any:
            with self.record() as log:
                try:
                    return compiled(*args, **kwargs)
                except self.stator.Unsupported as declined:
                    raise NotCaptured(without_addresses(str(declined))) from declined
                finally:
                    for event in log:
                        if isinstance(event, self.giving_up):
                            raise NotCaptured(without_addresses(str(event)))

        return guarded


def observe(
    world: World,
    compiler: Callable[[Callable[..., Any]], Callable[..., Any]],
    exact: bool,
    report: Report,
    fault: str | None = None,
) -> Iterator[Portrait]:
    """The portraits of: the first input, the first again, then each other input."""
    subject = compiler(world.fn)
    if fault:
        subject = corrupt(subject, fault, world.fn, let_through=NotCaptured)
    for index in (0, *range(len(world.calls))):
        yield observe_call(world, subject, fresh_inputs(world.calls[index]), exact)


def observe_call(world: World, subject: Callable[..., Any], inputs: Call, exact: bool) -> Portrait:
    seen = Describer(world.module, exact)
    root = Portrait("call")
    printed = io.StringIO()
    torch.manual_seed(7)
    random.seed(7)
    result: Any = None
    raised: BaseException | None = None
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed), torch_modes_kept():
        warnings.simplefilter("always")
        try:
            result = subject(*inputs.args, **inputs.kwargs)
        except NotCaptured:
            raise
        except BaseException as exception:  # any exception of the program is an outcome to compare
            raised = exception
        modes = torch_modes()
        streams = (hash(torch.get_rng_state().numpy().tobytes()), hash(random.getstate()))
        root.parts["args"] = seen.describe(list(inputs.args), "args")
        root.parts["kwargs"] = seen.describe(inputs.kwargs, "kwargs")
        if raised is not None:
            root.parts["raised"] = seen.describe(raised, "raised")
            root.parts["line"] = Portrait(f"line {raising_line(raised, world.file)}")
        else:
            root.parts["result"] = seen.describe(result, "result")
        root.parts["state"] = seen.describe(dict(world.state()), "state")
        root.parts["gradients"] = seen.describe(gradients(result, inputs), "gradients")
        left = [drain(v, seen, f"left {i}") for i, v in enumerate([result, *inputs.args])]
        root.parts["left"] = Portrait("left", {str(i): p for i, p in enumerate(left)})
    root.parts["printed"] = Portrait(repr(without_addresses(printed.getvalue())))
    told = [f"{w.category.__name__}: {w.message} line {w.lineno}" for w in caught if w.filename == world.file]
    root.parts["warnings"] = Portrait(repr(told))
    root.parts["modes"] = Portrait(repr(modes))
    root.parts["random streams"] = Portrait(repr(streams))
    return root


def raising_line(raised: BaseException, file: str) -> int | None:
    lines = [line for frame, line in traceback.walk_tb(raised.__traceback__) if frame.f_code.co_filename == file]
    return lines[-1] if lines else None


def torch_modes() -> dict[str, object]:
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "default dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


@contextlib.contextmanager
def torch_modes_kept() -> Iterator[None]:
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors that a result or an input is made of, without looking into other objects."""
    found: list[torch.Tensor] = []
    met: dict[int, Any] = {}
    ahead = [value]
    while ahead:
        item = ahead.pop(0)
        if id(item) in met:
            continue
        met[id(item)] = item
        if issubclass(type(item), torch.Tensor):
            found.append(item)
        elif issubclass(type(item), torch.nn.Module):
            ahead.extend(item.parameters())
        elif type(item) in (list, tuple):
            ahead.extend(item)
        elif type(item) is dict:
            ahead.extend(item.values())
    return found


def gradients(result: Any, inputs: Call) -> list[torch.Tensor | None]:
    """d(sum of results)/d(each leaf among the inputs), which tells whether autograd sees one program."""
    outputs = [t for t in tensors_in(result) if t.requires_grad and t.dtype.is_floating_point]
    leaves = [t for t in tensors_in([*inputs.args, inputs.kwargs]) if t.requires_grad and t.is_leaf]
    if not outputs or not leaves:
        return []
    with torch.enable_grad():
        total = torch.stack([t.double().sum() for t in outputs]).sum()
    return list(torch.autograd.grad(total, leaves, allow_unused=True))


def drain(value: Any, seen: Describer, path: str) -> Portrait:
    """What an iterator still holds after the call."""
    if type(value) is types.CoroutineType:
        value.close()
    if not hasattr(type(value), "__next__"):
        return Portrait("no iterator")
    try:
        return seen.describe(list(itertools.islice(value, DRAIN_LIMIT)), path)
    except Exception as exception:  # raised by the program's own iterator: an outcome to compare
        return seen.describe(exception, path)
