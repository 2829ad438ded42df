"""Layouts by rule.   (torch.relu, float32[2, 3] cpu)  ->  float32[2, 3] cpu, without FakeTensor

Out: a `Layout` (or several, with the class that holds them), or None where FakeTensor must decide; rules never raise.
Quick rules cover dense tensors of one dtype, laid out row by row; behind them, torch's kernels for tensors without
memory (`kernel`).  tests/unit/graph/test_layout_rules.py compares each with FakeTensor and real tensors.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
import torch.nn.functional as F
from torch._C import _SDPBackend as SDPBackend
from torch._subclasses.fake_tensor import FakeTensor

Layout = tuple[Any, ...]  # dtype, size, stride, device, requires_grad: as Propagation.tensor_key gives it
Read = Callable[[FakeTensor], Layout]
Accept = Callable[[Any, Read], Layout]
Rule = Callable[[tuple[Any, ...], dict[str, Any], Read], Any]  # -> (None, layout) or (class, layouts) or None

FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_INDICES = frozenset({torch.int32, torch.int64})
_INTEGERS = frozenset({torch.int8, torch.int16}) | _INDICES
DEVICES = frozenset({"cpu", "cuda"})
RULES: dict[int, tuple[Any, ...]] = {}  # by id, as what a program calls need not have a hash: function, its rules
ARGUMENT = object()  # in the place of the class of a result: it is the argument of that number
WRITTEN = object()  # the same of an argument that the call writes to once, and does not change otherwise
_VIEWS = """reshape transpose permute unsqueeze squeeze flatten chunk unbind narrow select t movedim swapaxes split view
    expand unflatten"""
_PLACES = frozenset({int, slice, type(None), type(...)})  # others copy


class Unsure(Exception):
    """No rule covers the call."""


def require(holds: object) -> None:
    if not holds:
        raise Unsure


def attempt(func: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    try:
        return func(*args, **kwargs)
    except Exception:  # FakeTensor words the error
        raise Unsure from None


def foresee(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    """(None, layout) of the one result, (class, layouts) of several, or None; then which argument is viewed."""
    for rule in RULES.get(id(func), (None,))[1:]:
        try:
            return rule(args, kwargs, read)
        except (Unsure, IndexError):  # too few arguments
            continue
    return None


def rule_of(*functions: object) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for function in functions:
            RULES[id(function)] = *RULES.get(id(function), (function,)), rule
        return rule
    return register


def row_major(size: tuple[int, ...]) -> tuple[int, ...]:
    """The strides torch gives a new tensor of this size."""
    strides, step = [], 1
    for extent in reversed(size):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def filled(value: object, read: Read, dtypes: frozenset[torch.dtype], empty: bool = False) -> Layout:
    """The layout of a tensor that has elements, of one of these dtypes."""
    require(type(value) is FakeTensor)
    found = read(value)  # type: ignore[arg-type]
    require(found[0] in dtypes and found[3].type in DEVICES and (empty or 0 not in found[1]))
    return found


def dense(value: object, read: Read, dtypes: frozenset[torch.dtype] = FLOATS) -> Layout:
    """The layout of a tensor with elements, row by row."""
    found = filled(value, read, dtypes)
    require(found[2] == row_major(found[1]))
    return found


def of_any(value: object, read: Read) -> Layout:
    """The layout of any tensor: that of a view does not depend on the device."""
    found = read(value)  # type: ignore[arg-type]
    require(found[3].type in DEVICES)
    return found


def rows(value: object, read: Read, dtypes: frozenset[torch.dtype]) -> Layout:
    """The layout of a tensor whose rows are in their place, side by side or apart."""
    found = certain(value, read, dtypes)
    require(list(found[2]) == sorted(found[2], reverse=True))
    return found


def certain(value: object, read: Read, dtypes: frozenset[torch.dtype], empty: bool = False) -> Layout:
    """The layout of a tensor, row by row or with strides that leave no doubt about the order of its dimensions."""
    found = filled(value, read, dtypes, empty)
    size, stride = found[1:3]
    require(stride == row_major(size) or 1 not in size and 0 not in stride and len(set(stride)) == len(stride)
            or len(size) == 4 and 1 not in size[1:]
            and stride == (math.prod(size[1:]), 1, size[3] * size[1], size[1]))
    return found


def made(dtype: torch.dtype, size: tuple[int, ...], device: object) -> Any:
    return None, (dtype, size, row_major(size), device, False)


def same_place(first: Layout, *others: Layout) -> bool:
    return all([other[0] is first[0] and other[3] == first[3] for other in others])


def unary(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
    """Of one tensor, and numbers that shape it; not in place."""
    require(all([type(value) in (int, float, str) or value is False for value in (*args[1:], *kwargs.values())]))
    return None, (*dense(args[0], read)[:4], False)


def in_place(flag: int) -> Rule:
    """Of an activation with the parameter `inplace` at this position, behind its numbers."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
        given = kwargs["inplace"] if "inplace" in kwargs else args[flag]
        require(given is not False)
        numbers = [*args[1:flag], *[value for name, value in kwargs.items() if name != "inplace"]]
        plain = given is True and len(args) <= flag + 1 and all([type(value) in (int, float) for value in numbers])
        return (WRITTEN, 0) if plain and certain(args[0], read, FLOATS) else None  # no other rule is for it
    return rule


