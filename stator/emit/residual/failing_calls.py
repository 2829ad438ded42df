"""What the residual does where its graph raises.   out = graph(x)  ->  try: ... except: as it was; the program again

A graph that raises must have done nothing that can be seen: then the program itself does what comes before the error,
in its order, and raises it at its own line, or handles it.  Inputs that the graph writes to are kept before it runs and
put back (see kept_inputs), and so are random streams.  Where they are too large to be kept, the versions of the inputs
tell whether anything was written, and if so the graph's error is raised as it is.  So is that of a graph with an
operation that must not run twice (see mutation): a custom operator, a collective, a function of the user.  Its
traceback then opens with the program's frames (see failed_nodes).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from stator import events
from stator.breaks import Break
from stator.emit.rebuild.values import Rebuilder
from stator.emit.residual.eager_calls import forgive, run_as_it_is
from stator.emit.residual.failed_nodes import places_in, show_program
from stator.emit.residual.graph_inputs import handed_over
from stator.emit.residual.kept_inputs import keep, put_back, small_enough
from stator.errors import BackendError
from stator.graph.analysis.may_fail import CAUGHT, fails_where_it_is_caught, may_fail, written_placeholders
from stator.graph.analysis.mutation import is_repeatable
from stator.graph.analysis.shared_memory import sharing_memory
from stator.graph.fx.graph_modules import locate_errors
from stator.graph.record.recorder import Recorder
from stator.host.held_signals import raised_by_a_handler
from stator.interp.generators.generators import finish_running
from stator.interp.graph_errors import as_program_exception
from stator.library.python.random_numbers import restore_streams, saved_streams
from stator.native.torch_ops import draws_inside
from stator.strategy import Strategy


def call_or_redo(build: Rebuilder, module: fx.GraphModule, call: list[str], inputs: list[Any], packed: bool,
                 undo: list[str]) -> list[str]:
    """The call of the graph, and what happens where it raises; `undo` takes back what was done before it."""
    writer, vm, graph = build.writer, build.vm, module.graph
    written, counted = written_inputs(vm.recorder, graph, inputs)
    draws = draws_inside(module)
    inside = [f"    {line}" for line in call]
    shared = sharing_memory(inputs) if vm.recorder.log.in_place else frozenset()
    caught = any(CAUGHT in node.meta for node in graph.nodes) and fails_where_it_is_caught(graph, shared)
    if not all(map(is_repeatable, graph.nodes)):
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
    kept = fails and small_enough([each.tensor for each in written], [i.tensor for i in inputs if i.tensor is not None])
    if caught and (not kept or any(each.fake.requires_grad and not each.fake.is_leaf for each in written)):
        raise Break("SB002", "an error that the program handles, after writes that cannot be taken back",
                    turn_off=Strategy.HANDLED_ERRORS)
    if kept:
        head.append(f"kept = {writer.constant(keep)}(({', '.join(names)},))")
        redo = [f"    if {writer.constant(put_back)}(kept):", *(f"    {line}" for line in redo),
                *raise_as_it_is(build, module, undo)]
        return [*head, "try:", *inside, "except Exception as error:", *redo]
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
    """The graph raised, and what it had changed is as it was: the call is made again as it is, its effects in order.

    What a signal handler of the user's raised while the graph ran is no failure of the graph.
    """
    if isinstance(error, BackendError) or raised_by_a_handler(error):
        raise error
    what = f"{type(error).__name__}: {error}"
    events.emit(events.EagerFallback("a compiled graph", f"it raised {what}"))
    return run_as_it_is(f"stator: a compiled graph raised {what}, and the program itself does not: a bug of the "
                        "backend, or of Stator's capture. The call was made eagerly instead, as every such call will "
                        "be.")


def graph_failed_inside_a_handler(error: Exception) -> Any:
    """The same, where the program may go on after the error: that it does is no sign of a graph that is wrong."""
    graph_failed(error)
    return forgive()
