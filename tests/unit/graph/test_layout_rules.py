"""Every rule beside FakeTensor and beside real tensors: one dtype, size and stride, or no answer from the rule."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

import stator
from stator.graph.metadata.layout_rules import ARGUMENT, RULES, WRITTEN, foresee
from stator.graph.metadata.propagation import Propagation

Case = tuple[Any, tuple[Any, ...], dict[str, Any]]
ROUNDS = 50


def extent(rng: random.Random) -> int:
    return rng.choice((1, 2, 3, 4, 5, 0) if rng.random() < 0.1 else (1, 2, 3, 4, 5))


def tensor(rng: random.Random, size: tuple[int, ...] | None = None, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of a random size, most of them row by row; some permuted, sliced, expanded or of another dtype."""
    size = tuple(extent(rng) for _ in range(rng.randrange(5))) if size is None else size
    if rng.random() < 0.06:
        dtype = rng.choice((torch.float16, torch.int64, torch.bool, torch.complex64, torch.float64))
    chance = rng.random()
    if chance < 0.12 and len(size) > 1:
        order = rng.sample(range(len(size)), len(size))
        back = [order.index(i) for i in range(len(size))]
        return torch.ones([size[i] for i in order]).to(dtype).permute(back)
    if chance < 0.16 and size:
        return torch.ones((*size[:-1], size[-1] * 2)).to(dtype)[..., ::2]
    if chance < 0.2 and size:
        return torch.ones((*size[:-1], 1)).to(dtype).expand(size)
    if chance < 0.23 and len(size) == 4:
        return torch.ones(size).to(dtype).to(memory_format=torch.channels_last)
    return torch.ones(size).to(dtype)


