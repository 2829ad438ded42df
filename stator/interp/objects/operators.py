"""Operators as CPython defines them: `a + b` calls the types of both sides, in the right order.

    binary(vm, "+", a, b)   scalars at once; tensors recorded; Python dunders interpreted; C slots run natively
"""

from __future__ import annotations

import operator
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from numpy import ndarray
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.code.intrinsics import INVERTED_BOOL
from stator.graph.values.branch_guards import ahead_of_scalar
from stator.guards.guard import Kind
from stator.heap.identity_facts import note_asked, note_compared
from stator.heap.tracker import ShadowKind
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.arrays.native_numpy import number_of, refuse_mixture, run_on_arrays
from stator.interp.arrays.traced_numpy import NUMPY_TYPES, concerns, run_traced
from stator.interp.backward_ahead import truth_ahead
from stator.interp.frame import Continuation, Frame, Raised, raising
from stator.interp.iteration import is_to_be_read
from stator.interp.lookup import MISSING, ancestors, find
from stator.interp.numbers import symbolic_numbers
from stator.interp.numbers.symbolic_numbers import symbolic_length
from stator.interp.objects.attributes import tensor_class
from stator.interp.objects.descriptors import call_special
from stator.interp.objects.object_texts import note_addresses
from stator.interp.objects.process_facts import with_originals
from stator.interp.rule_registry import RULES
from stator.interp.services import VM
from stator.interp.torch_function_protocol import only_defaults, own_method, refuse_patched
from stator.shapes.environment import UNKNOWN
from stator.shapes.symbolic_values import GRAPH_SCALARS, SYMBOLIC, UNREAD, python_type, specialise, unread

SCALARS = frozenset({int, float, bool, str, complex, bytes, type(None)})
NUMBERS = frozenset({int, float, bool, complex})
_SETS = (set, frozenset)
_NO_FACTORS = frozenset({str, bytes, list, tuple, dict, set, type(None)})
_HASHING_VIEWS = symbolic_numbers.KEY_VIEWS | symbolic_numbers.ITEM_VIEWS

# symbol -> (operator function, in-place function, dunder stem)
BINARY: dict[str, tuple[Any, Any, str]] = {
    symbol: (getattr(operator, f"__{stem}__"), getattr(operator, f"__i{stem}__"), stem)
    for symbol, stem in zip("+ - * / // % ** @ << >> & | ^".split(), (
        "add sub mul truediv floordiv mod pow matmul lshift rshift and or xor").split(), strict=True)}
COMPARE: dict[str, tuple[Any, str, str]] = {
    "<": (operator.lt, "__lt__", "__gt__"), "<=": (operator.le, "__le__", "__ge__"),
    "==": (operator.eq, "__eq__", "__eq__"), "!=": (operator.ne, "__ne__", "__ne__"),
    ">": (operator.gt, "__gt__", "__lt__"), ">=": (operator.ge, "__ge__", "__le__"),
}
UNARY: dict[str, tuple[Any, str]] = {
    "-": (operator.neg, "__neg__"), "+": (operator.pos, "__pos__"), "~": (operator.invert, "__invert__"),
}
_PLAIN = frozenset({int, float, bool}) | SYMBOLIC


class TryNext(Continuation):
    """A dunder that may answer NotImplemented: then the next candidate is called."""

    __slots__ = ("candidates", "fail", "cont", "compares")

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        if value is not NotImplemented:
            return vm.give(value, self.cont)
        attempt(vm, self.candidates, self.fail, self.cont, self.compares)


def attempt(vm: VM, candidates: list[Any], fail: Any, cont: object, compares: bool = False) -> None:
    """`compares`: a method whose descriptor raises is none."""
    if not candidates:
        return fail()
    (method, args), *rest = candidates
    if compares and type(method) is property:
        try:
            bound = vm.call_sync(method.fget, args[:1])
        except Raised:
            return attempt(vm, rest, fail, cont, compares)
        return vm.call(bound, args[1:], {}, TryNext(rest, fail, cont, compares))
    call_slot(vm, method, args, TryNext(rest, fail, cont, compares))


def call_slot(vm: VM, method: object, args: Any, cont: object) -> None:
    """Call what a class holds under the name of a special method: a function, a C slot, or a descriptor to bind."""
    if type(method) is types.FunctionType:
        return vm.call_function(method, args, None, cont)
    if type(method) is types.WrapperDescriptorType or type(method) is types.MethodDescriptorType:
        for value in args:
            vm.heap.expose_deep(value)
        return vm.call(method, args, {}, cont)
    call_special(vm, method, args[0], args[1:], cont)


