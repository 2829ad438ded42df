"""Find what makes a compiled call differ.   Trials, the compiled function, settings  ->  a Finding, or None

Compile the call again: right when compiled afresh, the entry in use lacks a guard; right with backend "eager", the
backend is wrong about an operation; else the capture is, about an effect or the result.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import os
import sys
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from stator.audit.comparison import Outcome, unlike
from stator.audit.trials import Trials, is_exact
from stator.backends.compilation import call_backend, compile_graph
from stator.backends.registry import find_backend
from stator.capture import miss
from stator.errors import BackendError
from stator.graph.analysis.mutation import tensors_in
from stator.heap.raw_access import CONSTANT_TYPES
from stator.settings.options import Settings


class Segments:
    """A backend that compiles with another one and keeps each graph with the inputs of its first call."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.found: list[tuple[fx.GraphModule, tuple[Any, ...]]] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        kept = copy_of(gm)
        compiled = call_backend(find_backend(self.settings.backend), gm, example_inputs, self.settings)
        calls = itertools.count()

        def run(*inputs: object) -> Any:
            if next(calls) == 0:
                self.found.append((kept, copies(inputs)))
            return compiled(*inputs)

        return run


def copies(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor)
                 else value for value in values)


def copy_of(gm: fx.GraphModule, last: fx.Node | None = None, only: bool = False) -> fx.GraphModule:
    """The graph, or its part up to a node with the values of all its nodes (`only`: of that node) as results."""
    graph, results = fx.Graph(), []
    made: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            if last is None:
                graph.output(fx.map_arg(node.args[0], lambda each: made[each]))
            break
        made[node] = copied = graph.node_copy(node, lambda each: made[each])
        copied.meta = {"stack_trace": node.meta.get("stack_trace")}
        if node.op.startswith("call") and (not only or node is last):
            results.append(copied)
        if node is last:
            graph.output(tuple(results))
            break
    if only:
        graph.eliminate_dead_code()
    return fx.GraphModule(gm, graph)


def is_wrong(gm: fx.GraphModule, inputs: tuple[Any, ...], settings: Settings, exact: bool) -> bool:
    """Whether the backend's form of a graph gives other results; one that it refuses to compile is not wrong."""
    with torch.random.fork_rng():
        state = torch.get_rng_state()
        expected = list(tensors_in(fx.Interpreter(gm).run(*copies(inputs))))
        torch.set_rng_state(state)
        mode = FakeTensorMode(shape_env=ShapeEnv())
        fakes = [mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value
                 for value in inputs]
        try:
            compiled = compile_graph(copy_of(gm), fakes, settings, mode, torch.is_grad_enabled())
        except BackendError:
            return False
        actual = list(tensors_in(compiled(*copies(inputs))))
    return len(expected) != len(actual) or any(unlike(a.detach(), b.detach(), exact) or a.shape != b.shape
                                               for a, b in zip(expected, actual, strict=True))


def smallest_wrong(gm: fx.GraphModule, inputs: tuple[Any, ...], settings: Settings,
                   exact: bool) -> tuple[fx.Node | None, fx.GraphModule, tuple[Any, ...]] | None:
    """(operation, the smallest wrong graph, its inputs), or None where the graph is compiled right."""
    if not is_wrong(gm, inputs, settings, exact):
        return None
    nodes = [node for node in gm.graph.nodes if node.op.startswith("call")]
    low, high = 0, len(nodes)  # the first `high` are wrong, or the whole is
    while low + 1 < high:
        middle = (low + high) // 2
        if is_wrong(copy_of(gm, nodes[middle - 1]), inputs, settings, exact):
            high = middle
        else:
            low = middle
    node = nodes[high - 1]
    if not is_wrong(copy_of(gm, node), inputs, settings, exact):
        return None, gm, inputs  # only the whole shows it
    alone, given = one_operation(gm, node, inputs)
    if is_wrong(alone, given, settings, exact):
        return node, alone, given
    cone = copy_of(gm, node, only=True)
    return node, cone if is_wrong(cone, inputs, settings, exact) else copy_of(gm, node), inputs


def one_operation(gm: fx.GraphModule, node: fx.Node, inputs: tuple[Any, ...]) -> tuple[fx.GraphModule, tuple[Any, ...]]:
    """A graph of one operation, whose inputs are what the operation gets in the whole graph."""
    values: dict[fx.Node, Any] = {}

    class Keeper(fx.Interpreter):
        def run_node(self, each: fx.Node) -> Any:
            if each is node:
                values.update({argument: copies((self.env[argument],))[0] for argument in node.all_input_nodes})
            return super().run_node(each)

    Keeper(gm).run(*copies(inputs))
    graph = fx.Graph()
    made = {argument: graph.placeholder(argument.name) if argument.op != "get_attr" else graph.get_attr(argument.target)
            for argument in node.all_input_nodes}
    copied = graph.node_copy(node, lambda each: made[each])
    copied.meta = {"stack_trace": node.meta.get("stack_trace")}
    graph.output((copied,))
    given = tuple(values[argument] for argument in node.all_input_nodes if argument.op != "get_attr")
    return fx.GraphModule(gm, graph), given


