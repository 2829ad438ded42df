"""Leave versions of inputs and inference tensors among results as eager leaves them, behind a compiled graph.

In: a graph and its fakes, which the trace has written to as the program does.  Out: a call around the compiled graph.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.grad_mode import _enter_inference_mode

from stator.graph.analysis.mutation import storage_of, written_storages

Function = Callable[..., Any]
MOST_NODES = 1_000  # of autograd, looked at behind the results of a first call


class WriteCounts(NamedTuple):
    """How often the graph writes to inputs, by place."""

    known: dict[int, int]
    unless_saved: dict[int, int]  # autograd may have saved them at another count, and compares


def write_counts(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> WriteCounts:
    """How often the graph writes to each input; nothing where that is unknown or counters must stay as they are.

    x.add_(1); x.mul_(2)  ->  x._version grows by 2, whatever the compiled graph does.
    """
    results = next(node for node in reversed(gm.graph.nodes) if node.op == "output").all_input_nodes
    values: list[Any] = [node.meta.get("example_value") for node in results]
    with torch._C.DisableTorchFunction():
        differentiable = any(isinstance(value, torch.Tensor) and has_history(value) for value in values)
        storages = set().union(*map(written_storages, gm.graph.nodes))
        counts = {place: fake._version for place, fake in enumerate(inputs) if type(fake) is FakeTensor
                  and not fake.is_inference() and (fake._version or storage_of(fake) in storages)}
        unless_saved = {}
        if differentiable:
            unless_saved = {place: count for place, count in counts.items()
                            if count and not inputs[place].requires_grad}
            counts = {place: count for place, count in counts.items() if not count}
        if any(inputs[place].requires_grad and not inputs[place].is_leaf for place in counts):
            return WriteCounts({}, {})
    places = [storage_of(fake) for fake in inputs if type(fake) is FakeTensor]
    if any(places.count(storage_of(inputs[place])) > 1 for place in [*counts, *unless_saved]):
        return WriteCounts({}, {})  # which of them share a counter?
    return WriteCounts(counts, unless_saved)


def has_history(tensor: torch.Tensor) -> bool:
    try:
        return tensor.requires_grad and not tensor.is_leaf
    except RuntimeError:  # one of several views whose base was written to: autograd refuses to tell
        return True


def with_write_counts(compiled: Function, counts: WriteCounts) -> Function:
    added = list((counts.known | counts.unless_saved).items())
    unproven = list(counts.unless_saved)

    def run(*args: Any) -> Any:
        after = [(args[place], args[place]._version + count) for place, count in added]
        out = compiled(*args)
        if unproven:  # the first call shows what is saved
            saved = saved_storages(out)
            kept = [args[place] for place in unproven if saved is None or args[place].layout is not torch.strided
                    or args[place].untyped_storage()._cdata in saved]
            added[:] = [(place, count) for place, count in added if not any(args[place] is each for each in kept)]
            after = [(tensor, version) for tensor, version in after if not any(tensor is each for each in kept)]
            unproven.clear()
        if after:
            torch._C._autograd._unsafe_set_version_counter(*zip(*after, strict=True))
        return out

    return run


def saved_storages(results: Any) -> set[int] | None:
    """The memory that autograd has saved behind the results of a compiled graph; None where there is too much of it."""
    found: set[int] = set()
    ahead = [each.grad_fn for each in results if isinstance(each, torch.Tensor)]
    met: set[Any] = {None}
    while ahead:
        node = ahead.pop()
        if node in met:
            continue
        met.add(node)
        if len(met) > MOST_NODES:
            return None
        try:
            saved = getattr(node, "saved_tensors", None)
            if saved is None:  # a view of a result, or a node between two pieces
                saved = [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]
        except RuntimeError:  # a pass has freed it, or a write has spoilt it
            return None
        ahead += [each for each, _ in node.next_functions]  # of the pieces before
        found.update(each.untyped_storage()._cdata for each in flat(saved)  # a sparse one is no memory of its own
                     if isinstance(each, torch.Tensor) and each.layout is torch.strided)
    return found


def flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from value
        else:
            yield value


# ---------------------------------------------------------------------- inference mode


@contextlib.contextmanager
def dispatch_keys_kept(gm: torch.fx.GraphModule) -> Iterator[None]:
    """Restore torch's dispatch keys where a compiler fails inside inference mode.

    The guard of the mode dies with the frames of the error, and puts back keys of modes that were left before.
    """
    if not gm.graph.find_nodes(op="call_function", target=_enter_inference_mode):
        yield
        return
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(),
                                         torch._C._dispatch_tls_local_exclude_set()):
        try:
            yield
        except Exception as error:
            cause: BaseException | None = error
            while cause is not None:
                traceback.clear_frames(cause.__traceback__)
                cause = cause.__cause__ or cause.__context__
            raise


def inference_results(gm: torch.fx.GraphModule) -> tuple[int, ...]:
    """Places of results that eager would have made under inference_mode(), where the call began outside of it."""
    output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    results = output.args[0]
    if torch.is_inference_mode_enabled() or not isinstance(results, (tuple, list)):
        return ()
    values: list[Any] = [isinstance(node, torch.fx.Node) and node.meta.get("example_value") for node in results]
    with torch._C.DisableTorchFunction():
        return tuple(place for place, value in enumerate(values) if type(value) is FakeTensor and value.is_inference()
                     and value.layout is torch.strided and not value.is_conj() and not value.is_neg())


def with_inference_results(compiled: Function, places: Sequence[int]) -> Function:
    """A compiler makes ordinary tensors: answer inference tensors on their memory."""
    def run(*args: Any) -> Any:
        out = list(compiled(*args))
        with torch.inference_mode():
            for place in places:
                made = out[place]
                if not made.is_inference():
                    out[place] = torch.empty(0, dtype=made.dtype, device=made.device).set_(
                        made.untyped_storage(), made.storage_offset(), made.size(), made.stride())
        return out

    return run
