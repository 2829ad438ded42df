"""Call a backend on one captured graph.

In: a graph module, its fake inputs and the settings.  Out: a callable that takes the graph's inputs as
`*args` and returns the graph's outputs as a tuple or list.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._functorch import config
from torch._guards import CompileContext, TracingContext, compile_context, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

from stator import events
from stator.backends.aot_rules import (
    dropouts_of_everything,
    floats_as_data,
    results_kept_apart,
    save_values,
    trainable_lstm,
    without_size_marks,
)
from stator.backends.aot_wrappers import conditions_now, note_conditions, note_wrappers, whole, wrappers_kept
from stator.backends.cuda_graphs import mark_static_inputs
from stator.backends.double_backward import twice_differentiable
from stator.backends.eager import NEED_NO_CODE
from stator.backends.pieces import compile_pieces, settings_kept
from stator.backends.regions import (
    ONE_PIECE,
    Whole,
    compile_regions,
    gradients_to_take_between,
    is_short_step,
)
from stator.backends.registry import Backend, find_backend, tuning_keywords
from stator.backends.returned_views import WrittenAfterwards, take_views_out, unchanged
from stator.backends.step_gradients import consumed_results, has_nothing_to_fuse, with_histories
from stator.backends.symbol_inputs import with_symbols
from stator.backends.write_counts import (
    dispatch_keys_kept,
    inference_results,
    with_inference_results,
    with_write_counts,
    write_counts,
)
from stator.errors import BackendError, describe_callable
from stator.graph.analysis.autograd_boundaries import (
    BETTER_CUT,
    BOUNDARY,
    InOnePiece,
    has_boundaries,
    must_be_cut,
)
from stator.graph.analysis.dead_nodes import keep_checks
from stator.graph.analysis.mutation import WRITTEN_AROUND
from stator.graph.fx.graph_modules import write_code
from stator.host.hook_handles import handle_numbers_kept
from stator.host.suspended_patches import restored
from stator.settings.options import Settings
from stator.shapes.environment import TraceEnvironment

Share = Callable[[torch.fx.GraphModule, Sequence[Any], bool, Callable[[], Callable[..., Any]]], Callable[..., Any]]


def compile_graph(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], settings: Settings,
                  fake_mode: FakeTensorMode, grad_enabled: bool, share: Share | None = None) -> Callable[..., Any]:
    """Compile `gm`, which then belongs to the backend; `grad_enabled`: the grad mode of the capture."""
    consumed = consumed_results(gm.graph)
    compiled = compile_without_histories(gm, example_inputs, settings, fake_mode, grad_enabled, share)
    compiled = with_histories(compiled, consumed) if consumed else compiled
    if find_backend(settings.backend).function not in NEED_NO_CODE:
        note_conditions(compiled, conditions_now(settings.backend == "inductor"))
    return compiled


def compile_without_histories(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], settings: Settings,
                              fake_mode: FakeTensorMode, grad_enabled: bool, share: Share | None
                              ) -> Callable[..., Any]:
    backend = find_backend(settings.backend)
    if backend.function in NEED_NO_CODE:
        return run_as_captured(gm, example_inputs, settings)
    # What a user's backend returns is called as it is.
    counts, inferred = write_counts(gm, example_inputs), inference_results(gm)  # before the graph is compiled
    compiled = compile_around_boundaries(gm, example_inputs, settings, fake_mode, grad_enabled, share) \
        if has_boundaries(gm.graph) else compile_piece(gm, example_inputs, settings, fake_mode, grad_enabled)
    if not backend.takes_settings:
        return compiled
    compiled = with_write_counts(compiled, counts) if any(counts) else compiled
    return with_inference_results(compiled, inferred) if inferred else compiled


def run_as_captured(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], settings: Settings) -> Callable[..., Any]:
    """Call a backend without a compiler: it draws no random numbers, traces nothing and reads no context."""
    started = time.perf_counter()
    backend = find_backend(settings.backend)
    compiled = call_backend(backend, gm, example_inputs, settings)
    events.emit(events.BackendCompiled(backend.name, len(gm.graph.nodes), time.perf_counter() - started))
    return compiled


def compile_piece(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], settings: Settings,
                  fake_mode: FakeTensorMode, grad_enabled: bool) -> Callable[..., Any]:
    """Compile a graph without autograd boundaries: what repeats in it once, or all of it."""
    take_views: Callable[[Callable[..., Any]], Callable[..., Any]] = unchanged
    if grad_enabled and settings.has_own_backend:
        try:
            gm, take_views = take_views_out(gm, grad_enabled)
        except WrittenAfterwards:
            return compile_as_it_is(gm, example_inputs, settings, "a write to returned views")

    def compile_one(piece: torch.fx.GraphModule, given: list[Any], grad: bool) -> Callable[..., Any]:
        return compile_whole(piece, given, settings, fake_mode, grad)

    try:
        compiled = compile_regions(gm, example_inputs, settings, fake_mode, grad_enabled, compile_one,
                                   lambda: twice_differentiable(gm, example_inputs, grad_enabled,
                                                                find_backend(settings.backend)))
    except (Whole, BackendError) as why:
        if str(why):
            events.emit(events.GraphKeptWhole(len(gm.graph.nodes), str(why)))
        compiled = compile_whole(gm, example_inputs, settings, fake_mode, grad_enabled)
    return take_views(compiled)


def compile_whole(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], settings: Settings,
                  fake_mode: FakeTensorMode, grad_enabled: bool) -> Callable[..., Any]:
    backend = find_backend(settings.backend)
    started = time.perf_counter()
    graph_nodes = len(gm.graph.nodes)
    mark_static_inputs(gm)
    keep_checks(gm.graph)
    save_values(gm, example_inputs)
    finish = twice_differentiable(gm, example_inputs, grad_enabled, backend)
    numbered = CompileContext(gm.meta["dynamo_compile_id"])  # by which compilers distinguish their graphs
    with tracing_context(fake_mode), compile_context(numbered), wrappers_kept(backend.takes_settings) as around, \
            torch.set_grad_enabled(grad_enabled), unchanged_random_state(), settings_kept(gm.graph.nodes), \
            backward_alone(), trainable_lstm(gm, example_inputs, grad_enabled), floats_as_data(fake_mode.shape_env), \
            compiling(fake_mode.shape_env), dropouts_of_everything(), without_size_marks(), handle_numbers_kept(), \
            results_kept_apart(), dispatch_keys_kept(gm):
        compiled = call_backend(backend, gm, example_inputs, settings)
    note_wrappers(compiled, around)
    if not callable(compiled):
        raise BackendError(backend.name, f"it returned {compiled!r}, which is not callable")
    events.emit(events.BackendCompiled(backend.name, graph_nodes, time.perf_counter() - started))
    return finish(compiled)


def compile_around_boundaries(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], settings: Settings,
                              fake_mode: FakeTensorMode, grad_enabled: bool, share: Share | None = None
                              ) -> Callable[..., Any]:
    """Compile a graph in pieces, else in one, else run it as it is; `share` finds a compiled equal piece."""
    def compile_next(piece: torch.fx.GraphModule, given: list[Any], grad: bool) -> Callable[..., Any]:
        if has_boundaries(piece.graph):
            return compile_around_boundaries(piece, given, settings, fake_mode, grad, share)
        if settings.has_own_backend and has_nothing_to_fuse(piece.graph):
            return run_as_captured(piece, given, replace(settings, backend="eager", mode=None, options={}))

        if short:
            piece.meta[ONE_PIECE] = True

        def compile_it() -> Callable[..., Any]:
            return compile_piece(piece, given, settings, fake_mode, grad)

        if share is None or piece.meta.get(WRITTEN_AROUND, True):  # a way of a branch has no such mark
            return compile_it()
        return share(piece, given, grad, compile_it)

    short = is_short_step(gm, example_inputs, settings, grad_enabled)
    for gradient in gradients_to_take_between(gm, example_inputs, settings, grad_enabled):
        gradient.meta[BOUNDARY] = BETTER_CUT
    try:
        return compile_pieces(gm, example_inputs, grad_enabled, compile_next)
    except InOnePiece as why:
        if not must_be_cut(gm.graph):
            return compile_piece(gm, example_inputs, settings, fake_mode, grad_enabled)
        return compile_as_it_is(gm, example_inputs, settings, str(why))


def compile_as_it_is(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], settings: Settings,
                     why: str) -> Callable[..., Any]:
    """Run a graph that no compiler does as the program does."""
    events.emit(events.EagerFallback("a captured graph", f"it is run as it is: {why}"))
    return run_as_captured(gm, example_inputs, replace(settings, backend="eager", mode=None, options={}))


def call_backend(backend: Backend, gm: torch.fx.GraphModule, example_inputs: Sequence[Any],
                 settings: Settings ) -> Callable[..., Any]:
    """Call the backend's function as its kind expects; its failure becomes a BackendError."""
    if backend.function not in NEED_NO_CODE:
        write_code(gm)
    try:
        if backend.takes_settings:
            return backend.function(gm, example_inputs, settings)
        # A list, because that is what torch hands to backends, and some of them change it.
        gm, inputs, finish = with_symbols(gm, list(example_inputs))
        with restored():  # it is part of the program
            return finish(past_hooks(backend.function(gm, inputs, **tuning_keywords(settings))))
    except BackendError:
        raise
    except Exception as error:
        where = "" if backend.takes_settings else f" ({describe_callable(backend.function)})"
        raise BackendError(backend.name, f"compilation failed{where} with {type(error).__name__}: {error}") from error


