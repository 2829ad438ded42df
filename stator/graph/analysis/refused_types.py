"""Dtypes that kernels refuse and rules for fakes take.   ints.mul_(floats), floats & floats  ->  eager's exception

In: an operation on unusual dtypes: no floats, or of several kinds.  Out: the exception of an elementwise kernel, tried
once for each combination on tensors of one item; for a node of a graph, whether its kernel may raise while it runs.
A compiler would compute something: the product of an int and a float, copied into the int.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import fx
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor

from stator.graph.analysis.mutation import operator_name, tags_of
from stator.shapes.symbolic_values import SYMBOLIC

_SIMPLE = frozenset({int, float, bool, complex, str, type(None)})
_HINTS = {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}
# Elementwise operators without a tag: those of Python, and names for other operators.
_UNTAGGED = frozenset("""
    add sub mul truediv floordiv mod pow and or xor lshift rshift iadd isub imul itruediv ifloordiv imod ipow iand ior
    ixor ilshift irshift neg pos invert abs multiply subtract divide true_divide floor_divide greater greater_equal less
    less_equal not_equal clip absolute negative fix
""".split())
_OF_INTEGERS = frozenset("""
    and or xor lshift rshift iand ior ixor ilshift irshift invert bitwise_and bitwise_or bitwise_xor bitwise_not
    bitwise_left_shift bitwise_right_shift gcd lcm
""".split())
# Their results have sizes that arguments name; they take every dtype.
_BY_SIZE = frozenset("""
    repeat tile pad full_like new_empty new_full new_ones new_zeros repeat_interleave zero one_hot
""".split())
_known: dict[tuple[object, ...], Exception | None] = {}  # what the kernel raised
Arguments = tuple[object, ...]
Operator = Callable[..., object]


def refuse_dtypes(func: Operator, args: Arguments, kwargs: dict[str, object]) -> None:
    """Raise what an elementwise kernel raises of these dtypes."""
    operands = (*args, *kwargs.values())
    if not all(map(_is_operand, operands)) or is_usual(func, operands) or not _is_elementwise(func):
        return
    failure = _tried(func, args, kwargs)
    if isinstance(failure, RuntimeError):  # NotImplementedError is one; TypeErrors are of torch's parser
        raise RuntimeError(*failure.args)


def may_refuse(node: fx.Node) -> bool:
    """Whether the kernel of a node may refuse the dtypes of its tensors."""
    stem = operator_name(node.target).strip("_")
    inputs = [each.meta.get("example_value") for each in node.all_input_nodes]
    if stem in _BY_SIZE or is_usual(node.target, inputs) or torch.Tag.nondeterministic_seeded in tags_of(node.target):
        return False
    func = getattr(torch.Tensor, node.target, None) if isinstance(node.target, str) else node.target
    if not callable(func):
        return True
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta.get("example_value"))
    return _tried(func, args, dict(kwargs)) is not None


def is_usual(func: object, operands: Iterable[object]) -> bool:
    """Whether the tensors are floats of one dtype, beside real numbers; or not on the CPU, where nothing is tried."""
    tensors = [each for each in operands if isinstance(each, FakeTensor)]
    if not tensors and not any(isinstance(each, list) for each in operands):
        return True
    if any(each.device.type != "cpu" or each.layout is not torch.strided for each in tensors):
        return True
    dtypes = {each.dtype for each in tensors}
    return len(dtypes) == 1 and dtypes.pop().is_floating_point and operator_name(func).strip("_") not in _OF_INTEGERS \
        and not any(isinstance(each, (complex, list)) for each in operands)


def _is_elementwise(func: object) -> bool:
    name = operator_name(func)
    if name.strip("_") in _UNTAGGED or name.startswith("_foreach_"):
        return True
    tags = tags_of(func)
    return torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags


def _is_operand(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_operand, value))
    return isinstance(value, FakeTensor) or type(value) in _SIMPLE or type(value) in SYMBOLIC


def _tried(func: Operator, args: Arguments, kwargs: dict[str, object]) -> Exception | None:
    """The exception of the kernel on tensors of one item, if it raises one."""
    key = (func, _signature(args), tuple(kwargs), _signature(tuple(kwargs.values())))
    if key not in _known:
        with fake_tensor.unset_fake_temporarily(), torch._C._DisablePythonDispatcher(), torch.no_grad():
            try:
                _known[key] = None
                func(*map(_single, args), **{name: _single(each) for name, each in kwargs.items()})
            except Warning:  # of a filter that makes errors of them
                pass
            except Exception as error:  # whatever torch raises is the answer
                _known[key] = error.with_traceback(None)
    return _known[key]


def _signature(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return tuple(map(_signature, value))
    if isinstance(value, FakeTensor):
        return value.dtype, value.dim()
    return type(value), None if type(value) in SYMBOLIC else repr(value)


def _single(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_single(each) for each in value] if isinstance(value, list) else tuple(map(_single, value))
    if isinstance(value, FakeTensor):
        return torch.ones((1,) * value.dim(), dtype=value.dtype, device="cpu")
    return _HINTS.get(type(value), value)