def broadcast_pair(rng: random.Random, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    size = tuple(extent(rng) for _ in range(rng.randrange(1, 5)))
    other = tuple(n if rng.random() < 0.6 else 1 for n in size)[rng.randrange(len(size)) if rng.random() < 0.3 else 0:]
    pair = [tensor(rng, size, dtype), tensor(rng, other, dtype)]
    if rng.random() < 0.3:
        pair[1] = rng.choice((2, 0.5, True, -1, 2**40, 1j))
    rng.shuffle(pair)
    return pair[0], pair[1]


def unary(function: Any) -> Callable[[random.Random], Case]:
    return lambda rng: (function, (tensor(rng),), {})


def binary(function: Any, dtype: torch.dtype = torch.float32) -> Callable[[random.Random], Case]:
    def make(rng: random.Random) -> Case:
        used = torch.int64 if dtype is torch.float32 and rng.random() < 0.2 else dtype
        return function, broadcast_pair(rng, used), {}

    return make


def linear(rng: random.Random) -> Case:
    wide, narrow = extent(rng), extent(rng)
    x = tensor(rng, (*[extent(rng) for _ in range(rng.randrange(4))], narrow))
    bias = (tensor(rng, (wide,)),) if rng.random() < 0.5 else () if rng.random() < 0.5 else (None,)
    weight = tensor(rng, (wide, narrow if rng.random() < 0.95 else 7))
    if rng.random() < 0.3:
        return F.linear, (x,), {"weight": weight, **({"bias": bias[0]} if bias else {})}
    return F.linear, (x, weight, *bias), {}


def interpolate(rng: random.Random) -> Case:
    dims, mode = rng.choice(((1, "linear"), (2, "bilinear"), (2, "bicubic"), (1, "nearest"), (2, "nearest"), (2, "area")))
    to = rng.choice(({"size": 4}, {"size": [3] * dims}, {"scale_factor": 2.0}))
    return F.interpolate, (tensor(rng, tuple(rng.choice((1, 2, 3, 5)) for _ in range(dims + 2))),), {**to, "mode": mode}


def convolution(rng: random.Random) -> Case:
    count = rng.choice((1, 2, 2, 3))
    groups = rng.choice((1, 1, 2))
    inner, outer = rng.choice((1, 2, 3)), rng.choice((1, 2, 3)) * groups
    x = tensor(rng, (rng.choice((1, 2, 3)), inner * groups, *[rng.choice((1, 3, 6, 7)) for _ in range(count)]))
    if rng.random() < 0.05:
        x = x[0]
    weight = tensor(rng, (outer, inner, *[rng.choice((1, 2, 3)) for _ in range(count)]))
    bias = tensor(rng, (outer,)) if rng.random() < 0.5 else None
    numbers = [rng.choice((1, 2, (2,) * count, [1] * count)), rng.choice((0, 1, (1,) * count, "same")),
               rng.choice((1, 1, 2)), groups]
    keep = 4 if groups > 1 else rng.randrange(5)
    return (torch.conv1d, torch.conv2d, torch.conv3d)[count - 1], (x, weight, bias, *numbers[:keep]), {}


def layer_norm(rng: random.Random) -> Case:
    x = tensor(rng, tuple(extent(rng) for _ in range(rng.randrange(1, 5))))
    tail = list(x.shape[-rng.randrange(1, x.dim() + 1):])
    weights = [tensor(rng, tuple(tail)) if rng.random() < 0.7 else None for _ in range(2)]
    return F.layer_norm, (x, tail, *weights, 1e-5)[:rng.randrange(2, 6)], {}


def group_norm(rng: random.Random) -> Case:
    groups = rng.choice((1, 2))
    channels = groups * rng.choice((1, 2, 3))
    x = tensor(rng, (extent(rng), channels, *[extent(rng) for _ in range(rng.randrange(3))]))
    weights = [tensor(rng, (channels,)) if rng.random() < 0.7 else None for _ in range(2)]
    return F.group_norm, (x, groups, *weights, 1e-5)[:rng.randrange(2, 6)], {}


def embedding(rng: random.Random) -> Case:
    index = torch.zeros([extent(rng) for _ in range(rng.randrange(4))], dtype=rng.choice((torch.int64, torch.int32)))
    index = index.transpose(0, -1) if index.dim() > 1 and rng.random() < 0.2 else index
    index = index.expand(2, *index.shape) if rng.random() < 0.2 else index
    rest = (rng.choice((None, 0, -1)), rng.choice((None, None, 1.0)), 2.0, rng.random() < 0.1, rng.random() < 0.1)
    return F.embedding, (index, tensor(rng, (5, extent(rng))), *rest[:rng.randrange(6)]), {}


def cat(rng: random.Random) -> Case:
    size = [extent(rng) for _ in range(rng.randrange(1, 5))]
    dim = rng.randrange(-len(size), len(size))
    parts = []
    for _ in range(rng.randrange(1, 4)):
        each = list(size)
        each[dim] = extent(rng)
        parts.append(tensor(rng, tuple(each)))
    if rng.random() < 0.2:
        parts[0] = torch.tensor([])
    parts = parts if rng.random() < 0.8 else tuple(parts)  # type: ignore[assignment]
    return torch.cat, (parts,) if dim == 0 else (parts, dim), {} if rng.random() < 0.5 or dim else {"dim": 0}


def batch_norm(rng: random.Random) -> Case:
    channels = extent(rng)
    x = tensor(rng, (extent(rng), channels, *[extent(rng) for _ in range(rng.randrange(4))]))
    weights = [tensor(rng, (channels,)) if rng.random() < 0.9 else None for _ in range(4)]
    return F.batch_norm, (x, *weights, rng.random() < 0.1, 0.1, 1e-5), {}


def product(function: Any) -> Callable[[random.Random], Case]:
    def make(rng: random.Random) -> Case:
        n, m, k = extent(rng), extent(rng), extent(rng)
        batch = tuple(extent(rng) for _ in range({"bmm": 1, "baddbmm": 1, "addmm": 0}.get(function.__name__, rng.randrange(3))))
        other = batch if rng.random() < 0.8 or function.__name__ != "matmul" else tuple(1 for _ in batch)
        pair = tensor(rng, (*batch, n, k)), tensor(rng, (*other, k, m))
        if rng.random() < 0.2 and function.__name__ == "matmul":
            pair = rng.choice(((pair[0], tensor(rng, (k,))), (tensor(rng, (k,)), pair[1])))
        added = {"addmm": ((m,), (n, m), (1, m)), "baddbmm": ((*batch, n, m), (1, m))}.get(function.__name__)
        return function, (*([tensor(rng, rng.choice(added))] if added else []), *pair), {}

    return make


def einsum(rng: random.Random) -> Case:
    sizes = {letter: rng.choice((1, 2, 3, 4)) for letter in "abcdef"}
    text = rng.choice(("abc,cde->abde", "bhwc,hkc->bhwk", "abcd,abed->abce", "ab,bc->ac", "ab,ab->a", "abc->cab", "ab->",
                       "a,b->ab", "abcd,cd->ba"))
    for letter in set(text) - set(",->"):
        sizes.setdefault(letter, rng.choice((1, 2, 3, 4)))
    operands = [tensor(rng, tuple(sizes[letter] for letter in part)) for part in text.partition("->")[0].split(",")]
    return torch.functional.einsum, (text, *operands), {}


def reduction(function: Any) -> Callable[[random.Random], Case]:
    def make(rng: random.Random) -> Case:
        x = tensor(rng, tuple(extent(rng) for _ in range(rng.randrange(1, 5))))
        args, kwargs = rng.choice((((-1,), {}), ((), {"dim": 0}), ((0,), {"dtype": torch.float64})))
        if "softmax" not in function.__name__ and rng.random() < 0.6:
            args, kwargs = rng.choice(((([0, -1],), {"keepdim": True}), ((), {}), ((0, True), {}), ((-1,), {"keepdim": True})))
        return function, (x, *args), kwargs

    return make


def pad(rng: random.Random) -> Case:
    x = tensor(rng, tuple(extent(rng) for _ in range(rng.randrange(1, 5))))
    widths = [rng.choice((0, 1, 2)) for _ in range(2 * rng.randrange(1, x.dim() + 1))]
    return F.pad, (x, widths, *rng.choice(((), ("constant", 0.0), ("constant", 1)))), \
        rng.choice(({}, {}, {"mode": "constant"}, {"mode": "replicate"}))


def attention(rng: random.Random) -> Case:
    batch, heads, length, width = extent(rng), extent(rng), extent(rng), extent(rng)
    query = tensor(rng, (batch, heads, length, width))
    key, value = (tensor(rng, (batch, heads, length + 1, width)) for _ in range(2))
    options: dict[str, Any] = {"attn_mask": rng.choice((None, tensor(rng, (batch, 1, length, length + 1)), tensor(rng, (heads, length, length + 1)),
                                                        tensor(rng, (length, length + 1), torch.bool)))}
    more = rng.choice(({}, {"dropout_p": 0.0}, {"scale": 0.5}, {"is_causal": False}))
    return F.scaled_dot_product_attention, (query, key, value), {**options, **more}


def picked(rng: random.Random) -> Case:
    x = tensor(rng, tuple(rng.choice((1, 2, 3)) for _ in range(rng.randrange(1, 5))))
    size = tuple(rng.choice((1, 2, 3)) for _ in range(rng.randrange(1, 3)))
    parts: list[Any] = [rng.choice((slice(None), None, 0, ..., torch.zeros(size, dtype=torch.int64)))
                        for _ in range(rng.randrange(x.dim() + 1))]
    parts.insert(rng.randrange(len(parts) + 1), torch.zeros(size, dtype=rng.choice((torch.int64, torch.int32, torch.bool))))
    return operator.getitem, (x, parts[0] if len(parts) == 1 else tuple(parts)), {}


def choice_of(function: Any) -> Callable[[random.Random], Case]:
    def make(rng: random.Random) -> Case:
        one, other, size = *broadcast_pair(rng), tuple(extent(rng) for _ in range(rng.randrange(3)))
        first = [tensor(rng, size, torch.bool), one]
        return function, (*(first if function is torch.where else first[::-1]), other), {}

    return make


def constructor(function: Any) -> Callable[[random.Random], Case]:
    sizes: Any = {"arange": ((5,), (0, 8, 2), (0.5, 3.0), (0,))}.get(
        function.__name__, tuple((size, *((value,) if function is torch.full else ())) for size in ((2, 3), (1,), (0, 2), ())
                                 for value in (1, 0.5, True)))
    return lambda rng: (function, rng.choice(sizes), rng.choice(
        ({}, {"dtype": torch.float64}, {"device": "cpu"}, {"device": torch.device("cpu"), "dtype": torch.int32})))


def view(function: Any, *choices: tuple[Any, ...]) -> Callable[[random.Random], Case]:
    def make(rng: random.Random) -> Case:
        size = rng.choice(((2, 6), (4, 3, 2), (2, 1, 4), (1, 5), (3, 4, 2, 2)))
        dtype = torch.float16 if function is torch.Tensor.float else torch.float32
        return function, (tensor(rng, size, dtype), *rng.choice(choices)), {}

    return make


_KEYS: tuple[Any, ...] = (0, -1, None, ..., slice(1, None), slice(None, None, 2), (..., 0), (None, slice(0, 1)),
                          (slice(None), None), True, [0, 1], (0, ..., None))
_ARGUMENTS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "reshape": ((-1,), (2, -1), ((6, -1),), (4, 3, 2)), "view": ((-1,), (2, -1), ((2, 6),), (torch.int32,)),
    "transpose": ((0, 1), (-1, -2), (0, 9)), "permute": ((1, 0), (2, 0, 1), ((1, 2, 0),), (0, 2, 1, 3)),
    "unsqueeze": ((0,), (-1,), (9,)), "squeeze": ((), (1,), (-1,)), "flatten": ((), (1,), (0, 1)),
    "chunk": ((2,), (3, 1), (2, -1)), "unbind": ((), (1,)), "narrow": ((0, 0, 1), (1, 1, 1)), "select": ((0, 0), (1, -1)),
    "t": ((),), "movedim": ((0, 1), (0, -1)), "swapaxes": ((0, 1),), "expand": ((2, 4, 3, 2), (3, 1, 5), (2, -1, 4)),
    "contiguous": ((),), "float": ((),), "long": ((),), "int": ((),), "bool": ((),), "split": ((1,), (2, 1), ([1, 1],)),
    "to": ((torch.float64,), (torch.device("cpu"),), ("cpu", torch.int64), (torch.float32, False, True)),
    "clone": ((),), "new_zeros": (((2, 3),), ((),)), "new_ones": (((2, 3),), ((),)), "new_full": (((2, 3), 1),),
    "zeros_like": ((),), "ones_like": ((),), "full_like": ((2,),), "repeat": ((1, 2, 1, 1), (2, 2, 2, 3)),
    "roll": ((1,), (1, 0), ((1, 0), (0, 1))), "flip": ((0,), ((0, 1),)), "tril": ((), (1,)), "triu": ((), (-1,)), "cumsum": ((0,), (-1,)),
    "topk": ((1,), (2, 0)), "sort": ((), (0,)), "amax": ((), (0,), ((0, 1), True)), "amin": ((), (-1,)),
    "max": ((), (0,), (-1, True)), "min": ((), (1,), (0, True)), "argmax": ((), (0,), (-1, True)), "any": ((), (0,)), "all": ((), (-1, True)), "clamp": ((0.0, 1.0), (None, 2)),
    "avg_pool2d": ((2,), (2, 1), ((1, 2), 2, (0, 1))), "adaptive_avg_pool2d": ((1,), ((2, 1),)),
    "max_pool2d": ((2,), (2, 1, 1), ((1, 2), None, 0, 1, True)), "unflatten": ((1, (2, 3)), (0, (2, -1))),
    "getitem": tuple((key,) for key in _KEYS), "__getitem__": tuple((key,) for key in _KEYS)}

