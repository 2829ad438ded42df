"""The call protocol.   callable, arguments  ->  an interpreted frame, a recorded torch call, or a listed C call

As in CPython: functions, bound methods, classes (metaclass `__call__`, `__new__`, `__init__`), instances with
`__call__`, and C callables, which run only with a row in the native table or a rule.
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator import _core
from stator.breaks import Break
from stator.code.decode import decode
from stator.errors import describe_callable
from stator.graph.analysis.mutation import is_torchs, may_write_first
from stator.guards.guard import Kind
from stator.heap.raw_access import CONSTANT_TYPES
from stator.host.value_kinds import is_a, mro_of
from stator.interp.arrays.native_numpy import prepared, with_numbers
from stator.interp.calls import allowed_calls, composite_kernels, function_modes, torch_arguments
from stator.interp.calls.instantiation import call_class
from stator.interp.calls.native_calls import function_defaults, keyword_default
from stator.interp.calls.torch_arguments import ATTENTION, guard_kernels, plain_arguments
from stator.interp.frame import UNBOUND, Frame, Raised
from stator.interp.lookup import MISSING, find, guard_refused, is_mutable_class
from stator.interp.machine import Thunk, program_of
from stator.interp.objects.attributes import load_attr
from stator.interp.objects.descriptors import adopt_entry
from stator.interp.objects.object_texts import guard_names, not_callable
from stator.interp.rule_registry import CODE_RULES, RULES, TAKES_GRAPH_SCALARS, TAKES_UNREAD
from stator.interp.services import VM
from stator.interp.tensors import tensor_bookkeeping
from stator.interp.tensors.tensor_copies import copied_by_memo
from stator.interp.torch_function_protocol import PLAIN as PLAIN_ARGUMENTS
from stator.interp.torch_function_protocol import finds_patches, only_defaults, overriding
from stator.native.rows_declare import INSTANCE_METHOD
from stator.native.torch_ops import torch_leaf
from stator.settings import marks, torch_marks
from stator.shapes.symbolic_values import GRAPH_SCALARS, UNREAD, DeferredText, unread
from stator.source import Attr, Index, Pinned

_VALUE_TYPES = (torch.Tensor, int, float, str, list, tuple, dict, set, slice, torch.SymInt, torch.SymFloat,
                torch.SymBool, torch.Generator, torch._C._SDPBackend)
_OF_SEQUENCES = ("__len__", "__getitem__", "__iter__", "__getattr__")
_OF_INDEXED_NUMBERS = ("__getitem__", "__getattr__")  # a number is a sequence to torch only if it can be indexed
_VARARGS, _VARKEYWORDS = 0x04, 0x08


def call(vm: VM, fn: Any, args: Any, kwargs: dict[str, Any] | None = None, cont: Any = None) -> None:
    """Call `fn`; its result reaches the current frame's stack, or `cont`, now or when its frame returns."""
    cls = type(fn)
    if vm.heap.unread_met or vm.heap.arrays.backed:
        args, kwargs = prepared(vm, fn, args, kwargs)
        refuse_unread(fn, args, kwargs)
    if vm.modes.active and function_modes.take(vm, fn, args, kwargs, cont):
        return
    if (vm.recorder.classes or vm.modes.patched) and function_modes.take_subclass(vm, fn, args, kwargs, cont):
        return
    if cls is types.FunctionType:
        return vm.call_function(fn, args, kwargs, cont)
    if cls is types.MethodType:
        return vm.call(fn.__func__, (fn.__self__, *args), kwargs, cont)
    found = RULES.get(id(fn))
    if found is not None:
        return found(vm, args, kwargs or {}, cont)
    if is_a(fn, type):
        return call_class(vm, fn, args, kwargs, cont)
    if cls in allowed_calls.C_CALLABLES:
        return vm.call_native(fn, args, kwargs, cont)
    if cls is functools.partial:
        return vm.call(fn.func, (*fn.args, *args), merged_keywords(fn, kwargs), cont)
    if cls is _core.CompiledFunction:  # a compiled function inside a trace is simply part of it
        if id(fn) not in vm.functions.compiled_inside:
            vm.guard_identity(fn)
        prefix = [vm.heap.adopt(value, Pinned(value)) for value in fn.prefix_args or ()]
        return vm.call(fn.fn, (*prefix, *args), kwargs, cont)
    if torch_leaf(fn):
        if cls in composite_kernels.OPERATORS and composite_kernels.call_composite(vm, fn, args, kwargs, cont):
            return None
        return vm.give(vm.torch_call(fn, args, kwargs, asked=True), cont)
    if torch._ops.HigherOrderOperator in mro_of(cls):  # its own code looks at dispatch keys, which fakes do not have
        raise Break("SB016", f"the operator {fn.name()}, which takes functions")
    if (marked := vm.heap.original_of(fn)) is not fn and marks.allowed_in_graph(marked) \
            and type(inspect.getattr_static(marked, "__name__", None)) is str:  # nodes are named after them
        return allowed_calls.call_allowed(vm, vm.guard_identity(fn), args, kwargs, cont)
    method = find(vm, cls, "__call__")
    if method is MISSING:
        raise not_callable(vm, fn)
    if type(method) is types.FunctionType:
        if is_a(fn, torch.nn.Module):
            if vm.replay is not None and not vm.modes.active and not vm.recorder.classes:
                return vm.replay.call(method, fn, args, kwargs, cont)
            vm.module_calls.enter(vm, method, fn, args, kwargs, cont)
            return None
        return vm.call_function(method, (fn, *args), kwargs, cont)
    if type(method) is types.WrapperDescriptorType:
        return vm.call_native(fn, args, kwargs, cont)
    if type(method) is INSTANCE_METHOD:  # its function has the rule or row
        return vm.call(method.__func__, (fn, *args), kwargs, cont)  # type: ignore[attr-defined]
    found = RULES.get(id(method))
    if found is not None and type(method) is not types.BuiltinFunctionType:  # which is not bound
        return found(vm, (fn, *args), kwargs or {}, cont)
    vm.call(vm.sync(lambda: _bind_call(vm, method, fn, cls)), args, kwargs, cont)


