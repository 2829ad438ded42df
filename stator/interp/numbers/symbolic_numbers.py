"""Symbolic numbers in the interpreter.   n + 1, x[:n], max(n, 4), int(t)  ->  symbols;  f"{n}", {n: x}  ->  the number

Handlers call these functions with a symbolic number, or with a tensor in the place of a number.  MISSING as a result:
go on with the number itself.
"""

from __future__ import annotations

import bisect
import collections
import functools
import gc
import math
import operator
import types
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.guards.guard import Missing
from stator.heap.pure_readers import mapping_behind
from stator.heap.raw_access import instance_dict
from stator.heap.tracker import Box, ShadowKind
from stator.interp.frame import Raised, raising
from stator.interp.lookup import MISSING
from stator.interp.numbers.float_arithmetic import boxed, power, quotient, record_float
from stator.interp.services import VM
from stator.interp.torch_function_protocol import refuse_patched
from stator.native.rows_declare import NativeClass
from stator.shapes.symbolic_values import (
    SYMBOLIC,
    UNREAD,
    as_integer,
    compute,
    is_unbacked,
    kept_apart,
    python_type,
    specialise,
)
from stator.source import CallOf, Pinned

INDEXES = frozenset({torch.SymInt, torch.SymBool, slice, tuple, FakeTensor})
SEQUENCES = frozenset({list, tuple, torch.Size})
_NUMBERS = frozenset({int, float, bool}) | SYMBOLIC
_C_SEQUENCES = (list, tuple, str, bytes, range, collections.deque)
_ORDERED: collections.OrderedDict[Any, Any] = collections.OrderedDict()
KEY_VIEWS = frozenset({type({}.keys()), type(_ORDERED.keys())})
ITEM_VIEWS = frozenset({type({}.items()), type(_ORDERED.items())})
_SHOWING = ITEM_VIEWS | {type({}.values()), type(_ORDERED.values()), types.MappingProxyType}  # values of a dict
_PRODUCTS = frozenset({operator.mul, operator.imul})
_POWERS = frozenset({operator.pow, operator.ipow})
_LARGEST_EXPONENT = 4
_DEPTH = 20
_COMPARABLE = frozenset({int, float, str, type(None), torch.SymInt, torch.SymFloat})
_WALKING = frozenset({zip, enumerate, type(iter([])), type(iter(()))})
_KNOWN_CLASSES: dict[type, Any] = {
    tuple: tuple, torch.Size: tuple, list: list, dict: dict, collections.OrderedDict: dict,
    collections.deque: collections.deque,
    **dict.fromkeys((int, str, float, bool, type(None), type, slice, FakeTensor, Box, types.FunctionType)),
}
_LISTS = (list, collections.deque)


def attempt(function: object, *values: object) -> Any:
    """Compute; what Python would raise on the numbers is the program's exception."""
    return raising(compute, function, *values)


def arithmetic(vm: VM, function: Callable[..., Any], *values: object) -> Any:
    if function in (operator.truediv, operator.itruediv) and vm.recorder.scope.data_dependent and (
            type(values[1]) is torch.SymFloat or type(values[1]) is torch.SymInt and is_unbacked(values[1])):
        result = quotient(vm, *values)
    elif function in _POWERS and float in {python_type(value) for value in values} and vm.recorder.scope.data_dependent:
        result = power(vm, *values)
    else:
        result = MISSING
        if function in _PRODUCTS and vm.recorder.scope.data_dependent:
            zero = _product_with_zero(vm, *values)
            if zero is not MISSING:
                return zero
    if result is MISSING:
        result = kept_apart(attempt(function, *values), values)
    # Symbols reorder sums and forget how floats are rounded: the graph computes floats in the program's order.
    if type(result) in SYMBOLIC and (type(result) is torch.SymFloat or any(python_type(v) is float for v in values)):
        record_float(vm, function, values, result)
    return result


def binary(vm: VM, function: Any, left: object, right: Any) -> Any:
    if type(left) is FakeTensor or type(right) is FakeTensor:
        return vm.torch_call(function, (left, right), None)
    if function in _POWERS and _may_overflow(left, right):
        return MISSING
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return arithmetic(vm, function, left, right)
    return MISSING