def is_python_level(method: object) -> bool:
    return method is not MISSING and type(method) is not types.WrapperDescriptorType \
        and type(method) is not types.MethodDescriptorType


def binary(vm: VM, symbol: str, left: Any, right: Any, inplace: bool, cont: object = None) -> None:
    left_type, right_type = type(left), type(right)
    function, inplace_function, stem = BINARY[symbol]
    # `n += tensor` makes a new tensor, and so does `x @= y`: a graph would rebind the name of the left side.
    tensor_function = inplace_function if inplace and left_type is FakeTensor and symbol != "@" else function
    if left_type in SCALARS and right_type in SCALARS:
        return vm.give(raising(inplace_function if inplace else function, left, right), cont)
    on_left = left_type is FakeTensor
    if on_left or right_type is FakeTensor:
        vm.recorder.slots_used.add((stem, on_left, inplace))
        if vm.modes.active or vm.recorder.classes or vm.modes.patched:
            own = subclass_candidates(vm, stem, left, right, inplace)
            if own:
                return attempt(vm, own, lambda: _refuse_operands(symbol, left, right, inplace), cont)
            if vm.modes.active or vm.concerned((left, right)):
                return vm.give(vm.ask_modes(inplace_function if inplace else function, (left, right)), cont)
    if left_type is FakeTensor and (right_type is FakeTensor or right_type in NUMBERS) \
            or right_type is FakeTensor and left_type in NUMBERS:
        return vm.give(vm.torch_call(tensor_function, (left, right), None, asked=True), cont)
    if (left_type in NUMPY_TYPES or right_type in NUMPY_TYPES) and concerns(vm, (left, right)):
        return numpy_binary(vm, inplace_function if inplace else function, left, right, cont)
    if left_type in SYMBOLIC or right_type in SYMBOLIC:
        value = symbolic_numbers.binary(vm, tensor_function, left, right)
        if value is MISSING:
            return binary(vm, symbol, specialise(left), specialise(right), inplace, cont)
        return vm.give(value, cont)
    candidates = binary_candidates(vm, stem, left, right, inplace)
    if not any(is_python_level(method) for method, _ in candidates):
        for value in (left, right):
            vm.heap.expose_deep(value) if symbol == "%" else vm.heap.expose(value)
        if symbol == "%" or symbol == "|" and is_a(left, dict) and not is_a(right, dict):
            # What is formatted, or pairs whose keys are hashed.
            right = symbolic_numbers.specialise_deep(vm, right)
        if symbol in "&|-^" and (left_type in _HASHING_VIEWS or right_type in _HASHING_VIEWS):
            left, right = symbolic_numbers.specialise_hashed(vm, [
                vm.collect(value)
                if is_to_be_read(vm, value, set) and type(value) not in symbolic_numbers.ITEM_VIEWS else value
                for value in (left, right)])
        if symbol == "%" and is_a(left, (str, bytes, bytearray)):
            note_addresses(vm, str, (left, right))
            note_asked(vm.heap, right)
        if left_type is FakeTensor or right_type is FakeTensor:
            refuse_mixture(left, right)
            if symbol == "*":
                refuse_patched(vm, "__index__")  # by which a sequence is repeated
            if inplace and symbol == "@" and {left_type, right_type} & _NO_FACTORS:
                return _refuse_operands(symbol, left, right, inplace)
            return vm.give(vm.torch_call(tensor_function, (left, right), None, asked=True), cont)
        refuse_opaque(vm, *[each for each, other in ((left, right), (right, left)) if not (
            is_a(other, (set, frozenset)) and type(each) is types.GeneratorType)])
        for method, args in candidates:
            vm.admit_slot(method, args)
        made = run_operator(vm, inplace_function if inplace else function, left, right)
        return vm.give(with_originals(vm, made) if symbol == "%" else made, cont)

    attempt(vm, candidates, lambda: _refuse_operands(symbol, left, right, inplace), cont)


