"""Work of AOTAutograd around its passes, as data.   facts of a compiled graph  <->  a function around its passes

In: what AOTAutograd found out about a graph: inputs that it writes to, results that are views, sizes that the backward
pass needs.  Out: `WrapperFacts`, which are plain data, and from them a function that does the same around passes that
were compiled elsewhere.  AOTAutograd itself is not imported: a process that loads a compiled graph has no use for it.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeAlias

import torch
from torch.autograd.function import once_differentiable

from stator.backends.autograd_passes import JoinedPasses
from stator.backends.inner_calls import Boxed
from stator.settings.process_config import config

Thing: TypeAlias = Any  # an object of AOTAutograd, whose classes are not imported; an argument of a graph
_functionalization: Thing = getattr(torch._C, "_functionalization", None)  # of torch 2.9 and later
_RUNTIME = "torch._functorch._aot_autograd.runtime_wrappers"
_PLAIN = ("non_alias", "unsafe_view_alias", "custom_function_view")
_REFUSED = {"is_rng_op_functionalized": "random numbers by offset", "num_graphsafe_rng_states": "states of generators",
            "tokens": "ordered effects", "num_backward_tokens": "ordered effects",
            "num_opaque_objects_saved_for_bw": "opaque objects"}


# Settings that compilers read, and that no guard compares.
_SETTINGS: dict[str, Callable[[], Thing]] = {
    "threads": torch.get_num_threads, "float32 matmul precision": torch.get_float32_matmul_precision,
    "flash attention": torch.backends.cuda.flash_sdp_enabled, "math attention": torch.backends.cuda.math_sdp_enabled,
    "memory-efficient attention": torch.backends.cuda.mem_efficient_sdp_enabled,
    "cuDNN attention": torch.backends.cuda.cudnn_sdp_enabled, "oneDNN": torch._C._get_mkldnn_enabled,
    "cuDNN": torch._C._get_cudnn_enabled, "deterministic cuDNN": torch._C._get_cudnn_deterministic,
    "filled memory": torch._C._get_deterministic_fill_uninitialized_memory, "anomaly mode": torch.is_anomaly_enabled}


# ---------------------------------------------------------------------- while a graph is compiled


_ahead: contextvars.ContextVar[bool] = contextvars.ContextVar("ahead of time", default=False)


@contextlib.contextmanager
def ahead_of_time() -> Iterator[None]:
    """Compile backward passes with their forward passes: what is captured here is saved before it is called."""
    token = _ahead.set(True)
    try:
        yield
    finally:
        _ahead.reset(token)


def whole() -> dict[str, Thing]:
    """Settings of AOTAutograd where captures are stored: compile a backward pass with its forward pass.

    Else it is compiled when backward() is first called, which may be never, and is missing in the stored capture.
    """
    folder = config.artifact_dir or os.environ.get("STATOR_CACHE_DIR")
    mode = config.artifact_mode or os.environ.get("STATOR_CACHE_MODE") or "read-write"
    return {"force_non_lazy_backward_lowering": True} if _ahead.get() or folder and mode == "read-write" else {}


class Around:
    """Wrappers of AOTAutograd around the passes of one graph, as its own objects."""

    def __init__(self) -> None:
        self.wrappers: list[tuple[Thing, Thing, Thing]] = []  # the wrapper, its settings, metadata of the graph
        self.rearranged = ""  # why the inputs of the passes are not those of the graph


_conditions: weakref.WeakKeyDictionary[object, dict[str, Thing]] = weakref.WeakKeyDictionary()
_known: weakref.WeakKeyDictionary[object, Around] = weakref.WeakKeyDictionary()  # by compiled function


@contextlib.contextmanager
def wrappers_kept(needs_autograd: bool) -> Iterator[Around]:
    """Keep what AOTAutograd wraps around a graph; `needs_autograd`: the backend uses AOTAutograd."""
    around = Around()
    if needs_autograd:
        importlib.import_module("torch._functorch.aot_autograd")  # which has to be imported before its parts
    module: Thing = sys.modules.get(_RUNTIME)
    if module is None:
        yield around
        return
    runtime, duplicates, bases = module.RuntimeWrapper, module.AOTDedupeWrapper, module.AOTSyntheticBaseWrapper
    before = [(cls, cls.post_compile) for cls in (runtime, duplicates, bases)]

    def wrap(self: Thing, compiled: Thing, config: Thing, *, runtime_metadata: Thing) -> object:
        around.wrappers.append((self, config, runtime_metadata))
        return before[0][1](self, compiled, config, runtime_metadata=runtime_metadata)

    def rearranging(place: int, why: str) -> Callable[..., object]:
        def wrap_inputs(self: Thing, compiled: Thing, config: Thing, *, runtime_metadata: Thing) -> object:
            around.rearranged = around.rearranged or (why if self.needs_post_compile else "")
            return before[place][1](self, compiled, config, runtime_metadata=runtime_metadata)
        return wrap_inputs

    runtime.post_compile = wrap
    duplicates.post_compile = rearranging(1, "an input that the graph has twice")
    bases.post_compile = rearranging(2, "inputs that share memory which the graph writes to")
    try:
        yield around
    finally:
        for cls, method in before:
            cls.post_compile = method


def note_wrappers(compiled: object, around: Around) -> None:
    """Remember them for whoever stores the graph."""
    if around.wrappers and type(compiled) is FunctionType:
        _known[compiled] = around


def conditions_now(generates: bool = True) -> dict[str, Thing]:
    """Settings of torch that a graph which is compiled now depends on; `generates`: the backend generates loops."""
    return {name: read() for name, read in _SETTINGS.items() if generates or name != "threads"}


def note_conditions(compiled: object, conditions: dict[str, Thing]) -> None:
    """Remember under which settings a graph was compiled."""
    if type(compiled) in (FunctionType, JoinedPasses, WrappedPasses):
        _conditions[compiled] = conditions


def conditions_of(compiled: object) -> dict[str, Thing] | None:
    return _conditions.get(compiled) if type(compiled) in (FunctionType, JoinedPasses, WrappedPasses) else None


def facts_of_wrappers(compiled: object) -> WrapperFacts:
    """Work around the passes of a compiled graph; `ValueError` with the reason where it has no form as data."""
    around = _known.get(compiled)
    if around is None or len(around.wrappers) != 1:
        raise ValueError("a compiled graph that AOTAutograd has wrapped otherwise")
    wrapper, config, meta = around.wrappers[0]
    why = around.rearranged or next((text for name, text in _REFUSED.items() if getattr(meta, name, 0)), "")
    plain = [type(each).__name__ in ("PlainTensorMeta", "int")
             for each in (*meta.subclass_inp_meta, *meta.subclass_fw_graph_out_meta, *meta.subclass_tangent_meta)]
    if why or not all(plain) or any(getattr(meta, "mutated_inp_stream_indices", None) or ()):
        raise ValueError(f"a compiled graph around which AOTAutograd handles {why or 'subclasses of tensors, streams'}")
    return described(wrapper, config, meta)


def described(wrapper: Thing, config: Thing, meta: Thing) -> WrapperFacts:
    written = [Write(place, info.mutates_data, info.mutates_metadata, info.mutates_storage_metadata, info.is_leaf,
                     info.requires_grad)
               for place in meta.mutated_inp_runtime_indices for info in [meta.input_info[place]]]
    outputs = [Output(info.output_type.name, info.base_idx, info.requires_grad,
                      info.output_type.name in _PLAIN and issubclass(info.raw_type, torch.Tensor)
                      and takes_gradient(info), view_steps(info)) for info in meta.output_info]
    return WrapperFacts(
        wrapper.trace_joint, len(meta.input_info), tuple(wrapper.indices_of_inps_to_detach), wrapper.disable_amp,
        tuple(meta.mutated_graph_handled_indices_seen_by_autograd) if config.keep_inference_input_mutations else (),
        tuple(written), tuple(outputs), meta.num_intermediate_bases, meta.grad_enabled_mutation,
        Saved(meta.num_symints_saved_for_bw or 0, getattr(meta, "num_tensors_saved_with_no_vc_check", 0) or 0,
              bool(getattr(meta, "bw_donated_idxs", None)), meta.deterministic is False,
              bool(meta.indices_of_inputs_that_requires_grad_with_mutations_in_bw)),
        tuple([tangent_layout(each.memory_format) for each in meta.subclass_tangent_meta]))


def takes_gradient(info: Thing) -> bool:
    """Whether backward gets the gradient of an output; torch 2.11 has one field for this and `requires_grad`."""
    return bool(getattr(info, "requires_grad_for_backward", info.requires_grad))


def view_steps(info: Thing) -> tuple[Thing, ...] | None:
    """Functions that make a view of its base, by name; None where its layout alone is known."""
    known = info.view_meta_sequence
    if known is None or not importlib.import_module("torch._functorch.config").view_replay_for_aliased_outputs:
        return None
    sequence = getattr(known, "sequence", None)
    if _functionalization is None or sequence is None or any(each.has_symbolic_inputs for each in sequence):
        return None
    return tuple(map(view_step, sequence))


def view_step(step: Thing) -> tuple[str, tuple[Thing, ...]]:
    mode = _functionalization.InverseReturnMode
    return type(step).__name__, tuple([("mode", part.name) if type(part) is mode else ("is", part)
                                       for part in step.as_tuple()])


def tangent_layout(expected: Thing) -> Thing:
    """The layout that the backward pass expects of a gradient: size and stride, or a memory format."""
    if getattr(expected, "memory_format", None) is not None:
        return expected.memory_format
    return tuple(expected.size), tuple(expected.stride)


# ---------------------------------------------------------------------- as data


@dataclass(frozen=True)
class Write:
    """An input that the graph returns changed, to be written behind it."""

    place: int
    data: bool
    layout: bool  # its sizes and strides
    storage: bool  # its whole storage, by `set_`
    leaf: bool
    requires_grad: bool


@dataclass(frozen=True)
class Output:
    """A result: `kind` is AOTAutograd's name; `base` the place of the input or result that it is a view of."""

    kind: str
    base: int | None
    requires_grad: bool
    has_tangent: bool
    steps: tuple[Thing, ...] | None