def _product_with_zero(vm: VM, left: object, right: object) -> Any:
    if type(left) not in SYMBOLIC:
        left, right = right, left
    if type(left) is torch.SymFloat and is_unbacked(left) and type(right) in (int, float) and right == 0:
        # 0 * f is 0 for symbols; the graph's own arithmetic knows of -0.0, infinities and NaN.
        return item_of(vm, vm.torch_call(torch.mul, (boxed(vm, left), right), None))
    return MISSING


def compare(vm: VM, function: object, left: object, right: object) -> Any:
    if type(left) is FakeTensor or type(right) is FakeTensor:
        return vm.torch_call(function, (left, right), None)
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return attempt(function, left, right)
    if function in (operator.eq, operator.ne) and (left is None or right is None or str in (type(left), type(right))) \
            and type(left) not in UNREAD and type(right) not in UNREAD:
        return function is operator.ne
    return MISSING


def truth(vm: VM, value: object) -> bool:
    return specialise(as_bool(vm, value), "a branch on a number")


def as_bool(vm: VM, value: object) -> Any:
    """bool(n), which need not be known yet."""
    return value if type(value) is torch.SymBool else attempt(operator.ne, value, 0)


def item_of(vm: VM, tensor: FakeTensor) -> Any:
    return vm.torch_call(torch.Tensor.item, (tensor,), None)


def index_of(vm: VM, tensor: FakeTensor) -> Any:
    """The number that a tensor is where C code calls its `__index__`."""
    refuse_patched(vm, "__index__")
    with torch._C.DisableTorchFunction():
        count, dtype = tensor.numel(), tensor.dtype
    if type(count) is int and count != 1 or dtype.is_floating_point or dtype.is_complex:
        raise Raised(TypeError("only integer tensors of a single element can be converted to an index"))
    return item_of(vm, tensor)


def index_key(vm: VM, obj: object, key: object) -> Any:
    """The key of a C container, its symbols as numbers."""
    cls = type(obj)
    if cls in _C_SEQUENCES or cls is torch.Size:
        if type(key) is slice:
            key = slice(*[index_of(vm, part) if type(part) is FakeTensor else part
                          for part in (key.start, key.stop, key.step)])
        return specialise_deep(vm, key)
    return specialise_deep(vm, key) if cls is dict else key


def specialise_deep(vm: VM, value: Any) -> Any:
    """Replace every symbol that C code would look at by its number; containers are changed in place."""
    cls = type(value)
    if cls in SYMBOLIC:
        return specialise(value)
    if cls is slice:
        return slice(*[specialise_deep(vm, part) for part in (value.start, value.stop, value.step)])
    if cls in _SHOWING:
        vm.heap.expose_deep(value)
        specialise_deep(vm, mapping_behind(value))
        return value
    base = _container(cls)
    if base is tuple:
        if not _reaches_symbol(tuple.__iter__(value)):
            return value
        parts = [specialise_deep(vm, part) for part in tuple.__iter__(value)]
        return cls(parts) if cls in (tuple, torch.Size) else _alike(value, parts)
    if base is list or base is collections.deque:
        for i, item in enumerate(base.__iter__(value)):
            if _reaches_symbol((item,)):
                vm.heap.note_write(value)
                base.__setitem__(value, i, specialise_deep(vm, item))
    elif base is dict:
        for key, item in dict.items(value):
            if _reaches_symbol((item,)):
                vm.heap.note_write(value)
                dict.__setitem__(value, key, specialise_deep(vm, item))
    elif cls is functools.partial:
        if _reaches_symbol((value,)):
            keywords = {name: specialise_deep(vm, item) for name, item in value.keywords.items()}
            value.__setstate__((value.func, specialise_deep(vm, value.args), keywords, None))
    elif issubclass(cls, types.SimpleNamespace):
        vm.heap.expose(value)
        attributes = instance_dict(value) or {}
        for name, item in attributes.items():
            if _reaches_symbol((item,)):
                vm.heap.note_write(value)
                dict.__setitem__(attributes, name, specialise_deep(vm, item))
    return value


