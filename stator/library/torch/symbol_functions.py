"""Rules for torch functions about unbacked numbers.

    torch._check(n <= 4)         ->  a fact for the rest of the trace, asserted when the graph runs
    torch._check_tensor_all(m)   ->  an assertion in the graph
    t.tolist()                   ->  one symbol per element, if there are few
"""

from __future__ import annotations

import operator
import types
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, _advise_is_size

from stator.breaks import Break
from stator.code.decode import decode
from stator.code.flow import constant_result
from stator.interp.frame import Continuation, places_from
from stator.interp.graph_errors import assert_in_graph, promise_number
from stator.interp.numbers.symbolic_numbers import attempt, item_of
from stator.interp.objects.items import get_item, set_item
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.shapes.symbolic_values import SYMBOLIC, as_integer, data_dependent, is_unbacked, specialise

LIST_LIMIT = 64  # elements of a tensor that tolist() takes apart inside the graph
_INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


def constant_text(message: object) -> str | None:
    """The text of a `lambda: "text"`; None for any other message, which cannot be made while tracing."""
    if type(message) is not types.FunctionType or message.__code__.co_argcount or message.__code__.co_freevars:
        return None
    result = constant_result(decode(message.__code__))
    return result[0] if result and type(result[0]) is str else None


def assume(vm: VM, condition: object, message: object = None) -> None:
    """Take a condition for true; a data-dependent one is asserted where the graph runs."""
    unbacked = is_unbacked(condition)
    text = constant_text(message)
    try:
        if unbacked and (message is None or text is not None):
            holds = promise_number(vm, condition, _error_of_check(message), places_from(vm.frame))
        else:
            holds = assert_in_graph(vm, condition)
    except GuardOnDataDependentSymNode as error:
        raise data_dependent(error.cond) from None
    if not holds:
        raise Break("SB003", "a check that fails")  # eager raises it best
    if unbacked and text is not None:
        vm.recorder.record("call_function", torch._check, (condition, text), {}, None)


def _error_of_check(message: object) -> BaseException:
    try:
        torch._check(False, message)
    except RuntimeError as error:
        return error.with_traceback(None)
    raise AssertionError("torch._check accepts False")


@suspending_rule(torch._check)
def _check(vm: VM, cont: Continuation | None, cond: object, message: object = None) -> None:
    if type(cond) is torch.SymBool:
        assume(vm, cond, message)
    elif cond is not True:
        return vm.call(torch._check_with, (RuntimeError, cond, message), None, cont)
    vm.give(None, cont)


@rule(torch._check_is_size)
def _check_is_size(vm: VM, i: Any, message: object = None, *, max: Any = None) -> None:
    i = as_integer(i)
    if type(i) not in SYMBOLIC:
        if i < 0 or max is not None and i > max:
            raise Break("SB003", "a check that fails")
        return
    assume(vm, attempt(operator.ge, i, 0), message)
    _advise_is_size(i)
    if max is not None:
        assume(vm, attempt(operator.le, i, max), message)


@suspending_rule(torch._check_tensor_all)
def _check_tensor_all(vm: VM, cont: Continuation | None, cond: Any, message: object = None) -> None:
    if type(cond) is not FakeTensor or cond.dtype is not torch.bool:
        return vm.call(torch._check_tensor_all_with, (RuntimeError, cond, message), None, cont)
    text = "Expected cond to be True" if message is None else constant_text(message)
    if text is None:
        text = "a check of a tensor's values failed (its message is made from values of the call)"
    vm.torch_call(torch.ops.aten._assert_async.msg, (vm.torch_call(torch.Tensor.all, (cond,), None), text), None)
    vm.give(None, cont)


@rule(torch.Tensor.tolist)
def _tolist(vm: VM, tensor: torch.Tensor, /) -> Any:
    count = specialise(tensor.numel())
    if count > LIST_LIMIT or tensor.dtype.is_complex:
        raise Break("SB003", f"tolist() of {count} elements")
    return _nested_items(vm, tensor)


def _nested_items(vm: VM, tensor: Any) -> Any:
    if tensor.dim() == 0:
        return item_of(vm, tensor)
    return [_nested_items(vm, vm.torch_call(torch.Tensor.select, (tensor, 0, i), None)) for i in range(tensor.shape[0])]


@rule(torch.narrow, torch.Tensor.narrow)
def _narrow(vm: VM, /, *args: object, **kwargs: object) -> Any:
    start: Any = args[2] if len(args) > 2 else kwargs.get("start")
    if type(start) is not FakeTensor or start.dim() == 0 and start.dtype in _INTEGERS:  # torch refuses any other
        args = tuple([item_of(vm, a) if i and type(a) is FakeTensor else a for i, a in enumerate(args)])
        kwargs = {k: item_of(vm, a) if k != "input" and type(a) is FakeTensor else a for k, a in kwargs.items()}
    return vm.torch_call(torch.narrow, args, kwargs)


suspending_rule(torch.Tensor.__getitem__)(lambda vm, cont, tensor, key, /: get_item(vm, tensor, key, cont, own=False))
suspending_rule(torch.Tensor.__setitem__)(
    lambda vm, cont, tensor, key, value, /: set_item(vm, tensor, key, value, cont, own=False))