_SPECIAL: dict[int, Callable[[random.Random], Case]] = {
    id(F.linear): linear, id(torch.conv1d): convolution, id(torch.conv2d): convolution, id(torch.conv3d): convolution,
    id(F.layer_norm): layer_norm, id(F.group_norm): group_norm, id(F.embedding): embedding, id(torch.cat): cat,
    id(F.batch_norm): batch_norm, id(torch.functional.einsum): einsum, id(F.pad): pad, id(torch._C._nn.pad): pad,
    id(F.scaled_dot_product_attention): attention, id(F.interpolate): interpolate,
    id(torch.tensor): lambda rng: (torch.tensor, ([],), rng.choice(({}, {"dtype": torch.int64}, {"device": "cpu"}))),
    **{id(each): choice_of(each) for each in (torch.where, torch.Tensor.where)},
    id(torch.stack): lambda rng: (torch.stack, ([tensor(rng, (2, 3)), tensor(rng, (2, 3))], rng.choice((0, 1, -1))), {}),
    **{id(each): constructor(each) for each in (torch.arange, torch.zeros, torch.ones, torch.full)},
    id(F.gelu): lambda rng: (F.gelu, (tensor(rng),), rng.choice(({}, {"approximate": "tanh"})))}
_BINARY = ("add", "sub", "mul", "truediv", "div", "eq", "ne", "lt", "le", "gt", "ge", "pow", "and_", "or_", "xor",
           "floor_divide", "floordiv", "remainder", "mod", "maximum", "minimum", "logical_and", "logical_or",
           "bitwise_and", "bitwise_or", "type_as")


