"""Replace rules of AOTAutograd and Inductor while a graph is compiled.   a graph  ->  compiled as eager computes it

Each context manager surrounds one compilation, and says which rule gives another result than eager.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._decomp import decompositions
from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import _side_effectful_functions
from torch.utils._sympy.symbol import SymT, symbol_is_type
from torch.utils.checkpoint import CheckpointPolicy

from stator.graph.analysis.mutation import (
    WRITTEN_AROUND,
    storage_of,
    tensors_in,
    writes,
    written_by,
    written_storages,
)
from stator.native.torch_ops import draws_inside, draws_random_numbers

_TAG = "partitioner_tag"  # of AOTAutograd, on each node of a graph for both passes


@contextlib.contextmanager
def eager_streams(module: fx.GraphModule) -> Iterator[None]:
    """Have AOTAutograd keep every draw, also unused ones and those in branches: the numbers drawn next depend on it."""
    inner = [each for each in module.modules() if isinstance(each, fx.GraphModule)]
    operators = {node.target for each in inner for node in each.graph.nodes if _draws_inside(each, node)}
    operators -= _side_effectful_functions
    _side_effectful_functions.update(operators)
    try:
        with importlib.import_module("torch._inductor.config").patch(fallback_random=True):
            yield
    finally:
        _side_effectful_functions.difference_update(operators)


_FORWARD = (None, CheckpointPolicy.MUST_SAVE)  # marks of what no checkpoint makes again


def draws_in_place(partition: Callable[..., Any]) -> Callable[..., Any]:
    """Leave each draw in its pass: AOTAutograd moves draws of the backward pass into the forward pass."""
    def cut(joint: fx.GraphModule, *args: object, **kwargs: object) -> Any:
        cut_by = partition
        for node in joint.graph.nodes:
            if node.meta.get(_TAG) == "is_forward" and node.meta.get("recompute") in _FORWARD and _draws(joint, node):
                node.meta[_TAG] = "must_be_in_forward"
            elif node.meta.get(_TAG) == "is_backward" and _draws(joint, node):
                node.meta[_TAG] = "must_be_in_backward"
                # Others sort the backward pass by what needs what.
                cut_by = importlib.import_module("torch._functorch.partitioners").default_partition
        return cut_by(joint, *args, **kwargs)
    return cut


def _draws(module: fx.GraphModule, node: fx.Node) -> bool:
    return draws_random_numbers(node.target) or _draws_inside(module, node)


def _draws_inside(module: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node runs graphs that draw (torch.cond)."""
    return isinstance(node.target, HigherOrderOperator) and any(
        isinstance(inner := getattr(module, str(each.target), None), fx.GraphModule) and draws_inside(inner)
        for each in node.all_input_nodes if each.op == "get_attr")


_DROPOUT = torch.ops.aten.dropout.default


@contextlib.contextmanager
def dropouts_of_everything() -> Iterator[None]:
    """Compile F.dropout(x, 1.0) to x * 0, as the operator computes it: no number is drawn, and 0 * inf is nan."""
    rules = dict(_DROPOUT.py_kernels)
    _replace({key: _as_the_operator_does(known) for key, known in rules.items()})
    try:
        yield
    finally:
        _replace(rules)


def _as_the_operator_does(known: Callable[..., Any]) -> Callable[..., Any]:
    def dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
        if train and p == 1:
            return input * torch.zeros((), dtype=input.dtype, device=input.device)
        return known(input, p, train)
    return dropout


def _replace(rules: dict[Any, Callable[..., Any]]) -> None:
    _DROPOUT.py_kernels.update(rules)
    _DROPOUT._dispatch_cache.clear()


class Unmerged:
    """An operator in one node of a graph, which equals no other node's."""

    def __init__(self, operator: Callable[..., object]) -> None:
        self.operator = operator
        self.__name__ = operator.__name__

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.operator(*args, **kwargs)

    def __getattr__(self, name: str) -> object:
        return getattr(self.operator, name)


@contextlib.contextmanager
def results_kept_apart() -> Iterator[None]:
    """Compile `x.max(0), x.max(0)` to four tensors, as eager makes them.

    AOTAutograd computes equal nodes once unless the graph returns them, and looks for that at single results alone.
    """
    names = vars(importlib.import_module("torch._functorch.partitioners"))
    merge = names["fx_graph_cse"]
    names["fx_graph_cse"] = functools.partial(_merge_inner, merge)
    try:
        yield
    finally:
        names["fx_graph_cse"] = merge


def _merge_inner(merge: Callable[[fx.Graph], fx.Graph], graph: fx.Graph) -> fx.Graph:
    returned = {storage_of(tensor) for node in graph.output_node().all_input_nodes
                for tensor in tensors_in(node.meta.get("val"))}
    for node in graph.nodes:
        results = node.meta.get("val") if node.op == "call_function" else None
        if isinstance(results, (list, tuple)) and not returned.isdisjoint(map(storage_of, tensors_in(results))):
            node.target = Unmerged(node.target)
    merged = merge(graph)
    for node in (*graph.nodes, *merged.nodes):
        if isinstance(node.target, Unmerged):
            node.target = node.target.operator
    return merged