def call_function(vm: VM, fn: types.FunctionType, args: Any, kwargs: Any, cont: Any) -> None:
    if vm.modes.active and function_modes.take(vm, fn, args, kwargs, cont):
        return
    if (vm.recorder.classes or vm.modes.patched) and function_modes.take_subclass(vm, fn, args, kwargs, cont):
        return
    found = RULES.get(id(fn))
    if found is not None:
        return found(vm, args, kwargs or {}, cont)
    if torch_leaf(fn) and takes_values(args, kwargs) and not finds_patches(vm, fn):
        return vm.give(vm.torch_call(fn, args, kwargs, asked=True), cont)
    found = CODE_RULES.get(id(fn.__code__))
    if found is not None:
        return found(vm, cont, fn, *args, **(kwargs or {}))
    if allowed_calls.is_marked(fn) and id(fn) not in vm.fresh:
        return vm.call_marked(fn, args, kwargs, cont)
    if vm.residual.copy_memos and not is_torchs(fn) and fn.__globals__ is not vars(copy) \
            and any(id(each) in vm.residual.copy_memos for each in args):
        raise copied_by_memo("copy.deepcopy of tensors, whose memo the program may read")
    vm.push(vm.frame_for(fn, args, kwargs), cont)


def frame_for(vm: VM, fn: types.FunctionType, args: Any, kwargs: Any) -> Frame:
    """A new frame of `fn`, its arguments bound and its closure in place."""
    code = fn.__code__
    unit = decode(code)
    slots = bind_arguments(vm, fn, args, kwargs, unit.nlocalsplus)
    if slots is None:
        guard_names(vm, fn)
        try:
            fn(*args, **(kwargs or {}))  # binding fails before any of the body runs
        except TypeError as error:
            raise Raised(error) from None
        raise AssertionError("a call that does not bind was accepted")
    frame = Frame(unit, program_of(unit), fn, slots, vm.heap.scope(fn.__globals__))
    if id(fn) not in vm.fresh:
        vm.guard_code(fn)
    return frame


def guard_code(vm: VM, fn: types.FunctionType) -> None:
    """An outside function may get another body; its code is a fact of the trace."""
    if id(fn) not in vm.functions.coded:
        vm.functions.coded[id(fn)] = fn
        source = vm.heap.source_of(fn)
        vm.heap.guard(Attr(source, "__code__"), Kind.ID, fn.__code__)
        if type(source) is not Pinned:  # another function with this code may have other globals
            vm.heap.guard(Attr(source, "__globals__"), Kind.ID, fn.__globals__)


def closure_of(vm: VM, fn: types.FunctionType) -> tuple[Any, ...]:
    known = vm.functions.closures.get(id(fn))
    if known is not None:
        return known[1]
    cells = fn.__closure__ or ()
    if id(fn) in vm.fresh:
        return cells
    source = vm.heap.source_of(fn)
    if type(source) is Pinned:  # __closure__ is read-only: the cells can be pinned themselves
        adopted = tuple([vm.heap.adopt(cell, Pinned(cell, name))
                         for name, cell in zip(fn.__code__.co_freevars, cells, strict=True)])
        vm.functions.closures[id(fn)] = fn, adopted
        return adopted
    closure = Attr(source, "__closure__")
    return tuple(vm.heap.adopt(cell, Index(closure, i)) for i, cell in enumerate(cells))