def sized_as(function: Any) -> Callable[[random.Random], Case]:
    def make(rng: random.Random) -> Case:
        x = tensor(rng, rng.choice(((2, 6), (4, 3), (1, 12), (12,), (3, 1, 4))))
        return function, (x, tensor(rng, rng.choice(((2, 6), (4, 3), (12,), (1, 2, 6), (3, 4), (3, 2, 4))))), {}

    return make


def maker(function: Any) -> Callable[[random.Random], Case]:
    if id(function) in _SPECIAL:
        return _SPECIAL[id(function)]
    name = function.__name__
    if name.endswith("_as") and name != "type_as":
        return sized_as(function)
    if name in ("max", "min"):
        pairs, lines = binary(function), view(function, *_ARGUMENTS[name])
        return lambda rng: (pairs if rng.random() < 0.5 else lines)(rng)
    if name in ("getitem", "__getitem__"):
        views = view(function, *_ARGUMENTS[name])
        return lambda rng: (picked if rng.random() < 0.5 else views)(rng)
    if name in ("gather", "index_select", "masked_fill"):
        last = {"gather": (0, torch.zeros(1, 1, dtype=torch.int64).expand(1, 2)), "index_select": (1, torch.zeros(2, dtype=torch.int64)),
                "masked_fill": (torch.ones(2, 1, dtype=torch.bool), 0.5)}[name]
        named = {"gather": ("dim", "index"), "index_select": ("dim", "index")}.get(name, ("mask", "value"))
        return lambda rng: (function, (tensor(rng, (2, 3)), *last), {}) if rng.random() < 0.5 else (
            function, (tensor(rng, (2, 3)),), dict(zip(named, last, strict=True)))
    if name in _ARGUMENTS:
        return view(function, *_ARGUMENTS[name])
    if name == "pow":
        return lambda rng: (function, (tensor(rng), rng.choice((2, 0.5, -1, tensor(rng, (1,))))), {})
    if name in ("matmul", "bmm", "addmm", "baddbmm"):
        return product(function)
    if name in ("softmax", "mean", "sum"):
        return reduction(function)
    if name in ("hardtanh", "leaky_relu", "elu", "softplus"):
        return lambda rng: (function, (tensor(rng), *rng.choice(((), (0.5,), (0.25, 6.0)[:1 + (name == "hardtanh")]))), {})
    if name in _BINARY:
        return binary(function, torch.bool if name in ("and_", "or_", "xor", "bitwise_and", "bitwise_or") else torch.float32)
    if name in ("bitwise_not", "invert"):
        return lambda rng: (function, (tensor(rng, dtype=rng.choice((torch.bool, torch.int64))),), {})
    return unary(function)