@contextlib.contextmanager
def trainable_lstm(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], grad_enabled: bool) -> Iterator[None]:
    """Turn oneDNN off around the compilation of an LSTM that learns.

    AOTAutograd picks oneDNN's kernel for inference whenever the *sequence* needs no gradient, though the weights may.
    """
    wants_grad = grad_enabled and any(isinstance(t, torch.Tensor) and t.requires_grad for t in example_inputs)
    if not wants_grad or not any(node.target in _LSTM for node in gm.graph.nodes):
        yield
        return
    enabled, one_layer = torch._C._get_mkldnn_enabled(), decompositions.one_layer_lstm
    torch._C._set_mkldnn_enabled(False)
    decompositions.one_layer_lstm = _with_states_as_given(one_layer)
    try:
        yield
    finally:
        decompositions.one_layer_lstm = one_layer
        torch._C._set_mkldnn_enabled(enabled)


def _with_states_as_given(one_layer: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of one layer, whose last states have the shapes of the first."""
    def layer(sequence: object, hidden: Any, *rest: object, **options: object) -> Any:
        out, last = one_layer(sequence, hidden, *rest, **options)
        return out, tuple(state.reshape(first.shape) for state, first in zip(last, hidden, strict=True))
    return layer


_LSTM = frozenset({torch.lstm, torch._VF.lstm, torch.ops.aten.lstm.input, torch.ops.aten.lstm.data})


class _NoMarks(dict[int, set[int]]):
    """Stay empty."""

    def __setitem__(self, place: int, sizes: set[int]) -> None:
        return


@contextlib.contextmanager
def without_size_marks() -> Iterator[None]:
    """Keep AOTAutograd from marking tensors whose sizes are symbolic: vars(compiled(x)) is {}, as in eager."""
    known = ViewAndMutationMeta.__post_init__

    @functools.wraps(known)
    def without_marks(self: Any) -> None:
        known(self)
        self.dynamic_outputs = False
        self.dynamic_saved_tensors_idxs = _NoMarks()

    setattr(ViewAndMutationMeta, "__post_init__", without_marks)
    try:
        yield
    finally:
        setattr(ViewAndMutationMeta, "__post_init__", known)


@contextlib.contextmanager
def floats_as_data(shape_env: Any) -> Iterator[None]:
    """Compile a graph with a boxed float without a constant in it; AOTAutograd would restart torch's own tracer."""
    known = () if shape_env is None else shape_env.backed_var_to_val
    names = {str(symbol) for symbol in known if symbol_is_type(symbol, SymT.FLOAT)}
    if not names:
        yield
        return
    wishes = importlib.import_module("torch._dynamo.symbolic_convert").TensorifyState.force_specializations
    added = names - wishes
    wishes |= added
    try:
        yield
    finally:
        wishes -= added


def save_values(gm: fx.GraphModule, inputs: Sequence[object]) -> None:
    """Forbid recomputation from written inputs: y = w * b.exp(); b.add_(1)  ->  b.exp() is saved."""
    storages = set(gm.meta.get(WRITTEN_AROUND, ())).union(*map(written_storages, gm.graph.nodes))
    storages.intersection_update([storage_of(fake) for fake in inputs if type(fake) is FakeTensor])
    if not any("recompute" in node.meta for node in gm.graph.nodes):
        gm.meta[_WRITTEN] = len(storages)
    for node in gm.graph.nodes if storages else ():
        reads = any(_shows(each, storages) for each in node.all_input_nodes)
        if reads and node.op.startswith("call_") and (writes(node) or not _shows(node, storages)):  # else it is a view
            node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)


_WRITTEN = "written inputs"  # in the meta of a graph without marks of the user: how many inputs it writes to


def _save_what_is_read(joint: fx.GraphModule, written: int) -> None:
    """Mark the operations that read a written input in place of the nodes they belong to.

    Of a batch norm, these are the ones that read its running statistics: the rest may be computed again.
    """
    inputs = [node for node in joint.graph.find_nodes(op="placeholder")
              if any(node in written_by(user) for user in node.users)]
    if len(inputs) != written:  # others are written to after the graph has run
        return
    storages = {storage_of(node.meta["val"]) for node in inputs}
    for node in joint.graph.nodes:
        if node.op == "call_function" and node.meta.get(_TAG) != "is_backward":
            node.meta.pop("recompute", None)
            reads = any(_shows(each, storages, "val") for each in node.all_input_nodes)
            if reads and not _shows(node, storages, "val"):
                node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def partitioner_of_marks(gm: fx.GraphModule) -> dict[str, object]:
    """The setting of Inductor that puts marks of nodes, those of checkpoints too, into the keys of its caches."""
    marks = [(place, str(node.meta["recompute"])) for place, node in enumerate(gm.graph.nodes)
             if "recompute" in node.meta]
    if not marks:
        return {}
    passes = importlib.import_module("torch._inductor.custom_graph_pass")
    partition = importlib.import_module("torch._functorch.partitioners").min_cut_rematerialization_partition

    class Partitioner(passes.CustomPartitionerFn):  # type: ignore[misc,name-defined]
        def __call__(self, joint: fx.GraphModule, *args: object, **kwargs: object) -> object:
            if _WRITTEN in gm.meta:
                _save_what_is_read(joint, gm.meta[_WRITTEN])
            return partition(joint, *args, **kwargs)

        def uuid(self) -> object:
            return passes.get_hash_for_files((__file__,), str(marks))

        def __reduce__(self) -> tuple[object, ...]:  # Inductor pickles its settings to make a key of them
            return str, (str(marks),)

    return {"custom_partitioner_fn": Partitioner()}


def _shows(node: fx.Node, storages: set[int], value: str = "example_value") -> bool:
    return any(storage_of(tensor) in storages for tensor in tensors_in(node.meta.get(value)))