def numpy_binary(vm: VM, function: object, left: object, right: object, cont: object) -> None:
    """An operator, an array or scalar that the graph holds among its operands."""
    kinds = {type(left), type(right)}
    if FakeTensor in kinds and not kinds.isdisjoint(GRAPH_SCALARS):
        numbers = [number_of(vm, value) if type(value) in GRAPH_SCALARS else value for value in (left, right)]
        return vm.give(vm.torch_call(function, tuple(numbers), None), cont)  # torch takes a scalar for a number
    if type(left) is FakeTensor or type(right) is FakeTensor:
        raise Break("SB003", "an operator between a tensor and an array")
    vm.give(run_traced(vm, function, (left, right)), cont)


def _refuse_operands(symbol: str, left: object, right: object, inplace: bool) -> None:
    shown = f"{symbol}=" if inplace else symbol
    if symbol == "**":
        shown = "** or pow()" if not inplace else "**="
    raise Raised(TypeError(f"unsupported operand type(s) for {shown}: "
                           f"'{name_in_errors(type(left))}' and '{name_in_errors(type(right))}'"))


def subclass_candidates(vm: VM, stem: str, left: object, right: object, inplace: bool) -> list[Any]:
    """The methods to call where a tensor subclass has one of its own for the operator; none where it has not."""
    names = (f"__i{stem}__", f"__{stem}__") if inplace else (f"__{stem}__",)
    if not any(own_method(vm, left, name) for name in names) and own_method(vm, right, f"__r{stem}__") is None:
        return []
    return binary_candidates(vm, stem, left, right, inplace)


def seen_class(vm: VM, value: object) -> type:
    return tensor_class(vm, value) if type(value) is FakeTensor else type(value)


def refuse_opaque(vm: VM, *values: object) -> None:
    for value in values:
        tracker = vm.heap.by_standin.get(id(value))
        if tracker is not None and tracker.shape is ShadowKind.OPAQUE:
            if not vm.is_constant_object(value):
                if (stop := vm.heap.refused.get(id(value))) is not None and is_a(value, torch.Tensor):
                    raise Break(stop.code, stop.detail)
                raise Break("SB005", f"an operator on a {type(value).__name__} from outside")
            vm.heap.guard(tracker.source, Kind.ID, value)


def binary_candidates(vm: VM, stem: str, left: object, right: object, inplace: bool) -> list[Any]:
    """The methods CPython would call, in order, with their arguments."""
    left_type, right_type = seen_class(vm, left), seen_class(vm, right)
    found: list[Any] = [(find(vm, left_type, f"__i{stem}__"), (left, right))] if inplace else []
    pair: list[Any] = [(find(vm, left_type, f"__{stem}__"), (left, right))]
    reflected = find(vm, right_type, f"__r{stem}__") if right_type is not left_type else MISSING
    if reflected is not MISSING:
        overrides = left_type in ancestors(vm, right_type) and reflected is not find(vm, left_type, f"__r{stem}__")
        pair.insert(0 if overrides else 1, (reflected, (right, left)))
    found = [each for each in (*found, *pair) if each[0] is not MISSING]
    if stem in ("add", "mul"):
        found.sort(key=lambda candidate: _joins_sequences(candidate[0]))  # `[1] + obj` asks obj.__radd__ first
    return found


def _joins_sequences(method: object) -> bool:
    """Whether a slot concatenates or repeats: CPython tries those after the operators of both numbers."""
    return type(method) is types.WrapperDescriptorType and not hasattr(method.__objclass__, "__radd__")