def layouts(result: Any) -> list[Any]:
    return [(part.dtype, tuple(part.shape), part.stride()) for part in pytree.tree_leaves(result)]


def outcome(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return error


@pytest.mark.parametrize("number", list(RULES), ids=[f"{i}-{each[0].__name__}" for i, each in enumerate(RULES.values())])
def test_a_rule_says_what_torch_does(number: int) -> None:
    make, answered = maker(RULES[number][0]), 0
    rng = random.Random(RULES[number][0].__name__)
    for _ in range(ROUNDS):
        function, args, kwargs = make(rng)
        mode = FakeTensorMode()
        fakes, fake_kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        propagation = Propagation(mode)
        with torch.no_grad():
            if propagation.key(function, fakes, fake_kwargs) is None:
                continue
            found = foresee(function, fakes, fake_kwargs, propagation.tensor_key)
            if found is None:
                continue
            real, fake = outcome(function, args, kwargs), outcome(function, fakes, fake_kwargs)
        shown = f"{function.__name__} of {pytree.tree_map_only(torch.Tensor, lambda t: layouts(t), (args, kwargs))}"
        assert not isinstance(real, Exception), f"{shown}: {real}"
        if found[0] is ARGUMENT:
            assert real is args[found[1]] and fake is fakes[found[1]], shown
            answered += 1
            continue
        specs = [found[1]] if found[0] is None else found[1]
        told = [spec[:3] for spec in specs]
        assert type(real) is (torch.Tensor if found[0] is None else found[0]), shown
        assert told == layouts(real), shown
        if not isinstance(fake, Exception) and not any(
                0 in each.stride() for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)):
            assert told == layouts(fake), shown  # of expanded tensors FakeTensor gives other strides than torch
        assert all(spec[3] == torch.device("cpu") and spec[4] is False for spec in specs)
        assert not any(part is value for part in pytree.tree_leaves(fake) for value in fakes), shown
        answered += 1
    assert answered >= 3