def past_hooks(compiled: Callable[..., object]) -> Callable[..., object]:
    """Call a graph that a backend returned by its `forward`: hooks and patches of all modules are the program's."""
    if not isinstance(compiled, torch.fx.GraphModule) or compiled._forward_hooks or compiled._forward_pre_hooks \
            or compiled._backward_hooks or compiled._backward_pre_hooks:
        return compiled

    def run(*args: object) -> object:
        return compiled.forward(*args)
    return run


def backward_alone() -> contextlib.AbstractContextManager[Any]:
    """Have AOTAutograd trace the backward pass without autocast: in eager that around `backward()` counts."""
    ambient = config.backward_pass_autocast == "same_as_forward"  # its default
    return config.patch(whole() | ({"backward_pass_autocast": "off"} if ambient else {}))


def compiling(shape_env: object) -> contextlib.AbstractContextManager[None]:
    return shape_env.compiling() if type(shape_env) is TraceEnvironment else contextlib.nullcontext()


@contextlib.contextmanager
def tracing_context(fake_mode: FakeTensorMode) -> Iterator[TracingContext]:
    """The tracing context of torch in which compilers find the fake mode and leave guards; the caller's, if any."""
    current = TracingContext.try_get()
    if current is not None and current.fake_mode is fake_mode:
        yield current
        return
    context = TracingContext(fake_mode)
    with tracing(context):
        yield context


@contextlib.contextmanager
def unchanged_random_state() -> Iterator[None]:
    """Compilers draw random numbers (tuning inputs, names); the program's streams must not move."""
    python_state = random.getstate()
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python_state)