def call_marked(vm: VM, fn: Any, args: Any, kwargs: Any, cont: Any) -> None:
    """Functions the user marked: disable, allow_in_graph, substitute_in_graph, ..."""
    if torch_marks.is_graph_break(fn):
        if torch_marks.is_of_torch(vm.running.unit.code):
            return vm.give(None, cont)  # torch knows what its own tracer cannot do
        return vm.call(marks.graph_break, args, kwargs, cont)
    allowed_calls.refuse_disabled(fn)
    replacement = marks.substitute(fn)
    if replacement is not None:
        return vm.call(replacement.replacement, args, kwargs, cont)
    if torch_marks.is_torch_compiled(fn):  # compiled by torch.compile or not: here it is simply part of the trace
        original = vm.sync(lambda: load_attr(vm, fn, torch_marks.ORIGINAL))
        return vm.call(original, args, kwargs, cont)
    if marks.allowed_in_graph(fn):
        return allowed_calls.call_allowed(vm, fn, args, kwargs, cont)
    if marks.is_constant_result(fn):
        return allowed_calls.call_constant(vm, fn, args, kwargs, cont)
    vm.push(vm.frame_for(fn, args, kwargs), cont)


def sync(vm: VM, begin: Any) -> Any:
    """Do something that may push frames, and wait for its value (a nested loop if it does)."""
    try:
        return vm.run(Thunk(begin))
    except BaseException as error:  # the program's own: unwinding went past our base frame
        if not is_a(error, Exception) and error is not vm.escaped:
            raise
        raise Raised(error, chained=error is vm.escaped) from None


def call_sync(vm: VM, fn: object, args: Iterable[Any], kwargs: dict[str, Any] | None = None) -> Any:
    """Call and wait; a break inside is a break before the instruction that called."""
    return vm.sync(lambda: vm.call(fn, args, kwargs))


def torch_call(vm: VM, fn: Any, args: Any, kwargs: Any, asked: bool = False) -> Any:
    """Record a tensor operation, return its fake result; `asked`: eager calls handlers with this very function."""
    if vm.modes.active:  # handled by the interpreter itself: eager would ask the modes about something else
        raise function_modes.refuse(describe_callable(fn))
    if vm.heap.unread_met:
        args = with_numbers(vm, args)
        kwargs = kwargs and dict(zip(kwargs, with_numbers(vm, kwargs.values()), strict=True))
    expose = vm.heap.expose_deep
    plain = True
    for value in args:
        if type(value) is not FakeTensor:
            expose(value)
            if type(value) not in PLAIN_ARGUMENTS:
                plain = False
                refuse_sequence(vm, value)
    if kwargs:
        for value in kwargs.values():
            if type(value) is not FakeTensor and type(value) is not torch.Generator:
                expose(value)
    if not plain or kwargs or vm.recorder.classes:
        objects = overriding(vm, (*args, *kwargs.values()) if kwargs else args)
        if objects and (asked or only_defaults(vm, objects)):
            return function_modes.perform(vm, fn, args, kwargs)
        if objects:
            raise Break("SB005", f"{describe_callable(fn)} in a way about which eager asks a class something else")
    args, kwargs = plain_arguments(vm, fn, args, kwargs)
    if kwargs and type(kwargs.get("generator")) is torch.Generator:
        torch_arguments.generator_in_graph(vm, kwargs["generator"])
    if kwargs and kwargs.get("requires_grad") is True and torch.is_grad_enabled():
        return made_as_leaf(vm, fn, args, kwargs)
    if fn in ATTENTION:
        guard_kernels(vm)
    try:
        return vm.recorder.call(fn, args, kwargs or {})
    except NotImplementedError as error:
        raise unknown_for_fakes(error) from None
    except Exception as error:
        guard_refused(vm, args, kwargs)
        if vm.caught() and may_write_first(fn, args, kwargs or {}):
            raise Break("SB006", f"{describe_callable(fn)}, which may write before it fails") from None
        raise Raised(error) from None


def refuse_sequence(vm: VM, value: object) -> None:
    """torch.tensor(rows): break on user-defined sequences, which torch reads through their methods."""
    cls = type(value)
    if is_mutable_class(cls) and not is_a(value, (torch.Tensor, torch.nn.Module, type)):
        vm.guard_special_methods(value)
        names = _OF_INDEXED_NUMBERS if is_a(value, (int, float)) else _OF_SEQUENCES
        if any(type(find(vm, cls, name)) is types.FunctionType for name in names):
            raise Break("SB005", f"a {cls.__name__} passed to torch, which has methods of a sequence")


