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


def foresee(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    """(None, layout) of the one result, (class, layouts) of several, or None; then which argument is viewed."""
    found = RULES.get(id(func))
    return None if found is None else found[1](args, kwargs, read)


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


def dense(value: object, read: Read, dtypes: frozenset[torch.dtype] = _FLOATS) -> Layout | None:
    """The layout of a tensor that has elements, of one of these dtypes, laid out row by row."""
    if type(value) is not FakeTensor:
        return None
    found = read(value)
    dtype, size, stride, device, _ = found
    if dtype not in dtypes or device.type not in _DEVICES or 0 in size or stride != row_major(size):
        return None
    return found


def spread(value: object, read: Read, dtypes: frozenset[torch.dtype] = _FLOATS) -> tuple[Layout, list[int]] | None:
    """The layout of a tensor with elements, and its dimensions from the widest stride to the narrowest.

    Torch lays out what it works out element by element in the order of its operands' strides.  Where that order is in
    doubt (a stride that is zero, or there twice, or of a single element) only rows in their place are taken.
    """
    if type(value) is not FakeTensor:
        return None
    found = read(value)
    dtype, size, stride, device, _ = found
    if dtype not in dtypes or device.type not in _DEVICES or 0 in size:
        return None
    if stride == row_major(size):
        return found, list(range(len(size)))
    if 1 in size or 0 in stride or len(set(stride)) != len(stride):
        return None
    return found, sorted(range(len(size)), key=lambda i: -stride[i])


def rows(value: object, read: Read, dtypes: frozenset[torch.dtype]) -> Layout | None:
    """The layout of a tensor whose rows are in their place, side by side or apart."""
    found = spread(value, read, dtypes)
    return found[0] if found is not None and found[1] == sorted(found[1]) else None


def packed(layout: Layout, order: list[int]) -> Any:
    """A new tensor of this dtype and size, its dimensions nested in this order."""
    dtype, size, _, device, _ = layout
    steps = row_major(tuple([size[i] for i in order]))
    stride = tuple([steps[order.index(i)] for i in range(len(size))])
    return None, (dtype, size, stride, device, False)


def made(dtype: torch.dtype, size: tuple[int, ...], device: object) -> Any:
    return None, (dtype, size, row_major(size), device, False)


def like(layout: Layout) -> Any:
    return None, (*layout[:4], False)


def same_place(first: Layout, *others: Layout | None) -> bool:
    """Whether all are there, with one dtype and one device."""
    return all([other is not None and other[0] is first[0] and other[3] == first[3] for other in others])


# ---------------------------------------------------------------------- element by element


def unary(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    if len(args) != 1 or any([name != "inplace" or value is not False for name, value in kwargs.items()]):
        return None
    found = spread(args[0], read)
    return None if found is None else packed(*found)


rule_of(torch.relu, torch.sigmoid, torch.tanh, torch.exp, torch.log, torch.sin, torch.cos, torch.sqrt, torch.rsqrt,
        torch.abs, torch.neg, torch.erf, torch.Tensor.relu, torch.Tensor.sigmoid, torch.Tensor.tanh, torch.Tensor.exp,
        torch.Tensor.log, torch.Tensor.sin, torch.Tensor.cos, torch.Tensor.sqrt, torch.Tensor.rsqrt, torch.Tensor.abs,
        torch.Tensor.neg, torch.Tensor.erf, operator.neg, F.silu, F.relu, F.sigmoid, F.tanh)(unary)


@rule_of(F.gelu)
def gelu(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    if any([name != "approximate" or value not in ("none", "tanh") for name, value in kwargs.items()]):
        return None
    return unary(args, {}, read)


def _number_fits(dtype: torch.dtype, number: object) -> bool:
    return type(number) is int and -2**31 <= number < 2**31 or type(number) is float and dtype in _FLOATS


def _broadcast(sizes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    longest = max(map(len, sizes))
    result = []
    for place in range(longest):
        extents = {size[place - longest + len(size)] for size in sizes if place - longest + len(size) >= 0} - {1}
        if len(extents) > 1:
            return None
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def binary(args: tuple[Any, ...], read: Read, dtypes: frozenset[torch.dtype]) -> Layout | None:
    """The layout of what is worked out element by element from two tensors, or from a tensor and a number."""
    if len(args) != 2:
        return None
    tensors = [value for value in args if type(value) is FakeTensor]
    layouts = [rows(tensor, read, dtypes) for tensor in tensors]
    if not layouts or layouts[0] is None or not same_place(*layouts):  # type: ignore[arg-type]
        return None
    first = layouts[0]
    if len(tensors) == 1:
        number = args[1] if args[0] is tensors[0] else args[0]
        fits = first[1] and _number_fits(first[0], number)
        return (first[0], first[1], row_major(first[1]), first[3], False) if fits else None
    size = _broadcast([layout[1] for layout in layouts if layout is not None])
    if size is None or not size:
        return None
    return first[0], size, row_major(size), first[3], False


def _arithmetic(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    found = None if kwargs else binary(args, read, _FLOATS | _INTEGERS)
    return None if found is None else like(found)


def _division(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    found = None if kwargs else binary(args, read, _FLOATS)
    return None if found is None else like(found)


def _comparison(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    found = None if kwargs else binary(args, read, _FLOATS | _INTEGERS)
    return None if found is None else like((torch.bool, *found[1:]))


def _both(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    if kwargs or [type(value) for value in args] != [FakeTensor, FakeTensor]:
        return None
    found = binary(args, read, frozenset({torch.bool}))
    return None if found is None else like(found)


def _power(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    if kwargs or len(args) != 2 or type(args[0]) is not FakeTensor or type(args[1]) not in (int, float):
        return None
    return _division(args, kwargs, read)


def _of_tensor(rule: Rule) -> Rule:
    """Functions of torch's want a tensor first, operators do not mind."""
    return lambda args, kwargs, read: rule(args, kwargs, read) if args and type(args[0]) is FakeTensor else None


rule_of(operator.add, operator.sub, operator.mul)(_arithmetic)
rule_of(torch.add, torch.sub, torch.mul, torch.Tensor.add, torch.Tensor.sub, torch.Tensor.mul)(_of_tensor(_arithmetic))
rule_of(operator.truediv)(_division)
rule_of(torch.div, torch.Tensor.div)(_of_tensor(_division))
rule_of(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)(_comparison)
rule_of(operator.and_, operator.or_)(_both)
rule_of(operator.pow, torch.pow, torch.Tensor.pow)(_power)


# ---------------------------------------------------------------------- layers


def _weights(first: Layout, values: list[tuple[Any, tuple[int, ...]]], read: Read) -> bool:
    """Whether each value is None, or a tensor of this size, as `dense` and of the dtype and device of `first`."""
    for value, size in values:
        if value is None:
            continue
        layout = dense(value, read)
        if layout is None or not same_place(first, layout) or layout[1] != size:
            return False
    return True


@rule_of(F.linear)
def linear(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    if kwargs or len(args) not in (2, 3):
        return None
    x, weight = dense(args[0], read), dense(args[1], read)
    if x is None or weight is None or not same_place(x, weight) or len(x[1]) < 2 or len(weight[1]) != 2:
        return None
    wide, narrow = weight[1]
    if x[1][-1] != narrow or not _weights(x, [(args[2] if len(args) == 3 else None, (wide,))], read):
        return None
    return made(x[0], (*x[1][:-1], wide), x[3])


def _each(value: Any, count: int) -> tuple[int, ...] | None:
    """One number for each of the dimensions."""
    if type(value) is int:
        return (value,) * count
    if type(value) not in (tuple, list) or len(value) != count or any([type(part) is not int for part in value]):
        return None
    return tuple(value)


def convolution(count: int) -> Rule:
    """Of so many dimensions, beside batch and channels."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
        if kwargs or not 2 <= len(args) <= 7:
            return None
        x, weight = dense(args[0], read), dense(args[1], read)
        if x is None or weight is None or not same_place(x, weight) or {len(x[1]), len(weight[1])} != {count + 2}:
            return None
        defaults: tuple[Any, ...] = (None, 1, 0, 1, 1)
        bias, stride, padding, dilation, groups = args[2:] + defaults[len(args) - 2:]
        if type(groups) is not int or groups < 1 or not _weights(x, [(bias, weight[1][:1])], read) \
                or weight[1][1] * groups != x[1][1] or weight[1][0] % groups:
            return None
        extents = _swept(x[1][2:], weight[1][2:], _each(stride, count), _each(padding, count), _each(dilation, count))
        return None if extents is None else made(x[0], (x[1][0], weight[1][0], *extents), x[3])

    return rule


def _swept(size: tuple[int, ...], kernel: tuple[int, ...], *settings: tuple[int, ...] | None) -> list[int] | None:
    """How many places a kernel has in each dimension."""
    if any([each is None for each in settings]):
        return None
    extents = []
    for place, extent in enumerate(size):
        stride, padding, dilation = [each[place] for each in settings if each is not None]
        room = extent + 2 * padding - dilation * (kernel[place] - 1) - 1
        if stride < 1 or padding < 0 or dilation < 1 or room < 0:
            return None
        extents.append(room // stride + 1)
    return extents


for _count, _function in enumerate((torch.conv1d, torch.conv2d, torch.conv3d), 1):
    rule_of(_function)(convolution(_count))


@rule_of(F.layer_norm)
def layer_norm(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    if kwargs or not 2 <= len(args) <= 5 or type(args[1]) not in (tuple, list):
        return None
    seen = spread(args[0], read)
    x = None if seen is None else seen[0]
    given, tail = (*args[2:], *(None, None, 1e-5)[len(args) - 2:]), tuple(args[1])
    if x is None or not tail or x[1][-len(tail):] != tail or type(given[2]) is not float:
        return None
    return made(x[0], x[1], x[3]) if _weights(x, [(given[0], tail), (given[1], tail)], read) else None


@rule_of(F.group_norm)
def group_norm(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    if kwargs or not 2 <= len(args) <= 5 or type(args[1]) is not int or args[1] < 1:
        return None
    x = dense(args[0], read)
    given = (*args[2:], *(None, None, 1e-5)[len(args) - 2:])
    if x is None or len(x[1]) < 3 or x[1][1] % args[1] or type(given[2]) is not float:
        return None
    if x[1].count(1):  # too few values in a group are an error
        return None
    return like(x) if _weights(x, [(given[0], x[1][1:2]), (given[1], x[1][1:2])], read) else None


@rule_of(F.embedding)
def embedding(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    if kwargs or not 2 <= len(args) <= 7:
        return None
    given = (*args[2:], *(None, None, 2.0, False, False)[len(args) - 2:])
    index, weight = dense(args[0], read, frozenset({torch.int64, torch.int32})), dense(args[1], read)
    if index is None or weight is None or index[3] != weight[3] or len(weight[1]) != 2:
        return None
    padding, largest, _, by_frequency, sparse = given
    if largest is not None or by_frequency is not False or sparse is not False:
        return None
    if padding is not None and not (type(padding) is int and 0 <= padding < weight[1][0]):
        return None
    return made(weight[0], (*index[1], weight[1][1]), weight[3])


@rule_of(torch.cat)
def cat(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    if len(args) == 1 and list(kwargs) == ["dim"]:
        parts, dim = args[0], kwargs["dim"]
    elif len(args) in (1, 2) and not kwargs:
        parts, dim = args[0], args[1] if len(args) == 2 else 0
    else:
        return None
    if type(parts) not in (tuple, list) or not parts or type(dim) is not int:
        return None
    layouts = [dense(part, read, _FLOATS | _INTEGERS) for part in parts]
    first = layouts[0]
    if first is None or not same_place(first, *layouts):
        return None
    rank = len(first[1])
    dim = dim + rank if dim < 0 else dim
    if not 0 <= dim < rank:
        return None
    size = list(first[1])
    for layout in layouts[1:]:
        other = layout[1]  # type: ignore[index]
        if len(other) != rank or other[:dim] != first[1][:dim] or other[dim + 1:] != first[1][dim + 1:]:
            return None
        size[dim] += other[dim]
    return made(first[0], tuple(size), first[3])


# ---------------------------------------------------------------------- views


def _holds_fake(value: object) -> bool:
    if type(value) is tuple or type(value) is list:
        return any([_holds_fake(part) for part in value])
    if type(value) is slice:
        return any([_holds_fake(part) for part in (value.start, value.stop, value.step)])
    return type(value) is FakeTensor


def view(func: Callable[..., Any]) -> Rule:
    """What a view looks like does not depend on the device: torch makes it, of a tensor without memory."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
        if not args or type(args[0]) is not FakeTensor or _holds_fake(args[1:]) or _holds_fake(tuple(kwargs.values())):
            return None
        dtype, size, stride, device, _ = read(args[0])
        if device.type not in _DEVICES:
            return None
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            base = torch.empty_strided(size, stride, dtype=dtype, device="meta")
            try:
                result = func(base, *args[1:], **kwargs)
            except Exception:  # FakeTensor words the error
                return None
            parts = (result,) if type(result) is torch.Tensor else result
            if type(parts) is not tuple or any([part is base or type(part) is not torch.Tensor for part in parts]):
                return None
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


@rule_of(operator.getitem, torch.Tensor.__getitem__)
def item(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    if len(args) != 2:
        return None
    parts = args[1] if type(args[1]) is tuple else (args[1],)
    return _item(args, kwargs, read) if all([type(part) in _PLACES for part in parts]) else None


_item = view(operator.getitem)


# ---------------------------------------------------------------------- recurrent layers


def results_of_layer(function: Callable[..., Any], args: tuple[Any, ...],
                     kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """The results of a recurrent layer on fakes; None where torch has to be asked."""
    gates = _GATES.get(id(function))
    if gates is None or len(args) > len(NAMES):
        return None
    given = dict(zip(NAMES, args, strict=False)) | kwargs
    if set(given) != set(NAMES):
        return None
    states = given["hx"] if function is torch.lstm else [given["hx"]]
    if not _is_everyday(given, states):
        return None
    sequence, weights, ways = given["input"], given["params"], 2 if given["bidirectional"] else 1
    layers = given["num_layers"] * ways
    batch, time = (0, 1) if given["batch_first"] else (1, 0)
    hidden, width = states[-1].size(2), states[0].size(2)  # the state that is kept, and the one that is handed on
    share = _weights_of_a_layer(gates, hidden, width, given["has_biases"], sequence.size(2), ways, given["num_layers"])
    expected = [*share, *((layers, sequence.size(batch), state.size(2)) for state in states)]
    found = [tuple(each.shape) for each in (*weights, *states)]
    if not _same(found, expected) or not all(statically_known_true(sequence.size(dim) >= 1) for dim in (0, 1)):
        return None
    made = _Layer.apply(  # type: ignore[no-untyped-call]
        (sequence.size(time), sequence.size(batch), width * ways), [tuple(state.shape) for state in states],
        sequence, *states, *weights)
    return (made[0].transpose(0, 1) if given["batch_first"] else made[0], *made[1:])


def _is_everyday(given: dict[str, Any], states: Any) -> bool:
    flags = [given[name] for name in ("has_biases", "train", "bidirectional", "batch_first")]
    if not all(type(flag) is bool for flag in flags) or type(given["num_layers"]) is not int \
            or given["num_layers"] < 1 or not all(type(each) in (list, tuple) for each in (states, given["params"])):
        return False
    tensors = [given["input"], *states, *given["params"]]
    if not all(type(each) is FakeTensor for each in tensors) or given["input"].dim() != 3 \
            or not all(state.dim() == 3 for state in states):
        return False
    first = given["input"]
    return first.dtype in _FLOATS and first.device.type in ("cpu", "cuda") and first.layout is torch.strided \
        and all((one.dtype, one.device, one.layout) == (other.dtype, other.device, other.layout)
                for one, other in pairwise(tensors)) \
        and not torch.is_autocast_enabled(first.device.type)


def _weights_of_a_layer(gates: int, hidden: Any, width: Any, biased: bool, features: Any, ways: int, layers: int
                        ) -> list[tuple[Any, ...]]:
    """The sizes of all weights, layer by layer and way by way."""
    sizes: list[tuple[Any, ...]] = []
    for layer in range(layers):
        for _ in range(ways):
            sizes += [(gates * hidden, features if layer == 0 else width * ways), (gates * hidden, width)]
            sizes += [(gates * hidden,), (gates * hidden,)] if biased else []
            sizes += [(width, hidden)] if gates == 4 and not _same(hidden, width) else []
    return sizes


def _same(one: Any, other: Any) -> bool:
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return one is other or statically_known_true(one == other)


class _Layer(torch.autograd.Function):
    """New tensors that want gradients if one of the arguments does."""

    @staticmethod
    def forward(ctx: object, size: Sequence[int], ends: Any, sequence: Any, *others: object) -> tuple[Any, ...]:
        return (sequence.new_empty(size), *[sequence.new_empty(end) for end in ends])

    @staticmethod
    def backward(ctx: object, *grads: object) -> Any:
        raise AssertionError("a tensor that stands for another has no gradients")
