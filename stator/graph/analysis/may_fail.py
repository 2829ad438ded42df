"""Which graphs may raise while they run.   t[i] with a tensor i: may;  relu, matmul, x[0]: not

Guards hold the metadata of inputs: what is left are errors that depend on values or overlapping memory.  An operation
that is not listed may raise.  Dead nodes that may raise: `dead_nodes.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import torch
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator.graph.analysis.mutation import (
    CODE,
    COLLECTIVES,
    UNREPEATABLE,
    given_nodes,
    is_collective,
    operator_name,
    reached,
    storage_of,
    tensors_in,
    why_once,
    writes,
    written_by,
    written_storages,
)
from stator.graph.analysis.refused_types import may_refuse
from stator.shapes.symbolic_values import has_unbacked, hint_of

_NEVER = frozenset("""
    abs acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d add addcdiv addcmul addmm addmv addr affine_grid all alpha_dropout amax amin aminmax angle any
    arange argmax argmin argsort asin asinh as_strided atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d baddbmm
    batch_norm bfloat16 bitwise_and bitwise_not bitwise_or bitwise_xor bmm bool broadcast_tensors broadcast_to bucketize
    cat cdist ceil celu chunk clamp clamp_max clamp_min clip clone column_stack complex concat concatenate conj
    contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d copy copysign cos cosh
    cosine_similarity count_nonzero cpu cross cummax cummin cumprod cumsum dequantize detach diag diag_embed diagonal
    diff dist dot double dropout dropout1d dropout2d dropout3d einsum elu empty empty_like eq equal erf erfc erfinv exp
    exp2 expand expand_as expm1 expmatrix eye fill flatten flip fliplr flipud float float_power floor fmax fmin frac
    full full_like gaussian_nll_loss ge gelu glu grid_sample group_norm gt half hardshrink hardsigmoid hardswish
    hardtanh heaviside hstack huber_loss hypot imag inner instance_norm int interpolate isclose isfinite isinf isnan
    kl_div kron kthvalue l1_loss layer_norm le leaky_relu lerp lgamma linear linspace log log10 log1p log2 log_softmax
    logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logsigmoid logspace logsumexp
    long lt masked_fill matmul max max_pool1d max_pool2d max_pool3d maximum mean median meshgrid min minimum mish mm
    moveaxis movedim mse_loss mul multiply mv nan_to_num nanmean nansum narrow ne neg negative new_empty new_full
    new_ones new_tensor new_zeros nextafter norm normalize not numel one_like ones ones_like outer pad permute
    pixel_shuffle pixel_unshuffle polar positive prelu prod rand rand_like randint randint_like randn randn_like ravel
    real reciprocal relu relu6 renorm repeat reshape reshape_as rms_norm roll rot90 round rsqrt rsub scalar_tensor
    scaled_dot_product_attention select selu sgn short sigmoid sign signbit silu sin sinc sinh size smooth_l1_loss
    softmax softmin softplus softshrink softsign sort split sqrt square squeeze stack std std_mean sub subtract sum
    swapaxes swapdims t tan tanh tanhshrink tensor tensordot threshold tile to topk trace transpose tril triu trunc type
    type_as unbind unflatten unfold unsafe_chunk unsqueeze var var_mean view view_as view_as_complex view_as_real vsplit
    vstack where xlogy zero zeros zeros_like set_grad_enabled getattr iadd isub imul pos invert inv and or xor iand ior
    ixor
""".split())
_NEVER_ON_FLOATS = frozenset("""
    div divide floor_divide floordiv fmod idiv ifloordiv imod ipow itruediv mod pow remainder rfloordiv rmod rpow
    rtruediv true_divide truediv rdiv
""".split())
# An index out of bounds raises on a CPU; a GPU stops for good, some time later, and nothing is left to be done again.
_BY_INDEX = frozenset("""
    getitem setitem index index_put index_select index_copy index_add index_fill index_reduce gather scatter scatter_add
    scatter_reduce take take_along_dim embedding cross_entropy nll_loss
""".split())
# What cannot be given, to read, the very tensor that it writes to; x.mul_(x) can.
_REFUSE_THEMSELVES = _BY_INDEX | frozenset("addmm addbmm baddbmm addmv addr".split())
# Of those above, what may return its argument or a part of it.
_VIEWS = frozenset("""
    as_strided bfloat16 bool broadcast_tensors broadcast_to chunk conj contiguous cpu detach diagonal double dropout
    alpha_dropout dropout1d dropout2d dropout3d expand expand_as flatten float half imag int long moveaxis movedim
    narrow permute positive pos ravel real reshape reshape_as select short size split squeeze swapaxes swapdims t to
    transpose type type_as unbind unflatten unfold unsafe_chunk unsqueeze view view_as view_as_complex view_as_real
    vsplit getattr pad einsum meshgrid