def test_what_no_rule_is_sure_of() -> None:
    mode = FakeTensorMode()

    def asked(function: Any, *args: Any, **kwargs: Any) -> Any:
        fakes, named = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        return foresee(function, fakes, named, Propagation(mode).tensor_key)

    x = torch.ones(2, 3)
    assert asked(torch.relu, x) is not None
    assert asked(torch.relu, x, True) is None and asked(F.relu, x, 1) is None and asked(F.relu, x, False, True) is None
    assert asked(F.relu, x[:1].expand(2, 3), inplace=True) is None
    assert asked(operator.add, x, torch.ones(2, 3, dtype=torch.complex64)) is None
    assert asked(torch.add, x, x, out=x) is None
    assert asked(torch.Tensor.to, x, "meta") is None and asked(torch.zeros, 2, device="meta") is None
    assert asked(operator.getitem, x, torch.tensor(1)) is None and asked(operator.getitem, x, x > 0) is None
    assert asked(operator.add, x, torch.ones(4)) is None
    assert asked(F.linear, x, torch.ones(5, 4)) is None
    assert asked(torch.tensor, [1]) is None and asked(torch.tensor, x) is None
    assert asked(F.embedding, torch.zeros(2, dtype=torch.int64), x, None, 1.0) is None  # writes to its weights
    assert asked(torch.Tensor.expand, x, mode.from_tensor(torch.tensor(2)), 3) is None
    assert asked(torch.Tensor.contiguous, x) == (ARGUMENT, 0)
    assert type(mode.from_tensor(x)) is FakeTensor


@pytest.mark.parametrize("function", [F.relu, F.relu6, F.silu, F.mish, F.hardswish, F.hardsigmoid, F.leaky_relu, F.elu,
                                      F.hardtanh])
@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.transpose(0, 1), lambda x: x.double()])
def test_a_write_is_foreseen_as_torch_does_it(function: Any, layout: Any) -> None:
    mode = FakeTensorMode()
    real = layout(torch.randn(2, 3, 4))
    fake = mode.from_tensor(layout(torch.randn(2, 3, 4)))
    propagation = Propagation(mode)
    assert foresee(function, (fake,), {"inplace": True}, propagation.tensor_key) == (WRITTEN, 0)
    before, layouts_before, count = propagation.states((fake,)), layouts(real), real._version
    assert function(fake, inplace=True) is fake and function(real, inplace=True) is real
    after = Propagation(mode).states((fake,))
    assert after == [(before[0][0], before[0][1] + 1)]
    assert layouts(real) == layouts_before and real._version == count + 1


def test_a_write_is_learned_where_it_is_all_that_a_call_does() -> None:
    def writes(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x + 1
        for _ in range(3):
            a.add_(1)
            a += y
            a[0].mul_(2)
            F.relu(a, inplace=True)
        b = a.view(-1)
        for _ in range(2):
            b.sub_(3)
            a.add_(a)
            a.t_()
        return a, b, x * 2

    for size in ((2, 3), (2, 3), (4, 3)):
        x, y = torch.randn(size), torch.randn(3)
        found = stator.compile(writes, backend="eager", fullgraph=True)(x, y)
        expected = writes(x, y)
        assert [layouts(each) for each in found] == [layouts(each) for each in expected]
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