def reduction(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
    """The mean or the sum over given dimensions."""
    names, x = ("dim", "keepdim")[len(args) - 1:], dense(args[0], read)
    require(len(args) < 4 and kwargs.keys() <= {*names})
    dims, keep = *args[1:], *[kwargs.get(name, False) for name in names]
    dims, places = (dims,) if type(dims) is int else dims, range(len(x[1]))
    require(type(keep) is bool and type(dims) in (tuple, list) and all([type(dim) is int for dim in dims]))
    gone = {places[dim] for dim in dims}
    require(len(gone) == len(dims) > 0)
    sizes = [1 if dim in gone else size for dim, size in enumerate(x[1]) if keep or dim not in gone]
    return made(x[0], tuple(sizes), x[3])


def binary(result: torch.dtype | None, dtypes: frozenset[torch.dtype]) -> Rule:
    """Of two tensors, or of a tensor and a number."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
        layouts = [dense(value, read, dtypes) for value in args if type(value) is FakeTensor]
        require(len(args) == 2 and type(args[0]) is FakeTensor and not kwargs and same_place(*layouts))
        dtype, sizes = layouts[0][0], [reversed(layout[1]) for layout in layouts]
        require(all([type(value) is FakeTensor or type(value) is int and -2**31 <= value < 2**31
                     or type(value) is float and dtype in FLOATS for value in args]))
        extents = [{*extents} - {1} for extents in zip_longest(*sizes, fillvalue=1)]
        require(extents and all([len(each) <= 1 for each in extents]))
        return made(result or dtype, tuple([max(each, default=1) for each in reversed(extents)]), layouts[0][3])
    return rule


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
    names = ("input", "weight", "bias")[len(args):]
    require(0 < len(args) < 4 and kwargs.keys() <= {*names})
    given = *args, *[kwargs.get(name) for name in names]
    x, weight = filled(args[0], read, FLOATS), dense(given[1], read)
    require(len(x[1]) == 2 or x[2] == row_major(x[1]))
    require(same_place(x, weight) and len(x[1]) >= 2 and len(weight[1]) == 2 and x[1][-1] == weight[1][1])
    _weights(x, read, (given[2], weight[1][:1]))
    return made(x[0], (*x[1][:-1], weight[1][0]), x[3])


def _each(value: Any, count: int) -> tuple[int, ...]:
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
    x = filled(args[0], read, FLOATS)
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
    require(len(x[1]) >= 3 and not x[1][1] % args[1] and type(eps) is float and 1 not in x[1][1:])
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
    index, weight = filled(args[0], read, _INDICES), dense(args[1], read)
    padding, largest, _, by_frequency, sparse = _options(args, None, None, 2.0, False, False)
    require(index[3] == weight[3] and len(weight[1]) == 2)
    require(largest is None and by_frequency is False and sparse is False)
    require(padding is None or type(padding) is int and 0 <= padding < weight[1][0])
    return made(weight[0], (*index[1], weight[1][1]), weight[3])


def kernel(func: Callable[..., Any], accept: Accept, refused: tuple[type, ...] = (complex,)) -> Rule:
    """Results, or views of the first argument, with the layout that torch's kernel for tensors without memory gives."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
        layouts, given = list[Layout](), list[torch.Tensor]()

        def without_memory(value: object) -> object:
            if type(value) is list or type(value) is tuple:
                return type(value)([without_memory(part) for part in value])
            if type(value) is not FakeTensor:
                require(type(value) not in refused)
                return value
            layouts.append(accept(value, read))
            dtype, size, stride, device, _ = layouts[-1]
            require(layouts[0][3] == device and (func is not _EINSUM or 1 not in size)
                    and (accept is not _OF_FLOATS or layouts[0][0] is dtype))
            given.append(torch.empty_strided(size, stride, dtype=dtype, device="meta"))
            return given[-1]

        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            operands = [without_memory(value) for value in args]
            require(layouts and {*map(type, kwargs.values())} <= (_PLAIN if accept is of_any else _KEYWORDS))
            result = attempt(func, *operands, **{name: without_memory(value) for name, value in kwargs.items()})
            if result is operands[0] and func in _CONVERSIONS:
                return ARGUMENT, 0
            parts = (result,) if type(result) is torch.Tensor else result
            require(type(parts) is tuple or type(parts).__module__ == "torch.return_types")
            require(all([type(part) is torch.Tensor and part is not given[0] for part in parts]))
            require(accept is not of_any or len(given) == 1)
            own, memory = ({each.untyped_storage()._cdata for each in each_of} for each_of in (given, parts))
            viewed = [0] if accept is of_any and memory == own else []
            require((viewed or memory.isdisjoint(own)) and not any([each._version for each in given]))
            found = [(part.dtype, tuple(part.shape), part.stride(), layouts[0][3], False) for part in parts]
            require(accept is of_any or not any([0 in layout[1] for layout in found]))
        return (None, found[0], *viewed) if type(result) is torch.Tensor else (type(result), found, *viewed)
    return rule


def _named(names: str) -> Iterable[Callable[..., Any]]:
    holders = operator, torch, torch.Tensor, F, torch._C._nn
    found = [getattr(holder, name, None) for name in names.split() for holder in holders]
    return {id(each): each for each in found if each is not None}.values()


_PLAIN = frozenset({int, float, bool, type(None), torch.dtype})
_KEYWORDS = _PLAIN | {FakeTensor, tuple, list, str}
_UNARY = """relu sigmoid tanh exp log sin cos sqrt rsqrt abs neg erf silu gelu hardswish hardsigmoid hardtanh relu6
    leaky_relu elu mish softplus"""
_BINARY, _COMPARISONS = "add sub mul", "eq ne lt le gt ge"
_NUMBERS, _BITS = FLOATS | _INTEGERS, _INTEGERS | {torch.bool}
_EVERY, _OF_FLOATS = partial(certain, dtypes=_NUMBERS | _BITS), partial(filled, dtypes=FLOATS)
_EINSUM = torch.functional.einsum  # which permutes: strides of single elements are then in doubt
# Names of kernels, the tensors that they take, types of numbers that they refuse or may refuse.
_KERNELS: tuple[tuple[Accept, tuple[type, ...], str], ...] = (
    (_OF_FLOATS, (complex,), "matmul bmm addmm baddbmm softmax mean sum einsum pad linear"),
    (partial(certain, dtypes=FLOATS), (complex,), f"{_UNARY} pow"),
    (partial(certain, dtypes=_NUMBERS), (complex, bool), f"{_BINARY} {_COMPARISONS} div truediv maximum minimum"),
    (partial(certain, dtypes=_NUMBERS | _BITS, empty=True), (), "cat"),
    (_EVERY, (), "clone new_zeros new_ones new_full zeros_like ones_like full_like"),
    (partial(rows, dtypes=_NUMBERS), (complex,), "floor_divide floordiv remainder mod clamp neg abs argmax topk sort"),
    (partial(rows, dtypes=_BITS), (complex, float), "and_ or_ xor invert bitwise_and bitwise_or bitwise_not"),
    (partial(rows, dtypes=_NUMBERS | _BITS), (complex,), """logical_and logical_or logical_not where masked_fill sum any
        all amax amin max min cumsum stack repeat roll flip index_select tril triu"""),
    (partial(filled, dtypes=_NUMBERS | _BITS), (complex,), "gather"),  # laid out row by row, whatever it is given
    (partial(dense, dtypes=FLOATS), (complex,), "avg_pool2d max_pool2d adaptive_avg_pool2d"),
)
for _function, _flag in ((F.relu, 1), (F.relu6, 1), (F.silu, 1), (F.mish, 1), (F.hardswish, 1), (F.hardsigmoid, 1),
                         (F.leaky_relu, 2), (F.elu, 2), (F.hardtanh, 3)):
    rule_of(_function)(in_place(_flag))
for _names, _quick in ((_UNARY, unary), (_BINARY, binary(None, _NUMBERS)), ("div truediv", binary(None, FLOATS)),
                       (_COMPARISONS, binary(torch.bool, _NUMBERS)), ("mean sum", reduction)):
    rule_of(*_named(_names))(_quick)
for _accept, _refused, _names in _KERNELS:
    for _function in _named(_names):
        rule_of(_function)(kernel(_function, _accept, _refused))
_CONVERSIONS = (torch.Tensor.to, torch.Tensor.contiguous, torch.Tensor.float, torch.Tensor.long, torch.Tensor.int,
                torch.Tensor.bool, torch.Tensor.type_as)


def conversion(func: Callable[..., Any]) -> Rule:
    """To another dtype; to the device where the tensor is already."""
    converted = kernel(func, _EVERY)

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
        require(args and type(args[0]) is FakeTensor)
        here = str(read(args[0])[3])
        left = tuple([value for value in args if type(value) not in (torch.device, str) or str(value) != here])
        named = {name: value for name, value in kwargs.items() if type(value) is not torch.device or str(value) != here}
        require(all([type(value) in _PLAIN or type(value) is FakeTensor for value in left]))
        return (ARGUMENT, 0) if len(left) + len(named) == 1 < len(args) + len(kwargs) else converted(left, named, read)
    return rule


def constructor(func: Callable[..., Any]) -> Rule:
    """A new tensor on the CPU; one with given values only where there are none."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
        require(not _holds_fake(args) and kwargs.keys() <= {"dtype", "device"} and kwargs.get("device") in _ON_CPU)
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            result = attempt(func, *args, **{**kwargs, "device": "meta"})
            require(type(args[0]) is list and not args[0] if func is torch.tensor else 0 not in result.shape)
            return None, (result.dtype, tuple(result.shape), result.stride(), _CPU, False)
    return rule


@rule_of(F.interpolate)
def interpolate(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
    parts = [part for value in kwargs.values() for part in (value if type(value) in (tuple, list) else (value,))]
    require(len(args) == 1 and all([type(part) in _PLAIN or type(part) is str for part in parts]))
    return kernel(partial(F.interpolate, **kwargs), dense)(args, {}, read)


@rule_of(F.scaled_dot_product_attention)
def attention(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> object:
    """By the fused kernel for the CPU, or by products and softmax, as torch chooses."""
    require(len(args) == 3 and kwargs.keys() <= {"attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"})
    layouts = [filled(value, read, FLOATS) for value in args]
    require(same_place(*layouts) and all([len(layout[1]) == 4 and 1 not in layout[1][1:] for layout in layouts]))
    # The stride of a batch of one counts in real kernels.
    require(all([x[1][0] != 1 or x[2][0] == max(map(operator.mul, x[1][1:], x[2][1:])) for x in layouts]))
    require(not kwargs.get("enable_gqa") and type(kwargs.get("scale")) in (float, type(None)))
    layouts += [filled(value, read, frozenset({layouts[0][0], torch.bool})) for value in kwargs.values()
                if type(value) is FakeTensor]
    require(all([layout[3] == _CPU for layout in layouts]))
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        real, given = ([torch.empty_strided(size, stride, dtype=dtype, device=device)
                        for dtype, size, stride, _, _ in layouts] for device in ("cpu", "meta"))
        options = {name: value for name, value in kwargs.items() if type(value) is not FakeTensor}
        choice = attempt(torch._fused_sdp_choice, *real, **options)
        if choice == SDPBackend.MATH.value:
            result = attempt(torch._scaled_dot_product_attention_math, *given, **options)[0]
        else:
            require(choice == SDPBackend.FLASH_ATTENTION.value)
            result = attempt(_FLASH, *given[:3])[0]
        return None, (result.dtype, tuple(result.shape), result.stride(), _CPU, False)


_CPU, _FLASH = torch.device("cpu"), torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_ON_CPU = None, "cpu", _CPU
for _function in (*_CONVERSIONS, torch.arange, torch.zeros, torch.ones, torch.full, torch.tensor):
    rule_of(_function)((conversion if _function in _CONVERSIONS else constructor)(_function))


def _holds_fake(value: object) -> bool:
    if type(value) is slice:
        return any(map(_holds_fake, (value.start, value.stop, value.step)))
    return type(value) is FakeTensor or (type(value) is tuple or type(value) is list) and any(map(_holds_fake, value))


for _function in _named(_VIEWS):
    rule_of(_function)(kernel(_function, of_any))
_item, _picked = kernel(operator.getitem, of_any), kernel(operator.getitem, _EVERY)


@rule_of(operator.getitem, torch.Tensor.__getitem__)
def item(args: tuple[Any, ...], kwargs: dict[str, Any], read: Read) -> Any:
    require(len(args) == 2)
    parts = args[1] if type(args[1]) is tuple else (args[1],)
    if all([type(part) in _PLACES for part in parts]):
        return _item(args, kwargs, read)
    require(all([type(part) in _PLACES or type(part) is FakeTensor and read(part)[1] and read(part)[0] in _INDICES
                 for part in parts]))  # others are masks, or numbers
    return _picked(args, kwargs, read)