def compare(vm: VM, symbol: str, left: Any, right: Any, cont: object = None) -> None:
    left_type, right_type = type(left), type(right)
    function, name, swapped = COMPARE[symbol]
    if left_type in SCALARS and right_type in SCALARS:
        return vm.give(raising(function, left, right), cont)
    of_tensor, own = left_type is FakeTensor or right_type is FakeTensor, False
    if of_tensor:
        vm.recorder.slots_used.add(name if left_type is FakeTensor else swapped)
        if vm.modes.active or vm.recorder.classes or vm.modes.patched:
            own = own_method(vm, left, name) is not None or own_method(vm, right, swapped) is not None
            if not own and (vm.modes.active or vm.concerned((left, right))):
                return vm.give(vm.ask_modes(function, (left, right)), cont)
    if own:
        left_type, right_type = seen_class(vm, left), seen_class(vm, right)
    elif left_type is FakeTensor and (right_type is FakeTensor or right_type in NUMBERS) \
            or right_type is FakeTensor and left_type in NUMBERS:
        return vm.give(vm.torch_call(function, (left, right), None, asked=True), cont)
    elif (left_type in NUMPY_TYPES or right_type in NUMPY_TYPES) and concerns(vm, (left, right)):
        return numpy_binary(vm, function, left, right, cont)
    elif left_type in SYMBOLIC or right_type in SYMBOLIC:
        value = symbolic_numbers.compare(vm, function, left, right)
        if value is MISSING:
            return compare(vm, symbol, specialise(left), specialise(right), cont)
        return vm.give(value, cont)
    if left_type is types.CellType and right_type is types.CellType:  # their contents may be anything
        return RULES[id(vars(types.CellType)[name])](vm, (left, right), {}, cont)
    candidates = [(find(vm, left_type, name), (left, right)), (find(vm, right_type, swapped), (right, left))]
    if right_type is not left_type and left_type in ancestors(vm, right_type):
        candidates.reverse()
    candidates = [each for each in candidates if each[0] is not MISSING]
    asked = [method for method, _ in candidates]
    if symbol == "!=" and not any(map(is_python_level, asked)):  # object.__ne__ asks __eq__
        asked = [find(vm, left_type, "__eq__"), find(vm, right_type, "__eq__")]
    if not own and not any(map(is_python_level, asked)):
        vm.heap.expose_deep(left)
        vm.heap.expose_deep(right)
        if of_tensor:  # against None, a string, a list: torch decides (usually NotImplemented, then identity)
            refuse_mixture(left, right)
            return vm.give(vm.torch_call(function, (left, right), None, asked=True), cont)
        guard_distinct(vm, left, right)
        if left_type in symbolic_numbers.ITEM_VIEWS and is_a(right, _SETS) \
                or right_type in symbolic_numbers.ITEM_VIEWS and is_a(left, _SETS) \
                or symbolic_numbers.concern(vm, (left, right), None) and symbolic_numbers.mixes_numbers(left, right):
            left, right = symbolic_numbers.specialise_hashed(vm, (left, right))
        for method, args in candidates:
            vm.admit_slot(method, args)
        return vm.give(run_operator(vm, function, left, right), cont)

    def fail() -> None:
        if symbol in ("==", "!="):
            if not own:
                guard_distinct(vm, left, right)
            return vm.give((left is right) == (symbol == "=="), cont)
        raise Raised(TypeError(f"'{symbol}' not supported between instances of '{name_in_errors(left_type)}' "
                               f"and '{name_in_errors(right_type)}'"))
    attempt(vm, candidates, fail, cont, compares=True)


def identical(vm: VM, left: object, right: object) -> bool:
    """`left is right`, as the user's objects are."""
    if type(left) in UNREAD or type(right) in UNREAD:
        if left is right or python_type(left) is not python_type(right):
            return left is right
        raise unread(left if type(left) in UNREAD else right, "the identity")
    if type(left) in SYMBOLIC and type(right) in _PLAIN or type(right) in SYMBOLIC and type(left) in _PLAIN:
        left, right = specialise(left), specialise(right)
    if left is right:
        vm.heap.constants.guard_one(left)
        return True
    guard_distinct(vm, left, right)
    if type(left) is type(right):
        vm.heap.constants.guard_two(left, right)
    return False


def guard_distinct(vm: VM, left: object, right: object) -> None:
    if type(left) is types.MethodType and type(right) is types.MethodType:
        guard_distinct(vm, left.__self__, right.__self__)
    first, second = vm.heap.by_standin.get(id(left)), vm.heap.by_standin.get(id(right))
    if first is not None and second is not None and first is not second:
        vm.heap.guard(first.source, Kind.NOT_ALIAS, second.source)
    if type(left) is types.FunctionType and type(right) is types.FunctionType:
        note_compared(vm.heap, (left, right))
    if type(left) is FakeTensor and type(right) is FakeTensor and vm.recorder.uncertain.storages:
        vm.recorder.uncertain.check("is_set_to", False, (left, right), {})


