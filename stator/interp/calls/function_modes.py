"""TorchFunctionModes of the program.   with Mode(): torch.sin(x)  ->  Mode.__torch_function__, interpreted

The operation is begun for real, on fakes: torch decides the function, types and arguments of the handler (`1 - x` is
`Tensor.__rsub__`), and the recorder's own mode passes them to the interpreter.  A difference from eager is a break,
which turns this strategy off: then entering a mode breaks.  Classes of arguments are called alike (see overrides).
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.overrides
from torch._subclasses.fake_tensor import FakeTensor

from stator import _hook
from stator.breaks import Break
from stator.host.value_kinds import is_a, module_of
from stator.interp.calls.allowed_calls import C_CALLABLES
from stator.interp.frame import Continuation, Raised
from stator.interp.objects.attributes import tensor_class
from stator.interp.objects.operators import LengthOf, call_slot
from stator.interp.rule_registry import RULES, UNASKED
from stator.interp.services import VM
from stator.interp.torch_function_protocol import ask_objects, concerned, overriding, own_method
from stator.native.rows_declare import ROWS
from stator.native.table import receiver_split
from stator.native.torch_ops import torch_leaf
from stator.source import Pinned

C: Any = torch._C
_OVERRIDABLE = frozenset(id(each) for group in torch.overrides.get_overridable_functions().values() for each in group)
_ASKED_OF_TENSORS = frozenset(map(id, (len, abs, pow, *vars(operator).values()))) - {id(operator.is_),
                                                                                   id(operator.is_not)}
_OPERATORS = frozenset(map(id, vars(operator).values())) - {id(operator.index), id(operator.truth)}


def refuse(what: str) -> Break:
    return Break("SB005", f"{what} while a mode sees every operation")


def take(vm: VM, fn: Any, args: Any, kwargs: Any, cont: object) -> bool:
    """Make a call that the innermost mode handles; False where the call is none of its business."""
    cls = type(fn)
    if cls is types.MethodType:
        return False
    descriptor, receiver = receiver_split(fn) if cls in C_CALLABLES else (fn, None)
    asks = _asks_modes(descriptor)
    if torch_leaf(descriptor) or torch_leaf(fn) or asks \
            or cls is types.MethodWrapperType and torch_leaf(receiver) and fn.__name__ == "__get__" \
            or id(descriptor) in _ASKED_OF_TENSORS and type(args[0] if args else None) is FakeTensor:
        vm.give(perform(vm, fn, args, kwargs), cont)
        return True
    if asks is False:
        return False
    if (id(descriptor) in RULES or id(fn) in RULES) and _is_of_torch(descriptor):
        raise refuse(f"{getattr(descriptor, '__name__', descriptor)}")
    if is_a(fn, type) and (issubclass(fn, torch.Tensor) or is_a(fn, type(torch.FloatTensor))) \
            or is_a(fn, torch._ops.HigherOrderOperator):
        raise refuse(f"{getattr(fn, '__name__', fn)}()")
    if (cls in C_CALLABLES or is_a(fn, type) and module_of(fn) == "builtins") \
            and any(type(value) is FakeTensor for value in (receiver, *args, *(kwargs or {}).values())):
        raise refuse(f"{getattr(descriptor, '__name__', descriptor)}() of a tensor")
    return False


def take_subclass(vm: VM, fn: object, args: Any, kwargs: Any, cont: Continuation | None) -> bool:
    """Make a call that the interpreter handles itself, and which the class of a tensor handles."""
    if type(fn) is types.MethodType:
        return False
    descriptor, receiver = receiver_split(fn) if type(fn) in C_CALLABLES else (fn, None)
    row = ROWS.get(id(descriptor))
    slot = "" if row is None else row.slot
    if slot and args and not kwargs and (own := own_method(vm, args[0], slot)) is not None:
        call_slot(vm, own, args, cont if slot != "__len__" else LengthOf(cont))
        return True
    if vm.modes.patched:
        refuse_c_code(vm, fn, descriptor, (receiver, *args), kwargs)
    if id(descriptor) not in _OVERRIDABLE and not slot or not concerned(vm, (receiver, *args), kwargs):
        return False
    vm.give(perform(vm, fn, args, kwargs), cont)
    return True


def refuse_c_code(vm: VM, fn: Any, descriptor: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Break at C code that gets a tensor some special method of which was replaced."""
    if torch_leaf(descriptor) or torch_leaf(fn) or _asks_modes(descriptor) is False or id(descriptor) in _OPERATORS \
            or not (type(fn) in C_CALLABLES or is_a(fn, type) and module_of(fn) == "builtins"):
        return
    for value in (*args, *kwargs.values()) if kwargs else args:
        for each in value if type(value) in (list, tuple) else (value,):
            if type(each) is FakeTensor:
                raise Break("SB005", f"{getattr(descriptor, '__name__', descriptor)}() of a tensor: "
                            f"Tensor.{min(vm.modes.patched)} was replaced")