@dataclass(frozen=True)
class Saved:
    """Values between the passes."""

    numbers: int
    unchecked: int  # tensors whose write count does not matter
    donated: bool  # the backward pass writes to what was saved
    undetermined: bool  # it must not run where deterministic algorithms are on
    writes_inputs: bool


@dataclass(frozen=True)
class WrapperFacts:
    """All that is done around the passes of one graph."""

    differentiable: bool
    inputs: int
    detached: tuple[int, ...]
    shielded: bool  # autocast is off around the passes
    counted: tuple[int, ...]  # inputs that a pass itself writes to
    written: tuple[Write, ...]
    outputs: tuple[Output, ...]
    bases: int  # results behind the outputs: what views are made of
    grad_mode: bool | None  # behind the graph
    saved: Saved
    tangents: tuple[Thing, ...]

    @functools.cached_property
    def is_plain(self) -> bool:
        """Whether the results are those of the pass."""
        return self.grad_mode is None and all([output.kind in _PLAIN for output in self.outputs])


# ---------------------------------------------------------------------- from data


class Hidden:
    """A tensor that autograd does not see among the results of a node."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Thing) -> None:
        self.tensor = tensor


@dataclass(eq=False)
class WrappedPasses:
    """Passes of one graph, with what AOTAutograd would do around them; `build` makes the node of autograd."""

    around: WrapperFacts
    forward: Boxed
    backward: Boxed | None
    node: Thing = None

    def __call__(self, *args: Thing) -> Thing:
        around, given = self.around, [*args]
        if around.counted:
            torch.autograd.graph.increment_version([args[place] for place in around.counted])
        if around.differentiable:
            made = self._differentiably(given)
        else:
            with torch.no_grad(), shield(around.shielded):
                made = [*self.forward(given)]
        count = len(around.written)
        for write, changed in zip(around.written, made[:count], strict=True):
            write_back(args[write.place], shown(changed), write)
        results = made[count:] if count else made
        if around.is_plain:
            return results
        found = [result_of(around, output, place, args, results) for place, output in enumerate(around.outputs)]
        if around.grad_mode is not None:
            torch._C._set_grad_enabled(around.grad_mode)
        return found

    def _differentiably(self, given: list[Thing]) -> list[Thing]:
        for place in self.around.detached:
            if isinstance(given[place], torch.Tensor):
                given[place] = given[place].detach()
        replays = torch._C._is_view_replay_enabled()
        torch._C._set_view_replay_enabled(True)
        try:
            with torch.enable_grad(), shield(self.around.shielded):
                return [*self.node.apply(*given)]
        finally:
            torch._C._set_view_replay_enabled(replays)

    def build(self) -> None:
        """Make the node; its parts are those of `around`."""
        around, forward_pass, backward_pass = self.around, self.forward, self.backward
        if not around.differentiable:
            return
        hidden = [place for place, each in enumerate(around.written) if each.layout and not each.data]
        first = len(around.written)
        hidden += [first + place for place, each in enumerate(around.outputs) if each.kind not in _PLAIN]
        renamed = [first + place for place, each in enumerate(around.outputs) if each.kind == "unsafe_view_alias"]
        kinds: list[Write | Output] = [*around.written, *around.outputs]
        constant = [place for place, each in enumerate(kinds) if not each.requires_grad]
        returned = first + len(around.outputs) + around.bases
        tangents = [place for place, each in enumerate(around.written) if each.data and each.requires_grad]
        tangents += [first + place for place, each in enumerate(around.outputs) if each.has_tangent]
        tangents += [*range(first + len(around.outputs), returned)]
        saved = around.saved

        class CompiledFunction(torch.autograd.Function):
            _aot_id = -1  # what `double_backward` knows compiled nodes by

            @staticmethod
            def forward(ctx: Thing, *args: Thing) -> Thing:
                with shield(around.shielded):
                    made = [*forward_pass([*args])]
                kept = made[returned:len(made) - saved.numbers]
                ctx.numbers = made[len(made) - saved.numbers:]
                kept = [each.detach() if each._is_view() else each for each in kept]
                ctx.save_for_backward(*kept[:len(kept) - saved.unchecked])
                ctx.unchecked = kept[len(kept) - saved.unchecked:]
                out = made[:returned]
                for place in renamed:
                    out[place] = torch.ops.aten._unsafe_view(out[place], out[place].shape)
                for place in hidden:
                    out[place] = Hidden(out[place])
                ctx.mark_non_differentiable(*[out[place] for place in constant
                                              if isinstance(out[place], torch.Tensor)])
                ctx._materialize_non_diff_grads = False
                return tuple(out)

            @staticmethod
            @once_differentiable
            def backward(ctx: Thing, *grads: Thing) -> Thing:
                check_backward(saved)
                given = [*ctx.numbers, *ctx.saved_tensors, *ctx.unchecked]
                given += [laid_out(grads[place], layout)
                          for place, layout in zip(tangents, around.tangents, strict=True)]
                ctx.maybe_clear_saved_tensors()
                del grads
                assert backward_pass is not None
                with shield(around.shielded):
                    return tuple(backward_pass(given))

        self.node = CompiledFunction


def shield(shielded: bool) -> contextlib.AbstractContextManager[Thing]:
    return torch._C._DisableAutocast() if shielded else contextlib.nullcontext()


def shown(value: Thing) -> Thing:
    return value.tensor if type(value) is Hidden else value


def check_backward(saved: Saved) -> None:
    """Raise as AOTAutograd does where the backward pass cannot run in this state of torch."""
    if saved.undetermined and torch.are_deterministic_algorithms_enabled():
        raise RuntimeError("This compiled backward function is being run with "
                           "torch.use_deterministic_algorithms(True), but it was previously generated during the "
                           "forward function while torch.use_deterministic_algorithms(False) was set.")
    if saved.donated and torch._C._autograd._get_current_graph_task_keep_graph():
        raise RuntimeError("This backward function was compiled with non-empty donated buffers which requires "
                           "create_graph=False and retain_graph=False.")


def laid_out(grad: Thing, layout: Thing) -> Thing:
    """A gradient as the backward pass expects it."""
    if not isinstance(grad, torch.Tensor):
        return grad
    if isinstance(layout, torch.memory_format):
        return grad if grad.is_contiguous(memory_format=layout) else grad.contiguous(memory_format=layout)
    size, stride = layout
    if grad.shape == size and grad.stride() == stride:
        return grad
    return torch.empty_strided(size, stride, dtype=grad.dtype, device=grad.device, layout=grad.layout).copy_(grad)


def write_back(given: torch.Tensor, changed: Thing, write: Write) -> None:
    """Write to an input what the graph has made of it."""
    if not write.data and not write.layout:
        return
    if write.storage:
        with torch.no_grad():
            given.set_(changed)
        return
    if write.layout:
        given.as_strided_(changed.size(), changed.stride(), changed.storage_offset())
    if write.data:
        hides = write.leaf and given.requires_grad  # a leaf can only have been written to behind autograd's back
        (given.detach() if hides else given).copy_(changed)


def result_of(around: WrapperFacts, output: Output, place: int, args: Sequence[Thing], results: list[Thing]) -> Thing:
    """One result, made from its base where it is a view."""
    kind, base = output.kind, output.base
    if kind in _PLAIN:
        return results[place]
    assert base is not None
    if kind == "is_input":
        return args[base]
    if kind == "alias_of_input":
        return view_of(args[base], shown(results[place]), output)
    if kind != "alias_of_intermediate_base_is_user_output":
        base += len(around.outputs)
    return view_of(shown(results[base]), shown(results[place]), output)


def view_of(base: torch.Tensor, like: torch.Tensor, output: Output) -> torch.Tensor:
    """A view of `base` with the layout of `like`, by the functions that made it where they are known."""
    if output.steps is not None:
        made = _functionalization.apply_view_meta_sequence(base, [view_function(*step) for step in output.steps])
        return as_required(made, base, output)
    origin = like._base
    if origin is not None:
        same = (base.size(), base.stride(), base.storage_offset()) == \
            (origin.size(), origin.stride(), origin.storage_offset())
        start = base if same else base.as_strided(origin.size(), origin.stride(), origin.storage_offset())
        made = like._view_func(start)
        if made is not None and made.shape == like.shape:
            return as_required(made, base, output)
    if base.is_complex() and not like.is_complex():
        base = torch.view_as_real(base)
    elif like.is_complex() and not base.is_complex():
        base = torch.view_as_complex(base)
    made = as_required(base.as_strided(like.size(), like.stride(), like.storage_offset()), base, output)
    return made if made.dtype == like.dtype else made.view(like.dtype)


def view_function(name: str, parts: Sequence[tuple[str, Thing]]) -> Thing:
    mode = _functionalization.InverseReturnMode
    return getattr(_functionalization, name)(tuple([getattr(mode, part) if kind == "mode" else part
                                                    for kind, part in parts]))


def as_required(made: torch.Tensor, base: torch.Tensor, output: Output) -> torch.Tensor:
    if base.requires_grad and not output.requires_grad:
        return made.detach()
    if not base.requires_grad and output.requires_grad:
        made.requires_grad_(True)
    return made