""".split())
_LINE = re.compile(r'File "(.*)", line (\d+)')
CAUGHT = "caught"  # in a node's metadata: bits for the handlers around it
NAMED, CLEANUP, ANY = 1, 2, 4  # those of errors that torch does not raise; `finally` and exits; those of any error
HANDLED = NAMED | ANY
_MAKE_NEW_MEMORY = (_NEVER | _NEVER_ON_FLOATS | {"repeat_interleave"}) - _VIEWS
CALLS = ("call_function", "call_method")


def may_fail(graph: fx.Graph, shared: frozenset[str] = frozenset()) -> bool:
    """Whether any node of the graph may raise; `shared` names the inputs that share memory with others."""
    memory = Memory(shared)
    return any(node_may_fail(node, memory) for node in graph.nodes
               if node.op not in ("placeholder", "output", "get_attr"))


def fails_where_it_is_caught(graph: fx.Graph, shared: frozenset[str] = frozenset()) -> bool:
    """Whether a node may raise what the program might catch there (see interp/graph_errors)."""
    memory = Memory(shared)
    return any(CAUGHT in node.meta and is_caught(node) and node_may_fail(node, memory) for node in graph.nodes)


def is_caught(node: fx.Node) -> bool:
    caught = node.meta.get(CAUGHT, 0)
    return bool(caught & ANY or caught & NAMED and not _is_torchs(node.target))


def lines_that_may_fail(graph: fx.Graph) -> frozenset[tuple[str, int]]:
    """File and line of the innermost frame of each node that may raise, for inputs that share memory in any way."""
    memory = Memory(all_inputs(graph))
    found = [_LINE.findall(node.meta.get("stack_trace") or "")[-1:] for node in graph.nodes
             if node.op not in ("placeholder", "output", "get_attr") and node_may_fail(node, memory)]
    return frozenset((filename, int(line)) for [(filename, line)] in filter(None, found))


def all_inputs(graph: fx.Graph) -> frozenset[str]:
    return frozenset(node.name for node in graph.nodes if node.op == "placeholder")


def _is_torchs(target: object) -> bool:
    """Whether torch itself has made an operation, whose errors are known by kind."""
    module = "torch" if isinstance(target, str) else str(getattr(target, "__module__", ""))
    if module.startswith("torch._ops."):
        return module.removeprefix("torch._ops.") in ("aten", "prims", "_c10d_functional", "stator_ranks")
    return module.partition(".")[0] in ("torch", "_operator", "builtins", "math")


def node_may_fail(node: fx.Node, memory: Memory) -> bool:
    result = node.meta.get("example_value")
    if node.meta.get("unbacked_bindings") or has_unbacked(result):
        return True
    stem = stem_of(node.target)
    if node.kwargs.get("out") is not None:  # whose dtype may be another than that of the result
        return True
    if stem in _BY_INDEX and _is_on_a_gpu(node):
        return writes(node) and memory.may_overlap(node)
    if stem in ("getitem", "setitem"):
        index = node.args[1]  # torch makes tensors of lists in it, and reads their numbers as it runs
        return _holds_tensor(index) or stem == "setitem" and memory.may_overlap(node) \
            or any(isinstance(part, (list, tuple)) for part in (index if isinstance(index, tuple) else (index,)))
    if stem != "batch_norm" and writes(node) and memory.may_overlap(node):
        return True
    if stem == "repeat_interleave":
        return _holds_tensor((node.args[1:], node.kwargs))
    if stem in _NEVER_ON_FLOATS:
        return may_refuse(node) or not all(
            isinstance(part, torch.Tensor) and (part.is_floating_point() or part.is_complex())
            for part in pytree.tree_leaves(result))
    if getattr(node.target, "never_fails", False):
        return False
    if stem not in _NEVER and not stem.startswith("foreach_"):
        return True
    return stem not in _VIEWS and may_refuse(node)


def never_fails(target: object) -> bool:
    """Whether an operation cannot raise where it has done the same to fakes; False: its arguments decide, too."""
    return stem_of(target) in _NEVER or is_collective(target)


def why_once_among(nodes: Sequence[fx.Node]) -> str:
    """Why nodes must not run twice as one: for collectives alone where nothing else is there and nothing may fail."""
    found = {reason for node in nodes if (reason := why_once(node))}
    if found != {COLLECTIVES}:
        return CODE if found else ""
    memory = Memory(frozenset(node.name for node in nodes[0].graph.nodes if node.op == "placeholder"))
    fails = any(node.op in CALLS and why_once(node) != COLLECTIVES and node_may_fail(node, memory) for node in nodes)
    return CODE if fails else COLLECTIVES


def note_inner_graphs(node: fx.Node, modules: list[fx.GraphModule], given: object) -> list[FakeTensor]:
    """Put on a higher-order operation why it must not run twice; out: the tensors that its inner graphs write to."""
    reasons = {reason for module in modules if (reason := why_once_among(list(module.graph.nodes)))}
    if reasons:
        node.meta[UNREPEATABLE] = CODE if CODE in reasons else COLLECTIVES
    storages = set().union(*(written_storages(each) for module in modules for each in module.graph.nodes))
    return [tensor for tensor in tensors_in(given) if storage_of(tensor) in storages] if storages else []


def stem_of(target: object) -> str:
    """`add` of torch.add, Tensor.add_, operator.add and `__add__`; `?` of what is not torch's."""
    return operator_name(target).strip("_") or "?"