def made_as_leaf(vm: VM, fn: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """torch.zeros(..., requires_grad=True)"""
    made = vm.torch_call(fn, args, {**kwargs, "requires_grad": False})
    if type(made) is not FakeTensor:
        raise Break("SB016", "requires_grad=True of something else than a new tensor")
    tensor_bookkeeping.set_requires_grad(vm, made, True)
    return made


def torch_attribute(vm: VM, fake: FakeTensor, name: str, descr: object) -> Any:
    try:
        return vm.recorder.attribute(fake, name, descr)
    except NotImplementedError as error:
        raise unknown_for_fakes(error) from None
    except Exception as error:
        raise Raised(error) from None


def require_plain_names(keywords: dict[Any, object]) -> None:
    if not all(type(name) is str for name in keywords):
        if all(is_a(name, str) for name in keywords):
            raise Break("SB001", "keywords of a subclass of str")
        raise Raised(TypeError("keywords must be strings"))


def merged_keywords(function: functools.partial[object], kwargs: dict[str, object] | None) -> dict[str, object]:
    """Keywords of a call of a partial, whose own dict the program may have filled by hand."""
    require_plain_names(function.keywords)
    return {**function.keywords, **(kwargs or {})}


def unknown_for_fakes(error: NotImplementedError) -> Break:
    """Break for an operation that fakes refuse: whether real tensors know it, eager decides."""
    return Break("SB017", f"{error}".partition("\n")[0])


def refuse_unread(fn: Any, args: Iterable[Any], kwargs: dict[str, Any] | None) -> None:
    """Code that is not interpreted gets no value of which only the type is known; some never look at it."""
    if type(fn) in UNREAD:
        raise unread(fn, "a call")
    if looks_itself(fn) or id(fn) in TAKES_UNREAD:
        return
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) in UNREAD and type(value) is not DeferredText and not (
                type(value) in GRAPH_SCALARS and id(fn) in TAKES_GRAPH_SCALARS):
            raise unread(value, describe_callable(fn))


def takes_values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a torch function written in Python gets values only; with an object of the program it is interpreted."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        cls = type(value)
        if cls is not FakeTensor and cls not in CONSTANT_TYPES and not is_a(value, _VALUE_TYPES) \
                and not torch_leaf(value):
            return False
    return True


def _bind_call(vm: VM, method: object, obj: object, cls: type) -> None:
    getter = find(vm, type(method), "__get__")
    if getter is MISSING:
        return vm.give(adopt_entry(vm, method, cls))
    vm.call(getter, (adopt_entry(vm, method, cls), obj, cls), {})


def looks_itself(fn: Callable[..., Any]) -> bool:
    """Whether a call of `fn` does nothing but bind its arguments to the slots of an interpreted frame."""
    if type(fn) is types.MethodType:
        fn = fn.__func__
    return type(fn) is types.FunctionType and id(fn) not in RULES and not fn.__code__.co_flags & 0x0C \
        and not torch_leaf(fn) and not allowed_calls.is_marked(fn)


def bind_arguments(vm: VM, func: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any] | None,
                   nlocalsplus: int) -> list[Any] | None:
    code = func.__code__
    positional = code.co_argcount
    flags = code.co_flags
    given = len(args)
    if not kwargs and given == positional and not code.co_kwonlyargcount and not flags & 0x0C:
        slots = list(args)
        slots += [UNBOUND] * (nlocalsplus - given)
        return slots
    slots = [UNBOUND] * nlocalsplus
    total = positional + code.co_kwonlyargcount
    taken = min(given, positional)
    slots[:taken] = args[:taken]
    if flags & _VARARGS:
        slots[total] = (*args[positional:],)  # `f(*t)` with `*args`: not `t` itself
    elif given > positional:
        return None
    if not _bind_keywords(code, slots, kwargs or {}, total):
        return None
    return slots if _bind_defaults(vm, func, slots, taken, positional, total) else None


def _bind_keywords(code: types.CodeType, slots: list[Any], kwargs: dict[str, Any], total: int) -> bool:
    names = code.co_varnames
    first_keyword = code.co_posonlyargcount
    extra: dict[str, Any] | None = None
    if code.co_flags & _VARKEYWORDS:
        extra = slots[total + bool(code.co_flags & _VARARGS)] = {}
    for name, value in kwargs.items():
        try:
            slot = names.index(name, first_keyword, total)
        except ValueError:
            if extra is None:
                return False
            extra[name] = value
            continue
        if slots[slot] is not UNBOUND:
            return False
        slots[slot] = value
    return True


def _bind_defaults(vm: VM, func: types.FunctionType, slots: list[Any], taken: int, positional: int,
                   total: int) -> bool:
    first = positional
    for slot in range(taken, positional):
        if slots[slot] is UNBOUND:
            defaults = function_defaults(vm, func)
            first = positional - len(defaults)
            if slot < first:
                return False
            slots[slot] = defaults[slot - first]
    for slot in range(positional, total):
        if slots[slot] is UNBOUND:
            value = keyword_default(vm, func, func.__code__.co_varnames[slot])
            if value is UNBOUND:
                return False
            slots[slot] = value
    return True