def specialise_hashed(vm: VM, values: Any) -> tuple[Any, ...]:
    """Operands of a C function that hashes what it finds in them, behind a view of a dict too: numbers for symbols."""
    return tuple([specialise_deep(vm, value) for value in values])


def mixes_numbers(left: Any, right: Any, depth: int = 0) -> bool:
    """Whether C code that compares containers meets a symbol and what a symbol knows no answer to: a bool, an enum."""
    classes = {type(left), type(right)}
    if classes & SYMBOLIC:
        return not classes <= _COMPARABLE
    base = _container(type(left))
    if base is None or _container(type(right)) is not base:
        return False
    if depth == _DEPTH:
        return True
    if base is dict:
        return any(mixes_numbers(one, other, depth + 1) for one in dict.values(left) for other in dict.values(right))
    return any(mixes_numbers(one, other, depth + 1)
               for one, other in zip(base.__iter__(left), base.__iter__(right), strict=False))


def _alike(value: Any, parts: list[Any]) -> Any:
    """A tuple of a user-defined class with other items, made without running code of the class."""
    made = tuple.__new__(type(value), parts)
    state, own = instance_dict(value), instance_dict(made)
    if state and own is not None:
        dict.update(own, state)
    return made


def _reaches_symbol(values: Iterable[Any], shown: bool = True) -> bool:
    pending, seen = list(values), set()
    while pending:
        value = pending.pop()
        cls = type(value)
        if cls in SYMBOLIC:
            return True
        base = _container(cls)
        if base is not None:
            if id(value) not in seen:  # a container may hold itself
                seen.add(id(value))
                pending += dict.values(value) if base is dict else base.__iter__(value)
        elif cls is slice:
            pending += (value.start, value.stop, value.step)
        elif cls in _WALKING or shown and cls in _SHOWING:
            parts = gc.get_referents(value)  # tuples among them may have empty places, which no Python code may meet
            pending += gc.get_referents(*[part for part in parts if type(part) is tuple])
            pending += [part for part in parts if type(part) is not tuple]
        elif cls is functools.partial and shown:
            pending += (*value.args, *value.keywords.values())
        elif issubclass(cls, types.SimpleNamespace) and id(value) not in seen:
            seen.add(id(value))
            pending += (instance_dict(value) or {}).values()
    return False


def _container(cls: type) -> Any:
    """Which of C's containers a class is or extends: those that C code looks into."""
    if cls in _KNOWN_CLASSES:
        return _KNOWN_CLASSES[cls]
    return next((base for base in (tuple, list, dict, collections.deque) if issubclass(cls, base)), None)


def concern(vm: VM, values: Any, kwargs: dict[str, Any] | None, shown: bool = False) -> bool:
    """Whether arguments of a C function reach a symbol or a tensor; `shown`: also through views of dicts, for text."""
    for value in values:
        if type(value) in SYMBOLIC or type(value) is FakeTensor:
            return True
    known = vm.recorder.symbols
    return bool(known.definitions or known.numbers or vm.heap.unread_met) and reaches_symbol(values, kwargs, shown)


def reaches_symbol(values: Any, kwargs: Any, shown: bool = False) -> bool:
    return _reaches_symbol(values, shown) or bool(kwargs) and _reaches_symbol(kwargs.values(), shown)


def call(vm: VM, function: object, values: object, kwargs: dict[str, Any] | None) -> Any:
    """The call done on symbols; MISSING where C code needs the numbers."""
    handler = _CALLS.get(id(function))
    return MISSING if handler is None or kwargs else handler(vm, values)


