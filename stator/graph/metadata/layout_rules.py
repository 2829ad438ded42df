"""Layouts by rule.   (torch.relu, float32[2, 3] cpu)  ->  float32[2, 3] cpu, without asking torch

In: an operation and arguments whose tensors are plain.  Out: a `Layout` (or several, with the class that holds them),
or None where no rule is sure and FakeTensor decides.  A rule covers the everyday case alone: dense tensors of one
floating dtype on a CPU or CUDA device, laid out row by row.  Errors are never a rule's: what looks wrong is None.

tests/unit/graph/test_layout_rules.py compares every rule with FakeTensor and with real tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

Layout = tuple[Any, ...]  # dtype, size, stride, device, requires_grad: as Propagation.tensor_key gives it
Read = Callable[[FakeTensor], Layout]
Rule = Callable[[tuple[Any, ...], dict[str, Any], Read], Any]  # -> (None, layout) or (class, layouts) or None

_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})
_DEVICES = frozenset({"cpu", "cuda"})
RULES: dict[int, tuple[Any, Rule]] = {}  # by id: what a program calls need not have a hash
_VIEWS = ("reshape", "transpose", "permute", "unsqueeze", "squeeze", "flatten", "chunk", "unbind", "narrow", "select",
          "t", "movedim", "swapaxes")
_PLACES = frozenset({int, slice, type(None), type(...)})  # others copy
NAMES = ("input", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")
# By id: what a program calls need not have a hash.
_GATES = {id(torch.lstm): 4, id(torch.gru): 3, id(torch.rnn_tanh): 1, id(torch.rnn_relu): 1}


class Unsure(Exception):
    """No rule covers the call."""


def require(holds: object) -> None:
    if not holds:
        raise Unsure


def foresee(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    """(None, layout) of the one result, (class, layouts) of several, or None; then which argument is viewed."""
    found = RULES.get(id(func))
    try:
        return None if found is None else found[1](args, kwargs, read)
    except Unsure:
        return None


def rule_of(*functions: object) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for function in functions:
            RULES[id(function)] = function, rule
        return rule

    return register


# ---------------------------------------------------------------------- layouts


def row_major(size: tuple[int, ...]) -> tuple[int, ...]:
    """The strides torch gives a new tensor of this size."""
    strides, step = [], 1
    for extent in reversed(size):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def filled(value: object, read: Read, dtypes: frozenset[torch.dtype]) -> Layout:
    """The layout of a tensor that has elements, of one of these dtypes."""
    require(type(value) is FakeTensor)
    found = read(value)  # type: ignore[arg-type]
    require(found[0] in dtypes and found[3].type in _DEVICES and 0 not in found[1])
    return found


def dense(value: object, read: Read, dtypes: frozenset[torch.dtype] = _FLOATS) -> Layout:
    """The same of one that is laid out row by row."""
    found = filled(value, read, dtypes)
    require(found[2] == row_major(found[1]))
    return found


def spread(value: object, read: Read, dtypes: frozenset[torch.dtype] = _FLOATS) -> tuple[Layout, list[int]]:
    """The layout of a tensor with elements, and its dimensions from the widest stride to the narrowest.

    Torch lays out results of elementwise operations in the order of its operands' strides.  Where that order is in
    doubt (a stride that is zero, or there twice, or of a single element) only rows in their place are taken.
    """
    found = filled(value, read, dtypes)
    size, stride = found[1:3]
    if stride == row_major(size):
        return found, list(range(len(size)))
    require(1 not in size and 0 not in stride and len(set(stride)) == len(stride))
    return found, sorted(range(len(size)), key=lambda i: -stride[i])


def rows(value: object, read: Read, dtypes: frozenset[torch.dtype]) -> Layout:
    """The layout of a tensor whose rows are in their place, side by side or apart."""
    found, order = spread(value, read, dtypes)
    require(order == sorted(order))
    return found


def packed(layout: Layout, order: list[int]) -> Any:
    """A new tensor of this dtype and size, its dimensions nested in this order."""
    dtype, size, _, device, _ = layout
    steps = row_major(tuple([size[i] for i in order]))
    stride = tuple([steps[order.index(i)] for i in range(len(size))])
    return None, (dtype, size, stride, device, False)


def made(dtype: torch.dtype, size: tuple[int, ...], device: object) -> Any:
    return None, (dtype, size, row_major(size), device, False)


def same_place(first: Layout, *others: Layout) -> bool:
    """Whether all have one dtype and one device."""
    return all([other[0] is first[0] and other[3] == first[3] for other in others])


# ---------------------------------------------------------------------- element by element


@rule_of(torch.relu, torch.sigmoid, torch.tanh, torch.exp, torch.log, torch.sin, torch.cos, torch.sqrt, torch.rsqrt,
         torch.abs, torch.neg, torch.erf, torch.Tensor.relu, torch.Tensor.sigmoid, torch.Tensor.tanh, torch.Tensor.exp,
         torch.Tensor.log, torch.Tensor.sin, torch.Tensor.cos, torch.Tensor.sqrt, torch.Tensor.rsqrt, torch.Tensor.abs,
         torch.Tensor.neg, torch.Tensor.erf, operator.neg, F.silu, F.relu, F.sigmoid, F.tanh)
def unary(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    require(len(args) == 1 and all([name == "inplace" and value is False for name, value in kwargs.items()]))
    return packed(*spread(args[0], read))


@rule_of(torch._C._nn.hardswish, F.hardsigmoid, F.hardtanh, F.relu6, F.leaky_relu, F.elu, F.mish, F.softplus)
def activation(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
    """With numbers that shape it, and not in place."""
    require(not kwargs and all([value is False or type(value) in (int, float) for value in args[1:]]))
    return unary(args[:1], {}, read)


@rule_of(F.gelu)
def gelu(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    require(all([name == "approximate" and value in ("none", "tanh") for name, value in kwargs.items()]))
    return unary(args, {}, read)


def _broadcast(sizes: list[tuple[int, ...]]) -> tuple[int, ...]:
    longest = max(map(len, sizes))
    result = []
    for place in range(longest):
        extents = {size[place - longest + len(size)] for size in sizes if place - longest + len(size) >= 0} - {1}
        require(len(extents) <= 1)
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def elementwise(dtypes: frozenset[torch.dtype], result: torch.dtype | None = None, tensor_first: bool = False) -> Rule:
    """Of two tensors, or of a tensor and a number.  Functions of torch take a tensor first, operators either."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
        require(not kwargs and len(args) == 2 and (type(args[0]) is FakeTensor or not tensor_first))
        layouts = [rows(value, read, dtypes) for value in args if type(value) is FakeTensor]
        require(layouts and same_place(*layouts))
        dtype, size, _, device, _ = layouts[0]
        if len(layouts) == 1:
            number = args[1] if type(args[0]) is FakeTensor else args[0]
            require(type(number) is int and -2**31 <= number < 2**31 or type(number) is float and dtype in _FLOATS)
        else:
            size = _broadcast([layout[1] for layout in layouts])
        require(size)
        return made(result or dtype, size, device)

    return rule