def place_of_node(node: fx.Node | None) -> tuple[str, int] | None:
    lines = ((node.meta.get("stack_trace") if node is not None else None) or "").strip().splitlines()
    for text in reversed(lines):
        if text.strip().startswith('File "'):
            filename, _, rest = text.strip()[6:].partition('", line ')
            return filename, int(rest.partition(",")[0])
    return None


@dataclass
class Finding:
    """The smallest thing found that makes compiled and eager differ."""

    kind: str  # "operation", "guard", "effect", "result" or "program"
    what: str
    differences: list[tuple[str, str]]  # (where, what)
    filename: str | None = None
    line: int | None = None
    graph: Any = None  # the smallest graph that the backend gets wrong
    inputs: tuple[Any, ...] = ()  # and what to call it with
    script: str = ""  # a program of its own that shows it
    path: str | None = None  # where that was written

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.what}"]
        if self.filename is not None and self.line is not None:
            lines.append(f"  first at {self.filename}:{self.line}")
            text = linecache.getline(self.filename, self.line).strip()
            lines += [f"    {text}"] if text else []
        lines += [f"  {where}: {what}" for where, what in self.differences[:5]]
        if len(self.differences) > 5:
            lines.append(f"  and {len(self.differences) - 5} more")
        if self.path is not None:
            lines.append(f"  a script that shows it: {self.path}")
        return "\n".join(lines)


Differences = list[tuple[str, str]]


def bisect_call(entry: object, fn: Callable[..., Any], settings: Settings, args: tuple[Any, ...],
                kwargs: dict[str, Any], directory: str | None = None) -> Finding | None:
    """Search one call; the state of the program is as before afterwards."""
    trials = Trials(fn, args, kwargs, is_exact(settings.backend))
    finding = search(trials, entry, settings)
    if finding is not None and directory is not None and finding.script:
        finding.path = write_script(finding, directory)
    return finding


def search(trials: Trials, entry: Any, settings: Settings) -> Finding | None:
    """`entry` is the compiled function in use, or None."""
    eager = trials.run(trials.fn)
    if trials.unrepeatable:
        return Finding("program", f"{trials.unrepeatable} must not run twice, so nothing can be compared", [])
    itself = trials.compare(eager, trials.run(trials.fn))
    if itself:
        return Finding("program", "the program does not do the same twice, so nothing can be compared", itself)
    installed = trials.compare(eager, trials.run(entry)) if entry is not None else []
    fresh = miss.make_entry(trials.fn, settings)
    again = trials.compare(eager, trials.run(fresh))
    if not again:
        return missing_guard(trials, entry, fresh, installed) if installed else None
    plain = trials.run(miss.make_entry(trials.fn, replace(settings, backend="eager", mode=None, options={})))
    of_capture = trials.compare(eager, plain)
    if of_capture:
        return wrong_capture(trials, settings, eager, plain, of_capture)
    return wrong_operation(trials, settings, again)


def tags_of(entry: Any) -> list[Any]:
    points = entry._stator_site.points
    return [tag for each in (entry, *points.entries()) for _, _, tag in each.entries() if tag is not None]


def missing_guard(trials: Trials, entry: object, fresh: object, differences: Differences) -> Finding:
    """The first fact that a new capture guards and the entry in use does not."""
    script = call_script(trials, "A call that used an entry which an earlier call had made: make that one first.")
    known = {(guard.source, guard.kind) for tag in tags_of(entry) for guard in tag.guards}
    what, place = "an entry was used for a call it does not fit", (None, None)
    for guard in (guard for tag in tags_of(fresh) for guard in tag.guards):
        if (guard.source, guard.kind) not in known:
            filename, line = (guard.where or place)[:2]
            return Finding("guard", f"{what}: no guard says {guard.text()}", differences, filename, line, script=script)
    return Finding("guard", f"{what}; compiled afresh the call is right", differences, script=script)


def wrong_operation(trials: Trials, settings: Settings, differences: Differences) -> Finding:
    segments = Segments(settings)
    trials.run(miss.make_entry(trials.fn, replace(settings, backend=segments, mode=None, options={})))
    for graph, inputs in segments.found:
        found = smallest_wrong(graph, inputs, settings, trials.exact)
        if found is not None:
            node, smallest, given = found
            place = place_of_node(node) or (None, None)
            count = sum(each.op.startswith("call") for each in smallest.graph.nodes)
            name = "a graph of several operations" if node is None else getattr(node.target, "__name__", node.target)
            where = "" if count == 1 else f", in a graph of {count} operations"
            what = f"the backend {settings.backend_name!r} gets {name} wrong{where}"
            return Finding("operation", what, differences, place[0], place[1], smallest, given,
                           graph_script(smallest, given, settings))
    what = f"results are wrong with the backend {settings.backend_name!r}; no graph of it is wrong by itself"
    return Finding("result", what, differences, script=call_script(trials))