def arguments(vm: VM, row: Any, function: object, values: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The arguments with a number wherever the C function may look at one."""
    if row.takes_key and len(values) > 1:
        values = (values[0], specialise_deep(vm, values[1]), *values[2:])
    if row.stores:
        return values, kwargs
    at = row.pairs_at
    if 0 <= at < len(values) and not issubclass(type(values[at]), dict):
        pairs = [_with_number_for_key(vm, pair) for pair in vm.native(list, (values[at],))]
        values = (*values[:at], pairs, *values[at + 1:])
    deep = row.cls is not NativeClass.PURE_SHELL and not row.copies
    change = (lambda value: specialise_deep(vm, value)) if deep else specialise
    values = tuple([change(value) for value in values])
    if not kwargs or function is dict:  # dict(rows=n) stores what it is given
        return values, kwargs
    return values, {key: change(value) for key, value in kwargs.items()}


def _with_number_for_key(vm: VM, pair: Any) -> Any:
    """A pair that becomes an entry of a dict, whose key is hashed."""
    if type(pair) not in (tuple, list) or len(pair) != 2:
        return pair
    key, item = pair
    return specialise_deep(vm, key.force() if type(key) is Box else key), item


def _number_of(vm: VM, value: Any, slot: str) -> Any:
    if type(value) is not FakeTensor:
        return value
    refuse_patched(vm, slot)
    several = attempt(operator.ne, value.numel(), 1)
    if not is_unbacked(several) and specialise(several):
        raise Raised(ValueError("only one element tensors can be converted to Python scalars"))
    return item_of(vm, value)


def _converting(cls: type, symbol: type, function: Callable[..., Any]) -> Callable[..., Any]:
    """int() or float()."""
    def handler(vm: VM, values: Any) -> Any:
        if len(values) != 1 or type(values[0]) not in _NUMBERS and type(values[0]) is not FakeTensor:
            return MISSING
        value = as_integer(_number_of(vm, values[0], f"__{cls.__name__}__"))
        if type(values[0]) is FakeTensor and cls is float:
            vm.note_conversion(values[0])
        if type(value) is symbol:
            return value
        return arithmetic(vm, function, value) if type(value) in SYMBOLIC else attempt(cls, value)
    return handler


def _to_index(vm: VM, values: Sequence[Any]) -> Any:
    value = index_of(vm, values[0]) if type(values[0]) is FakeTensor else values[0]
    return as_integer(value) if type(value) in (torch.SymInt, torch.SymBool) else MISSING


def _extreme(function: Callable[..., Any], is_better: Callable[..., Any]) -> Callable[..., Any]:
    def handler(vm: VM, values: Any) -> Any:
        items = list(values) if len(values) != 1 else vm.collect(values[0])
        kinds = {python_type(item) for item in items}
        if not items or not kinds <= {int, float} or not any(type(i) in SYMBOLIC for i in items):
            return MISSING
        result = items[0]
        for item in items[1:]:
            if len(kinds) == 1:
                result = arithmetic(vm, function, result, item)
            elif truth(vm, attempt(is_better, item, result)):  # the type of the result depends on it
                result = item
        return result
    return handler


def _folding(function: Callable[..., Any], start: int) -> Callable[..., Any]:
    """sum() or prod()."""
    def handler(vm: VM, values: Sequence[Any]) -> Any:
        result = values[1] if len(values) > 1 else start
        if type(values[0]) not in SEQUENCES or not any(type(item) in SYMBOLIC for item in values[0]) \
                or any(type(item) not in _NUMBERS for item in (*values[0], result)):
            return MISSING
        for item in values[0]:
            result = arithmetic(vm, function, result, item)
        return result
    return handler


def _of_one(compute: Callable[..., Any], kinds: Container[type] = SYMBOLIC) -> Callable[..., Any]:
    """A function of one number that is a symbol of these kinds."""
    return lambda vm, values: compute(vm, values[0]) if len(values) == 1 and type(values[0]) in kinds else MISSING


def _rounding(function: Callable[..., Any]) -> Callable[..., Any]:
    return _of_one(lambda vm, value: arithmetic(vm, function, value) if type(value) is torch.SymFloat
                   else as_integer(value))


def _real(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of all real numbers, as torch's symbols have it."""
    return _of_one(lambda vm, value: arithmetic(vm, function, value), (torch.SymInt, torch.SymFloat))


def _divmod(vm: VM, values: Sequence[Any]) -> Any:
    if any(type(value) not in _NUMBERS for value in values):
        return MISSING
    if float in map(python_type, values):
        return raising(divmod, *map(specialise, values))
    return arithmetic(vm, operator.floordiv, *values), arithmetic(vm, operator.mod, *values)


def _power(vm: VM, values: Sequence[Any]) -> Any:
    if len(values) != 2 or any(type(value) not in _NUMBERS for value in values) or _may_overflow(*values):
        return MISSING
    return arithmetic(vm, operator.pow, *values)


def _may_overflow(base: object, exponent: Any) -> bool:
    """Whether a power may overflow the integers of guards and graphs, or be a fraction."""
    return float not in (python_type(base), python_type(exponent)) \
        and (type(exponent) is not int or not 0 <= exponent <= _LARGEST_EXPONENT)


def _square_root(vm: VM, values: Any) -> Any:
    value = values[0]
    if type(value) not in SYMBOLIC or is_unbacked(value) or truth(vm, attempt(operator.lt, value, 0)):
        return MISSING
    return arithmetic(vm, torch.sym_sqrt if hasattr(torch, "sym_sqrt") else torch._sym_sqrt, value)


def _bisect(left: bool) -> Callable[..., Any]:
    """Where a number belongs among sorted numbers: between which two of them it lies is all that is guarded."""
    def handler(vm: VM, values: Any) -> Missing | int:
        if len(values) != 2 or type(values[0]) not in SEQUENCES or type(values[1]) not in _NUMBERS:
            return MISSING
        vm.heap.expose(values[0])
        if any(type(item) not in _NUMBERS for item in values[0]):
            return MISSING
        low, high = 0, len(values[0])
        while low < high:
            middle = (low + high) // 2
            item, number = values[0][middle], values[1]
            goes_right = truth(vm, attempt(operator.lt if left else operator.le, item, number))
            low, high = (middle + 1, high) if goes_right else (low, middle)
        return low
    return handler


_PRODUCT = _folding(operator.mul, 1)
_CALLS: dict[int, Any] = {
    id(bisect.bisect_left): _bisect(True), id(bisect.bisect_right): _bisect(False),
    id(math.cos): _real(torch._sym_cos), id(math.sin): _real(torch._sym_sin),
    id(math.tanh): _real(torch._sym_tanh), id(math.atan): _real(torch._sym_atan),
    id(int): _converting(int, torch.SymInt, torch.sym_int), id(operator.index): _to_index,
    id(float): _converting(float, torch.SymFloat, torch.sym_float),
    id(abs): _of_one(lambda vm, value: arithmetic(vm, operator.abs, as_integer(value))),
    id(min): _extreme(torch.sym_min, operator.lt), id(max): _extreme(torch.sym_max, operator.gt),
    id(sum): _folding(operator.add, 0),
    id(math.prod): _PRODUCT, id(torch.Size.numel): _PRODUCT, id(divmod): _divmod, id(pow): _power,
    id(math.sqrt): _square_root,
    id(math.floor): _rounding(math.floor), id(math.ceil): _rounding(math.ceil), id(math.trunc): _rounding(math.trunc),
    id(round): _rounding(round),
}


def symbolic_length(vm: VM, value: Any) -> Any:
    """The length of a list from outside, if it is symbolic; MISSING where it is a constant."""
    if type(value) not in _LISTS:
        return MISSING
    tracker = vm.heap.by_standin.get(id(value))
    if tracker is None or tracker.shape is not ShadowKind.LIST or tracker.exposed \
            or not vm.heap.shapes.opens_length(tracker.source):
        return MISSING
    added = len(value) - len(tracker.initial)
    if added < 0 or not all(box.is_current(item) for box, item in zip(tracker.initial, value, strict=False)):
        return MISSING
    source = CallOf(Pinned(len), (tracker.source,))
    if source not in vm.heap.answers:
        vm.heap.answers[source] = vm.recorder.add_number(len(tracker.initial), source)
    return attempt(operator.add, vm.heap.answers[source], added)


def knows_item(vm: VM, value: Any, index: int) -> bool:
    """Whether an item's place in a list from outside does not depend on how long the list is."""
    tracker = vm.heap.by_standin.get(id(value))
    if tracker is None or tracker.shape is not ShadowKind.LIST:
        return True
    held = len(tracker.initial)
    if index >= 0:
        return index < held and len(value) >= held
    return held - len(value) <= index and all(
        box.is_current(item) for box, item in zip(tracker.initial, value, strict=False))
