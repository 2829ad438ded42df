"""Handle a graph that raises.   out = graph(x)  ->  try: ... except: restore the inputs; run the program instead

Inputs that the graph writes, and random streams, are copied before and restored (see kept_inputs).  Else versions of
the inputs show whether anything was written; if so, or if an operation must not run twice, the error of the graph is
raised, with the frames in which the program recorded the failing node.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.utils.checkpoint
from torch import fx

from stator import events
from stator.breaks import Break, Strategy
from stator.emit.rebuild.values import Rebuilder
from stator.emit.residual import kept_inputs
from stator.emit.residual.eager_calls import forgive, run_as_it_is
from stator.emit.residual.graph_inputs import handed_over
from stator.emit.residual.kept_inputs import copies_for_redo, small_enough, unchecked_step, writes_at_risk
from stator.errors import BackendError
from stator.graph.analysis.may_fail import CAUGHT, fails_where_it_is_caught, may_fail, written_placeholders
from stator.graph.analysis.mutation import is_repeatable, writes
from stator.graph.analysis.shared_memory import sharing_memory
from stator.graph.analysis.step_functions import NotFinite, require_finite
from stator.graph.fx.graph_modules import FILENAME, STANDING, locate_errors, stands
from stator.graph.record.recorder import Recorder
from stator.host.held_signals import raised_by_a_handler
from stator.interp.frame import Place, with_place
from stator.interp.generators.generators import finish_running
from stator.interp.graph_errors import as_program_exception
from stator.library.python.random_states import restore_streams, saved_streams
from stator.native.torch_ops import draws_inside

_CHECKPOINT = torch.utils.checkpoint.__file__


def call_or_redo(build: Rebuilder, module: fx.GraphModule, call: list[str], inputs: list[Any], packed: bool,
                 undo: list[str]) -> list[str]:
    """The call of the graph, and what happens where it raises; `undo` takes back what was done before it."""
    lines = guarded_call(build, module, call, inputs, packed, undo)
    if build.vm.recorder.backend.in_order or not any(map(writes, module.graph.nodes)):
        return lines
    # A compiler writes to inputs behind the graph, in which a hook of a checkpoint may end the call.
    return [f"if {build.writer.constant(under_checkpoint)}():", *(f"    {line}" for line in undo),
            f"    return {build.writer.constant(run_as_it_is)}()", *lines]


def guarded_call(build: Rebuilder, module: fx.GraphModule, call: list[str], inputs: list[Any], packed: bool,
                 undo: list[str]) -> list[str]:
    """The call of the graph under handlers of its errors."""
    writer, vm, graph = build.writer, build.vm, module.graph
    written, counted = written_inputs(vm.recorder, graph, inputs)
    draws = draws_inside(module)
    inside = [f"    {line}" for line in call]
    shared = sharing_memory(inputs) if vm.recorder.log.in_place else frozenset()
    caught = any(CAUGHT in node.meta for node in graph.nodes) and fails_where_it_is_caught(graph, shared)
    checks = any(node.target is require_finite for node in graph.nodes)
    if not all(map(is_repeatable, graph.nodes)):
        if checks:
            raise unchecked_step()
        if caught:
            raise Break("SB002", "an error that the program handles, after calls that must not run twice",
                        turn_off=Strategy.HANDLED_ERRORS)
        return call_or_raise(build, module, inside, undo)
    answer = writer.constant(graph_failed_inside_a_handler if caught else graph_failed)
    redo = [*(f"    {line}" for line in undo), f"    return {answer}(error)"]
    head: list[str] = []
    if vm.residual.draws:
        redo.insert(0, f"    {writer.constant(restore_streams)}(streams)")
    generators = [f"inputs[{place}]" if packed else build.outside(each.source)
                  for place, each in enumerate(inputs) if type(each.fake) is torch.Generator]
    # Nobody asks where there is nothing to be put back.
    fails = bool(written or draws or generators) and (bool(vm.residual.assertions) or may_fail(graph, shared))
    if fails and draws:
        redo.insert(0, f"    {writer.constant(torch.set_rng_state)}(state)")
        head.append(f"state = {writer.constant(torch.get_rng_state)}()")
    if fails and generators:
        redo.insert(0, f"    {writer.constant(restore_streams)}(generators)")
        head.append(f"generators = {writer.constant(saved_streams)}(({', '.join(generators)},))")
    if not written:
        return [*head, "try:", *inside, "except Exception as error:", *redo]
    names = [f"inputs[{inputs.index(each)}]" if packed else handed_over(build, each) for each in written]
    at_risk = written if caught or not counted else writes_at_risk(vm.recorder, graph, written, shared)
    given = [each.tensor for each in inputs if each.tensor is not None]
    kept = fails and bool(at_risk) and small_enough([each.tensor for each in at_risk], given)
    if checks and not kept:
        at_risk = kept_inputs.writes_before_a_check(graph, written)
        kept = bool(at_risk)
        if not counted or not small_enough([each.tensor for each in at_risk], given):
            raise unchecked_step()
    restorable = kept or counted and vm.recorder.backend.in_order and fails_before_writes(graph)
    if caught and (not restorable or any(each.fake.requires_grad and not each.fake.is_leaf for each in written)):
        raise Break("SB002", "an error that the program handles, after writes that cannot be taken back",
                    turn_off=Strategy.HANDLED_ERRORS)
    if kept:
        line, undone = copies_for_redo(writer, graph, dict(zip(names, written, strict=True)), at_risk)
        redo = [f"    if {undone}:", *(f"    {line}" for line in redo), *raise_as_it_is(build, module, undo)]
        return [*head, line, "try:", *inside, "except Exception as error:", *redo]
    if counted:
        versions = "(" + "".join(f"{name}._version, " for name in names) + ")"
        redo = [f"    if {versions} == versions:", *(f"    {line}" for line in redo)]
        return call_or_raise(build, module, inside, undo, [*head, f"versions = {versions}"], redo)
    return call_or_raise(build, module, inside, undo, head)


def call_or_raise(build: Rebuilder, module: fx.GraphModule, inside: list[str], undo: list[str],
                  head: Sequence[str] = (), redo: Sequence[str] = ()) -> list[str]:
    """The call of a graph whose error is raised as it is, at the program's line, unless `redo` returns."""
    vm, writer = build.vm, build.writer
    if any(assertion.cls is None for assertion in vm.residual.assertions):
        raise Break("SB002", "the truth of a tensor, which decides whether to raise",
                    turn_off=Strategy.UNSPOKEN_ASSERTIONS)
    *show, again = raise_as_it_is(build, module, undo)
    other = ["except Exception as error:", *redo, *show, again]
    if not vm.residual.assertions:
        return [*head, "try:", *inside, *other]
    table, change = writer.constant(tuple(vm.residual.assertions), "assertions"), writer.constant(as_program_exception)
    handlers = ["except RuntimeError as error:", *redo, *show, f"    failed = {change}(error, {table})"]
    return ["failed = None", *head, "try:", *inside, *handlers, *other, "if failed is not None:", "    raise failed"]