def perform(vm: VM, fn: Any, args: Any, kwargs: Any = None) -> Any:
    """Begin the operation for real; torch asks the recorder's mode, which asks the program's."""
    recorder = vm.recorder
    if recorder.scope.enclosing is not None:
        raise refuse("an inner graph")
    for value in (*args, *kwargs.values()) if kwargs else args:
        vm.heap.expose_deep(value)
    before, recorder.region.asking = recorder.region.asking, True
    token = _hook.pause()
    try:
        return fn(*args) if kwargs is None else fn(*args, **kwargs)  # a handler sees the difference
    except Exception as error:
        if vm.pending is not None:
            raise vm.pending from None
        raise Raised(error) from None
    finally:
        _hook.resume(token)
        recorder.region.asking = before


def ask(vm: VM, func: Any, kinds: object, args: Any, rest: tuple[Any, ...]) -> Any:
    """The answer to torch's question: of the innermost mode, else of the classes of the arguments, else torch's own."""
    recorder = vm.recorder
    before, recorder.region.asking = recorder.region.asking, False
    given = (*args, *(rest[0].values() if rest and rest[0] else ()))
    try:
        with recorder.mode:  # torch took it off in order to ask it
            answer = _ask_mode(vm, func, kinds, args, rest, given) if vm.modes.active else NotImplemented
            if answer is NotImplemented:
                objects = overriding(vm, given)
                if not objects and not vm.modes.active:  # inside a function of torch: an operation on other tensors
                    return vm.torch_call(func, args, rest[0] if rest else None)
                answer = ask_objects(vm, func, args, rest, objects)
    except Raised as raised:
        raise raised.exc from None
    finally:
        recorder.region.asking = before
    if answer is NotImplemented:
        raise Break("SB005", "an answer NotImplemented to what torch asks")
    return answer


def _ask_mode(vm: VM, func: Callable[..., Any], kinds: object, args: tuple[Any, ...], rest: tuple[Any, ...],
              given: object) -> Any:
    """The answer of the innermost mode, which is off while its handler runs."""
    before, floor = list(vm.modes.active), vm.modes.kept
    mode = vm.modes.active.pop()
    vm.modes.kept, vm.modes.handling = len(vm.modes.active), vm.modes.handling + 1
    if type(func) is types.FunctionType and vm.heap.sources.get(id(func)) is None and id(func) not in vm.fresh:
        vm.heap.sources[id(func)] = Pinned(func)
    try:
        handler = vm.sync(lambda: vm.load_attr(mode, "__torch_function__"))
        answer = vm.call_sync(handler, (func, _seen_types(vm, func, kinds, given), args, *rest))
        balanced = len(vm.modes.active) == vm.modes.kept
    finally:
        vm.modes.kept, vm.modes.handling = floor, vm.modes.handling - 1
        vm.modes.active[:] = before
    if not balanced:
        raise refuse("a handler that leaves a mode on")
    return answer


def _seen_types(vm: VM, func: Callable[..., Any], kinds: Any, given: Any) -> tuple[type, ...]:
    """Types as torch names them for real tensors; functions written in Python leave out those of parameters."""
    tensors = [value for item in given for value in (item if type(item) in (list, tuple) else (item,))
               if type(value) is FakeTensor]
    classes = dict.fromkeys(tensor_class(vm, value) for value in tensors)
    if type(func) is types.FunctionType:
        return tuple(cls for cls in classes if torch.nn.Parameter not in cls.__mro__)
    if FakeTensor not in kinds:
        return tuple(kinds) + tuple(cls for cls in classes if cls in vm.recorder.classes.values() and cls not in kinds)
    return tuple(classes)


def _asks_modes(descriptor: object) -> bool | None:
    """Whether torch calls a mode for a function; None where that depends on its arguments."""
    row = ROWS.get(id(descriptor))
    return False if id(descriptor) in UNASKED else None if row is None else row.asks_modes


def _is_of_torch(fn: object) -> bool:
    owner = getattr(fn, "__objclass__", fn)
    return (getattr(owner, "__module__", None) or "").partition(".")[0] in ("torch", "stator")