rule_of(operator.add, operator.sub, operator.mul)(elementwise(_FLOATS | _INTEGERS))
rule_of(torch.add, torch.sub, torch.mul, torch.Tensor.add, torch.Tensor.sub, torch.Tensor.mul)(
    elementwise(_FLOATS | _INTEGERS, tensor_first=True))
rule_of(operator.truediv)(elementwise(_FLOATS))
rule_of(torch.div, torch.Tensor.div)(elementwise(_FLOATS, tensor_first=True))
rule_of(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)(
    elementwise(_FLOATS | _INTEGERS, torch.bool))


@rule_of(operator.and_, operator.or_)
def both(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    require([type(value) for value in args] == [FakeTensor, FakeTensor])
    return elementwise(frozenset({torch.bool}))(args, kwargs, read)


@rule_of(operator.pow, torch.pow, torch.Tensor.pow)
def power(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    require(len(args) == 2 and type(args[1]) in (int, float))
    return elementwise(_FLOATS)(args, kwargs, read)


# ---------------------------------------------------------------------- layers


def _weights(first: Layout, read: Read, *values: tuple[Any, tuple[int, ...]]) -> None:
    """Require each value to be None, or a tensor of this size, as `dense` and of the dtype and device of `first`."""
    for value, size in values:
        if value is not None:
            layout = dense(value, read)
            require(same_place(first, layout) and layout[1] == size)


def _options(args: tuple[Any, ...], *defaults: object) -> tuple[Any, ...]:
    """The arguments behind the second one, and defaults for those not given."""
    return args[2:] + defaults[len(args) - 2:]


@rule_of(F.linear)
def linear(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    require(not kwargs and len(args) in (2, 3))
    x, weight = dense(args[0], read), dense(args[1], read)
    require(same_place(x, weight) and len(x[1]) >= 2 and len(weight[1]) == 2 and x[1][-1] == weight[1][1])
    _weights(x, read, (args[2] if len(args) == 3 else None, weight[1][:1]))
    return made(x[0], (*x[1][:-1], weight[1][0]), x[3])


def _each(value: Any, count: int) -> tuple[int, ...]:
    """One number for each of the dimensions."""
    if type(value) is int:
        return (value,) * count
    require(type(value) in (tuple, list) and len(value) == count and all([type(part) is int for part in value]))
    return tuple(value)


def convolution(count: int) -> Rule:
    """Of so many dimensions, beside batch and channels."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
        require(not kwargs and 2 <= len(args) <= 7)
        x, weight = dense(args[0], read), dense(args[1], read)
        require(same_place(x, weight) and {len(x[1]), len(weight[1])} == {count + 2})
        bias, stride, padding, dilation, groups = _options(args, None, 1, 0, 1, 1)
        require(type(groups) is int and groups >= 1)
        _weights(x, read, (bias, weight[1][:1]))
        require(weight[1][1] * groups == x[1][1] and not weight[1][0] % groups)
        extents = map(_places, x[1][2:], weight[1][2:], _each(stride, count), _each(padding, count),
                      _each(dilation, count))
        return made(x[0], (x[1][0], weight[1][0], *extents), x[3])

    return rule


def _places(extent: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """How many places a kernel has in one dimension."""
    room = extent + 2 * padding - dilation * (kernel - 1) - 1
    require(stride >= 1 and padding >= 0 and dilation >= 1 and room >= 0)
    return room // stride + 1


for _count, _function in enumerate((torch.conv1d, torch.conv2d, torch.conv3d), 1):
    rule_of(_function)(convolution(_count))


@rule_of(F.layer_norm)
def layer_norm(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    require(not kwargs and 2 <= len(args) <= 5 and type(args[1]) in (tuple, list))
    x, _ = spread(args[0], read)
    (weight, bias, eps), tail = _options(args, None, None, 1e-5), tuple(args[1])
    require(tail and x[1][-len(tail):] == tail and type(eps) is float)
    _weights(x, read, (weight, tail), (bias, tail))
    return made(x[0], x[1], x[3])


@rule_of(F.group_norm)
def group_norm(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    require(not kwargs and 2 <= len(args) <= 5 and type(args[1]) is int and args[1] >= 1)
    x = dense(args[0], read)
    weight, bias, eps = _options(args, None, None, 1e-5)
    # Too few values in a group are an error.
    require(len(x[1]) >= 3 and not x[1][1] % args[1] and type(eps) is float and 1 not in x[1])
    _weights(x, read, (weight, x[1][1:2]), (bias, x[1][1:2]))
    return made(x[0], x[1], x[3])


@rule_of(F.batch_norm)
def batch_norm(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
    """By running statistics, which it does not change then."""
    require(not kwargs and len(args) == 8 and args[1] is not None and args[2] is not None and args[5] is False)
    require(type(args[6]) is float and type(args[7]) is float)
    x = dense(args[0], read)
    require(len(x[1]) >= 2)
    _weights(x, read, *[(value, x[1][1:2]) for value in args[1:5]])
    return made(x[0], x[1], x[3])


@rule_of(F.embedding)
def embedding(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    require(not kwargs and 2 <= len(args) <= 7)
    index, weight = dense(args[0], read, frozenset({torch.int64, torch.int32})), dense(args[1], read)
    padding, largest, _, by_frequency, sparse = _options(args, None, None, 2.0, False, False)
    require(index[3] == weight[3] and len(weight[1]) == 2)
    require(largest is None and by_frequency is False and sparse is False)
    require(padding is None or type(padding) is int and 0 <= padding < weight[1][0])
    return made(weight[0], (*index[1], weight[1][1]), weight[3])


@rule_of(torch.cat)
def cat(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    require(len(args) + len(kwargs) in (1, 2) and args and (not kwargs or list(kwargs) == ["dim"]))
    parts, dim = args[0], kwargs.get("dim", 0) if len(args) == 1 else args[1]
    require(type(parts) in (tuple, list) and parts and type(dim) is int)
    first, *others = [dense(part, read, _FLOATS | _INTEGERS) for part in parts]
    require(same_place(first, *others))
    rank = len(first[1])
    dim = dim + rank if dim < 0 else dim
    require(0 <= dim < rank)
    size = list(first[1])
    for _, other, *_ in others:
        require(len(other) == rank and other[:dim] == first[1][:dim] and other[dim + 1:] == first[1][dim + 1:])
        size[dim] += other[dim]
    return made(first[0], tuple(size), first[3])


def computed(func: Callable[..., Any]) -> Rule:
    """Results with memory of their own whose layout is that of torch's kernel for tensors without memory."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
        layouts: list[Layout] = []

        def without_memory(value: object) -> object:
            if type(value) is list or type(value) is tuple:
                return type(value)([without_memory(part) for part in value])
            if type(value) is not FakeTensor:
                return value
            layouts.append(filled(value, read, _FLOATS))
            require(same_place(layouts[0], layouts[-1]) and (func is not _EINSUM or 1 not in layouts[-1][1]))
            return torch.empty_strided(layouts[-1][1], layouts[-1][2], dtype=layouts[-1][0], device="meta")

        require(all([type(value) in _PLAIN for value in kwargs.values()]))
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            given = [without_memory(value) for value in args]
            require(layouts)
            try:
                result = func(*given, **kwargs)
            except Exception:  # FakeTensor words the error
                raise Unsure from None
            require(type(result) is torch.Tensor)
            memory = result.untyped_storage()._cdata
            own = [each.untyped_storage()._cdata for each in given if isinstance(each, torch.Tensor)]
            require(memory not in own)
            return None, (result.dtype, tuple(result.shape), result.stride(), layouts[0][3], False)

    return rule


_PLAIN = frozenset({int, bool, type(None), torch.dtype})
_EINSUM = torch.functional.einsum  # which permutes: strides of single elements are then in doubt
for _function in (operator.matmul, torch.matmul, torch.Tensor.matmul, torch.bmm, torch.Tensor.bmm, torch.addmm,
                  torch.baddbmm, torch.softmax, torch.Tensor.softmax, F.softmax, torch.mean, torch.Tensor.mean,
                  torch.sum, torch.Tensor.sum, _EINSUM, F.pad):
    rule_of(_function)(computed(_function))


# ---------------------------------------------------------------------- views


def _holds_fake(value: object) -> bool:
    if type(value) is tuple or type(value) is list:
        return any([_holds_fake(part) for part in value])
    if type(value) is slice:
        return any([_holds_fake(part) for part in (value.start, value.stop, value.step)])
    return type(value) is FakeTensor


def view(func: Callable[..., Any]) -> Rule:
    """The layout of a view does not depend on the device: torch makes one of a tensor without memory."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
        require(args and type(args[0]) is FakeTensor and not _holds_fake((*args[1:], *kwargs.values())))
        dtype, size, stride, device, _ = read(args[0])
        require(device.type in _DEVICES)
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            base = torch.empty_strided(size, stride, dtype=dtype, device="meta")
            try:
                result = func(base, *args[1:], **kwargs)
            except Exception:  # FakeTensor words the error
                raise Unsure from None
            parts = (result,) if type(result) is torch.Tensor else result
            require(type(parts) is tuple and all([part is not base and type(part) is torch.Tensor for part in parts]))
            layouts = [(part.dtype, tuple(part.shape), part.stride(), device, False) for part in parts]
            viewed = [0] if parts and parts[0].untyped_storage()._cdata == base.untyped_storage()._cdata else []
        return (None, layouts[0], *viewed) if type(result) is torch.Tensor else (tuple, layouts, *viewed)

    return rule


for _name in _VIEWS:
    for _function in (getattr(torch, _name), getattr(torch.Tensor, _name)):
        rule_of(_function)(view(_function))
for _function in (torch.Tensor.view, torch.Tensor.expand, torch.Tensor.contiguous, torch.Tensor.float,
                  torch.Tensor.unflatten):
    rule_of(_function)(view(_function))
_item = view(operator.getitem)


@rule_of(operator.getitem, torch.Tensor.__getitem__)
def item(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    require(len(args) == 2)
    parts = args[1] if type(args[1]) is tuple else (args[1],)
    require(all([type(part) in _PLACES for part in parts]))
    return _item(args, kwargs, read)


# ---------------------------------------------------------------------- recurrent layers


def results_of_layer(function: Callable[..., Any], args: tuple[Any, ...],
                     kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Fakes like the results of a recurrent layer, without its steps; None where no rule is sure."""
    gates = _GATES.get(id(function))
    try:
        return None if gates is None else _results_of_layer(gates, args, kwargs)
    except Unsure:
        return None


def _results_of_layer(gates: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    given = dict(zip(NAMES, args, strict=False)) | kwargs
    require(len(args) <= len(NAMES) and set(given) == set(NAMES))
    sequence, weights, states = given["input"], given["params"], given["hx"] if gates == 4 else [given["hx"]]
    flags = [given[name] for name in ("has_biases", "train", "bidirectional", "batch_first")]
    require(all(type(flag) is bool for flag in flags) and type(given["num_layers"]) is int and given["num_layers"] >= 1
            and all(type(each) in (list, tuple) for each in (states, weights)))
    tensors = [sequence, *states, *weights]
    require(all(type(each) is FakeTensor for each in tensors) and all(each.dim() == 3 for each in (sequence, *states)))
    require(sequence.dtype in _FLOATS and sequence.device.type in _DEVICES and sequence.layout is torch.strided
            and all((one.dtype, one.device, one.layout) == (other.dtype, other.device, other.layout)
                    for one, other in pairwise(tensors)) and not torch.is_autocast_enabled(sequence.device.type))
    ways = 2 if given["bidirectional"] else 1
    layers = given["num_layers"] * ways
    batch, time = (0, 1) if given["batch_first"] else (1, 0)
    hidden, width = states[-1].size(2), states[0].size(2)  # the state that is kept, and the one that is handed on
    sizes: list[tuple[Any, ...]] = []  # of all weights, layer by layer and way by way
    for number in range(layers):
        sizes += [(gates * hidden, sequence.size(2) if number < ways else width * ways), (gates * hidden, width)]
        sizes += [(gates * hidden,), (gates * hidden,)] if given["has_biases"] else []
        sizes += [(width, hidden)] if gates == 4 and not _same(hidden, width) else []
    sizes += [(layers, sequence.size(batch), state.size(2)) for state in states]
    require(_same([tuple(each.shape) for each in (*weights, *states)], sizes)
            and all(statically_known_true(sequence.size(dim) >= 1) for dim in (0, 1)))
    made = _Layer.apply(  # type: ignore[no-untyped-call]
        (sequence.size(time), sequence.size(batch), width * ways), [tuple(state.shape) for state in states],
        sequence, *states, *weights)
    return (made[0].transpose(0, 1) if given["batch_first"] else made[0], *made[1:])


def _same(one: Any, other: Any) -> bool:
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return one is other or statically_known_true(one == other)


class _Layer(torch.autograd.Function):
    """New tensors that want gradients if one of the arguments does."""

    @staticmethod
    def forward(ctx: Any, size: Sequence[int], ends: Sequence[Any], sequence: torch.Tensor, *others: torch.Tensor
                ) -> tuple[torch.Tensor, ...]:
        ctx.save_for_backward(sequence)
        ctx.given = [(each.shape, each.requires_grad) for each in (sequence, *others)]
        return (sequence.new_empty(size), *[sequence.new_empty(end) for end in ends])

    @staticmethod
    def backward(ctx: Any, *grads: object) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise NotImplementedError("twice through a recurrent layer")
        sequence, = ctx.saved_tensors
        return None, None, *[sequence.new_empty(shape) if wanted else None for shape, wanted in ctx.given]