def raise_as_it_is(build: Rebuilder, module: fx.GraphModule, undo: list[str]) -> list[str]:
    """In a handler: raise the error of the graph; what the program does after it is not done."""
    locate_errors(module)
    places = build.writer.constant(places_in(module.graph, build.vm.lines.places), "places")
    show = f"{build.writer.constant(show_program)}(error, {places})"
    # Generators whose bodies this segment resumed: the error leaves them.
    left = [f"{build.writer.constant(finish_running)}({build.outside(body.adopted)})"
            for body in dict.values(build.vm.generators) if body.adopted is not None and body.entered]
    return [f"    {line}" for line in (*undo, *left, show, "raise")]


def fails_before_writes(graph: fx.Graph) -> bool:
    """Whether every error that the program handles comes before the first write, as in a train step."""
    order = list(graph.nodes)
    last = max((place for place, node in enumerate(order) if CAUGHT in node.meta), default=len(order))
    return not any(map(writes, order[:last]))


def written_inputs(recorder: Recorder, graph: fx.Graph, inputs: list[Any]) -> tuple[list[Any], bool]:
    """The graph inputs that the graph may write to; and whether each write counts in their versions."""
    if not recorder.log.in_place:
        return [], True
    places = {node.name for node in written_placeholders(graph)}
    written = [each for each in inputs if each.tensor is not None and isinstance(each.fake, torch.Tensor) and (
        each.node.name in places or not each.fake.is_inference() and each.fake._version)]
    behind_data = any(node.op == "call_function" and node.target is getattr and node.args[1] == "data"
                      for node in graph.nodes)
    counted = not recorder.log.uncounted and not any(each.fake.is_inference() for each in written)
    return written, not behind_data and counted