def _is_on_a_gpu(node: fx.Node) -> bool:
    """Whether all tensors that a node is given lie there."""
    given = [value for each in node.all_input_nodes
             if isinstance(value := each.meta.get("example_value"), torch.Tensor)]
    return bool(given) and all(value.device.type == "cuda" for value in given)


def _is_sparse(node: fx.Node) -> bool:
    """Whether a value is a sparse tensor: kernels that read one do not compare memory."""
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.layout is not torch.strided


def _holds_tensor(argument: object) -> bool:
    found: list[bool] = []
    fx.node.map_arg(argument, lambda node: found.append(isinstance(node.meta.get("example_value"), torch.Tensor)))
    return any(found)


class Memory:
    """Whose memory the values of a graph may lie in: that of inputs, and of operations that make some."""

    def __init__(self, shared: frozenset[str]) -> None:
        self._shared = shared
        self._owners: dict[fx.Node, frozenset[fx.Node]] = {}

    def may_overlap(self, node: fx.Node) -> bool:
        """Whether what is written may share memory with what is read, or with itself."""
        return any(self._may_meet(node, each) for each in written_by(node))

    def _may_meet(self, node: fx.Node, first: fx.Node) -> bool:
        written = self._owners_of(first)
        if stem_of(node.target) in _REFUSE_THEMSELVES and given_nodes(node).count(first) > 1:
            return True
        others = [each for each in node.all_input_nodes if each is not first and not _is_sparse(each)]
        if any(written & read or self._any_shared(written) and self._any_shared(read)
               for read in map(self._owners_of, others)):
            return True
        value = first.meta.get("example_value")
        return isinstance(value, torch.Tensor) and value.layout is torch.strided and any(
            hint_of(stride) in (0, None) and hint_of(size) != 1
            for size, stride in zip(value.shape, value.stride(), strict=True))

    def _any_shared(self, owners: frozenset[fx.Node]) -> bool:
        return any(owner.name in self._shared for owner in owners)

    def _owners_of(self, node: fx.Node) -> frozenset[fx.Node]:
        waiting = [node]
        while waiting:
            last = waiting[-1]
            if not last.all_input_nodes or makes_new_memory(last):
                self._owners[last] = frozenset((last,))
            elif missing := [each for each in last.all_input_nodes if each not in self._owners]:
                waiting += missing
                continue
            else:
                self._owners[last] = frozenset().union(*(self._owners[each] for each in last.all_input_nodes))
            waiting.pop()
        return self._owners[node]


def makes_new_memory(node: fx.Node) -> bool:
    name = str(node.target) if isinstance(node.target, (OpOverload, OpOverloadPacket)) else ""
    collective = name.startswith("_c10d_functional.") and "wait_tensor" not in name
    return (collective or stem_of(node.target) in _MAKE_NEW_MEMORY) and not writes(node)


def written_placeholders(graph: fx.Graph) -> set[fx.Node]:
    """The inputs of the graph that it may write to, themselves or through a view."""
    return {node for node in memory_written_by(graph.nodes) if node.op == "placeholder"}


def writes_outside(nodes: set[fx.Node]) -> bool:
    """Whether some of these nodes write to memory that others have made."""
    return not memory_written_by(nodes) <= nodes


def memory_written_by(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes whose memory these nodes may write to."""
    return reached([each for node in nodes for each in written_by(node)],
                   lambda node: () if makes_new_memory(node) else node.all_input_nodes)