def unary(vm: VM, symbol: str, value: Any, cont: object = None) -> None:
    function, name = UNARY[symbol]
    cls = type(value)
    if cls in SCALARS:
        if cls is bool and symbol == "~" and INVERTED_BOOL:
            vm.call_sync(warnings.warn, (INVERTED_BOOL, DeprecationWarning))
            value = int(value)
        return vm.give(raising(function, value), cont)
    if cls is FakeTensor:
        if (own := own_method(vm, value, name)) is not None:
            return call_slot(vm, own, (value,), cont)
        if vm.modes.active or vm.concerned((value,)):
            return vm.give(vm.ask_modes(function, (value,)), cont)
        return vm.give(vm.torch_call(function, (value,), None), cont)
    if cls in NUMPY_TYPES and concerns(vm, (value,)):
        return vm.give(run_traced(vm, function, (value,)), cont)
    if cls in SYMBOLIC:
        return vm.give(symbolic_numbers.arithmetic(vm, function, value), cont)
    method = find(vm, cls, name)
    if is_python_level(method):
        return call_slot(vm, method, (value,), cont)
    refuse_opaque(vm, value)
    vm.admit_slot(method, (value,))
    vm.give(run_on_arrays(vm, function, (value,)) if cls is ndarray else vm.native(function, (value,)), cont)


def truth(vm: VM, value: Any) -> bool:
    """bool(value); a tensor's truth is data."""
    cls = type(value)
    if cls is bool:
        return value
    if value is NotImplemented:
        raise Break("SB015", "the truth of NotImplemented, of which Python warns")
    if cls in SCALARS:
        return bool(value)
    if cls is FakeTensor:
        return tensor_truth(vm, value)
    if cls in GRAPH_SCALARS:
        return tensor_truth(vm, value.tensor)
    if cls in SYMBOLIC:
        return symbolic_numbers.truth(vm, value)
    method = find(vm, cls, "__bool__")
    if is_python_level(method):
        result = _slot_sync(vm, method, value)
        if type(result) is torch.SymBool:
            return symbolic_numbers.truth(vm, result)
        if type(result) is not bool:
            raise Raised(TypeError(f"__bool__ should return bool, returned {type(result).__name__}"))
        return result
    if method is MISSING:
        method = find(vm, cls, "__len__")
        if is_python_level(method):
            return check_length(_slot_sync(vm, method, value)) != 0
    length = symbolic_length(vm, value)
    if length is not MISSING:
        return truth(vm, length)
    if method is not MISSING:
        refuse_opaque(vm, value)
        vm.admit_slot(method, (value,))
    vm.heap.expose_length(value)
    return run_on_arrays(vm, bool, (value,)) if cls is ndarray else vm.native(bool, (value,))


def tensor_truth(vm: VM, value: Any) -> bool:
    if vm.modes.active:
        raise Break("SB002", "the truth of a tensor while a mode sees every operation")
    refuse_patched(vm, "__bool__")
    if vm.recorder.classes and id(value) in vm.recorder.classes:
        for name in ("__bool__", "__len__"):
            if own_method(vm, value, name) is not None:
                raise Break("SB017", f"the truth of a tensor whose class has its own {name}")
        if vm.concerned((value,)) and not only_defaults(vm, [value]):
            answer = vm.ask_modes(bool, (value,))
            return symbolic_numbers.truth(vm, answer) if type(answer) is torch.SymBool else answer
    count = value.numel()
    several = count != 1
    if symbolic_numbers.truth(vm, several) if type(several) is torch.SymBool else several:
        some = count != 0
        text = "more than one value" if type(some) is torch.SymBool or some else "no values"
        raise Raised(RuntimeError(f"Boolean value of Tensor with {text} is ambiguous"))
    known = vm.recorder.items.truth_of(value)
    if known is None:
        known = vm.recorder.known.of_scalar(value)
    if known is UNKNOWN:
        known = truth_ahead(vm, value)
    if known is UNKNOWN and (known := ahead_of_scalar(vm.recorder.known, value)) is UNKNOWN:
        raise Break("SB002", "the truth of a tensor", untouched=not vm.policy.capture_control_flow)
    return bool(known)


def _slot_sync(vm: VM, method: object, value: object) -> Any:
    return vm.sync(lambda: call_slot(vm, method, (value,), None))


def check_length(result: object) -> int:
    return raising(len, _Length(result))


class LengthOf(Continuation):
    """len(): `__len__` must answer with a non-negative int."""

    __slots__ = ("cont",)

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        vm.give(check_length(value), self.cont)


class _Length:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __len__(self) -> Any:
        return self.value


def run_operator(vm: VM, function: Callable[..., Any], left: object, right: object) -> Any:
    if type(left) is ndarray or type(right) is ndarray:
        return run_on_arrays(vm, function, (left, right))
    return vm.native(function, (left, right))