def graph_failed(error: Exception) -> Any:
    """Run the call uncompiled: its inputs are restored.  What a signal handler or a checkpoint raises is no error."""
    if isinstance(error, BackendError) or raised_by_a_handler(error) or ends_checkpoint(error):
        raise error
    if isinstance(error, NotFinite):
        events.emit(events.EagerFallback("a compiled graph", "a GradScaler skips the step of an optimizer"))
        return run_as_it_is()
    what = f"{type(error).__name__}: {error}"
    checked = "stator assertion " in what or "Runtime assertion failed " in what
    why = "a check of the program on values of tensors fails" if checked else f"it raised {what}"
    events.emit(events.EagerFallback("a compiled graph", why))
    return run_as_it_is(f"stator: a compiled graph raised {what}, and the program itself does not: a bug of the "
                        "backend, or of Stator's capture. The call was made eagerly instead, as every such call will "
                        "be.")


def ends_checkpoint(error: BaseException) -> bool:
    """Whether a checkpoint around the call ends its second run, which has saved enough."""
    return type(error) is getattr(torch.utils.checkpoint, "_StopRecomputationError", None)


def under_checkpoint() -> bool:
    """Whether a checkpoint around the call notes what is saved, and may end the call where it has enough."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if hooks is None or not torch.is_grad_enabled():
        return False
    code = getattr(inspect.unwrap(hooks[0]), "__code__", None)  # torch may have wrapped it for its own tracer
    return code is not None and code.co_filename == _CHECKPOINT


def graph_failed_inside_a_handler(error: Exception) -> Any:
    """The same, where the program may go on after the error: that it does is no sign of a graph that is wrong."""
    graph_failed(error)
    return forgive()


NodeTrace = tuple[str, int | None]  # the stack trace of a node; the offset of the innermost instruction, where known


def places_in(graph: fx.Graph, places: dict[str, Place]) -> dict[str, Place]:
    """The frames in which the nodes of a graph were recorded, by their lines in stack traces."""
    texts = {node.meta.get("stack_trace") or "" for node in graph.nodes}
    lines = {line for text in texts for line in text.splitlines(True)}
    return {line.strip(): places[line] for line in lines if line in places}


def show_program(error: BaseException, places: dict[str, Place]) -> None:
    """Put the frames of the program into the traceback of an error of its graph."""
    nodes = [(trace, standing) for trace, standing in failing_nodes(error.__traceback__) if standing[0]]
    if not nodes:
        return
    trace, (text, offset) = nodes[-1]  # the innermost: graphs call others
    frames = [places[line.strip()] for line in text.splitlines() if line.strip() in places]
    if frames and offset is not None:
        frames[-1] = dataclasses.replace(frames[-1], lasti=offset)
    traceback = trace.tb_next
    for place in reversed(frames):
        traceback = with_place(traceback, place)
    error.__traceback__ = traceback


def failing_nodes(trace: types.TracebackType | None) -> Iterator[tuple[types.TracebackType, NodeTrace]]:
    """The frames of graphs in a traceback, with the place of the node that each stands at."""
    stretch: list[NodeTrace] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == FILENAME:
            standing = trace.tb_frame.f_globals.get(STANDING, {}).get(trace.tb_lineno)
            if type(standing) is list:
                stretch = standing
            elif standing is not None:
                yield trace, stretch[standing] if type(standing) is int else standing
        elif code.co_name == "forward" and isinstance(module := trace.tb_frame.f_locals.get("self"), fx.GraphModule):
            if (node := node_at(module, trace.tb_lineno)) is not None:
                yield trace, stands(node)
        trace = trace.tb_next


def node_at(module: fx.GraphModule, line: int) -> fx.Node | None:
    lines: Any = getattr(module, "_lineno_map", None) or {}
    index = lines.get(line - getattr(module, "_prologue_start", 0))
    nodes = list(module.graph.nodes)
    return nodes[index] if index is not None and index < len(nodes) else None