def wrong_capture(trials: Trials, settings: Settings, eager: Outcome, captured: Outcome,
                  differences: Differences) -> Finding:
    """The capture itself: something it does not do, or something it computes otherwise."""
    effects = [where for where, _ in differences if not where.startswith(("the result", "the exception"))]
    if not effects:
        code = getattr(trials.fn, "__func__", trials.fn).__code__
        return Finding("result", f"the capture computes another {differences[0][0][4:]}", differences, code.co_filename,
                       code.co_firstlineno, script=call_script(trials))
    path = "the printed text" if "the printed text" in effects else effects[0]
    if path == "the printed text":
        same = len(os.path.commonprefix([eager.printed[0], captured.printed[0]]))
        place = trials.first_line(lambda: sys.stdout.tell() > same)
    else:
        place = trials.line_that_changes(path)
    filename, line = place or (None, None)
    return Finding("effect", f"the capture does something else to {path}", differences, filename, line,
                   script=call_script(trials))


def write_script(finding: Finding, directory: str) -> str:
    """A new file, readable by its owner alone: it holds the program's data."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    for number in range(1000):
        path = os.path.join(directory, f"repro_{finding.kind}_{number}.py")
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(handle, "w") as file:
            file.write(finding.script)
        return path
    raise OSError(f"{directory} holds a thousand scripts already")


_LARGE = 512  # elements of a tensor that is not written out
_GAP = "...  # build this by hand"


def literal(value: Any) -> str:
    kind = type(value)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return tensor_literal(value)
    if kind is float and (value != value or value in (float("inf"), float("-inf"))):
        return f"float({str(value)!r})"
    if kind in CONSTANT_TYPES:
        return repr(value)
    if kind in (list, tuple):
        parts = ", ".join(map(literal, value))
        return f"[{parts}]" if kind is list else f"({parts}{',' if len(value) == 1 else ''})"
    if kind is dict:
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
    return _GAP[:3]


def tensor_literal(tensor: torch.Tensor) -> str:
    plain = tensor.detach()
    tail = ", requires_grad=True" if tensor.requires_grad else ""
    if plain.numel() > _LARGE:
        return f"torch.testing.make_tensor({tuple(plain.shape)}, dtype={plain.dtype}, device='cpu'{tail})  # made anew"
    text = repr(plain.tolist()).replace("nan", "float('nan')").replace("inf", "float('inf')")
    return f"torch.tensor({text}, dtype={plain.dtype}{tail})" + ("" if tail else f".reshape({tuple(plain.shape)})")


def graph_script(gm: fx.GraphModule, inputs: tuple[Any, ...], settings: Settings) -> str:
    code = textwrap.indent(gm.code.strip(), "    ")
    given = "".join(f"    {literal(value)},\n" for value in inputs)
    return (f'"""A graph that the backend {settings.backend_name!r} compiles to something else."""\n'
            f"import torch\nfrom torch import device, fx, inf, nan  # noqa: F401\n\nimport stator\n\n"
            f"{backend_text(settings)}\n\nclass Graph(torch.nn.Module):\n{code}\n\n\n"
            f"inputs = [\n{given}]\ngraph = Graph()\nexpected = graph(*inputs)\n"
            f"compiled = stator.compile(graph.forward, backend=backend, fullgraph=True)(*inputs)\n"
            f"torch.testing.assert_close(compiled, expected)\n")


def backend_text(settings: Settings) -> str:
    if isinstance(settings.backend, str):
        return f"backend = {settings.backend!r}\n"
    backend: Any = settings.backend
    name = getattr(backend, "__name__", "")
    if isinstance(backend, types.FunctionType) and backend.__closure__ is None and name.isidentifier():
        return f"{source_of(backend)}\n\nbackend = {name}\n"
    return f"backend = {_GAP}  (it was {settings.backend_name})\n"


def source_of(function: Callable[..., Any]) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return f"# the source of {getattr(function, '__qualname__', function)} is not known\n"


def call_script(trials: Trials, note: str = "A call that is captured as something else.") -> str:
    fn = trials.fn
    function: Any = fn.__func__ if isinstance(fn, types.MethodType) else fn
    args = "".join(f"    {literal(value)},\n" for value in trials.args)
    names = "".join(f"{name!r}: {literal(value)}, " for name, value in trials.kwargs.items())
    helpers = []
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, types.FunctionType) and value.__module__ == function.__module__ and value is not function:
            helpers.append(source_of(value))
        elif name in function.__globals__ and type(value) in (*CONSTANT_TYPES, torch.Tensor, list, dict, tuple):
            helpers.append(f"{name} = {literal(value)}\n")
    made = "\n\n".join(helpers)
    return (f'"""{note}"""\nimport copy\n\nimport torch\n\nimport stator\n\n'
            f"{made}\n\n{source_of(function)}\n\nargs = [\n{args}]\nkwargs = {{{names}}}\n"
            f"eager_args, compiled_args = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))\n"
            f"expected = {function.__name__}(*eager_args[0], **eager_args[1])\n"
            f"compiled = stator.compile({function.__name__}, backend='eager')(*compiled_args[0], **compiled_args[1])\n"
            f"torch.testing.assert_close(compiled, expected)\n"
            f"torch.testing.assert_close(compiled_args, eager_args)\n")
