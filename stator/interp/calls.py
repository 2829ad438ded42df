"""The call protocol.   callable, arguments  ->  an interpreted frame, a recorded torch call, or a listed C call

In CPython's terms: functions, bound methods, classes (metaclass `__call__`, `__new__`, `__init__`), instances
with `__call__`, and C callables, which run only if the native table (or a rule) says so.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from stator import _core, _hook, marks
from stator.breaks import Break
from stator.code.decode import decode
from stator.guards.guard import Kind
from stator.heap.box import Box
from stator.heap.shells import CONSTANT_TYPES
from stator.interp import consumers, symbols
from stator.interp.attributes import adopt_entry
from stator.interp.binding import bind_arguments
from stator.interp.frame import UNBOUND, Continuation, Frame, Raised
from stator.interp.lookup import MISSING, find, is_mutable_class
from stator.interp.machine import Machine, Thunk, program_of
from stator.interp.overrides import PLAIN as PLAIN_ARGUMENTS
from stator.interp.overrides import ask, overriding
from stator.interp.texts import refuse_addresses, text_of_outside
from stator.interp.torch_arguments import plain_arguments
from stator.kinds import is_a
from stator.native.table import NativeClass, lookup, name_of, receiver_split
from stator.native.torch_ops import torch_leaf
from stator.shapes.values import SYMBOLIC, UNREAD, DeferredText, data_dependent, specialise, unread
from stator.source import Attr, Index, Pinned

RULES: dict[int, Any] = {}  # id of a callable (kept alive in _RULED) -> rule(vm, args, kwargs, cont)
CODE_RULES: dict[int, Any] = {}  # id of a code object: functions that one `def` makes again and again
_RULED: list[Any] = []


def rule(*callables: Any, arity: tuple[int, ...] = ()) -> Any:
    """Register how the interpreter itself does a call of these objects.

    With `arity`, a call with another number of arguments, or with keywords, goes to the C function itself, which
    refuses it in its own words before it does anything.
    """
    def register(function: Any) -> Any:
        for callable_ in callables:
            RULES[id(callable_)] = _with_arity(callable_, function, arity) if arity else function
            _RULED.append(callable_)
        return function
    return register


def code_rule(code: types.CodeType) -> Any:
    """Register how the interpreter calls every function with this code: `f(vm, function, args, kwargs, cont)`."""
    def register(function: Any) -> Any:
        CODE_RULES[id(code)] = function
        _RULED.append(code)
        return function
    return register


def _with_arity(callable_: Any, function: Any, arity: tuple[int, ...]) -> Any:
    def checked(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        if len(args) in arity and not kwargs:
            return function(vm, args, kwargs, cont)
        vm.give(vm.native_unhooked(callable_, args, kwargs), cont)
    return checked


class Initialise(Continuation):
    """After `__init__`: the new object is the value of the call."""

    __slots__ = ("obj", "cont")
    resumes, held = True, ("obj",)

    def __init__(self, obj: Any, cont: Any) -> None:
        self.obj, self.cont = obj, cont

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        if value is not None:
            raise Raised(TypeError(f"__init__() should return None, not '{type(value).__name__}'"))
        vm.give(self.obj, self.cont)


class AfterNew(Continuation):
    """After a Python `__new__`: run `__init__` if the object is an instance of the class."""

    __slots__ = ("cls", "args", "kwargs", "cont")

    def __init__(self, cls: type, args: Any, kwargs: Any, cont: Any) -> None:
        self.cls, self.args, self.kwargs, self.cont = cls, args, kwargs, cont

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        initialise(vm, self.cls, value, self.args, self.kwargs, self.cont)


class Caller(Machine):
    """A machine that can call."""

    coded: dict[int, Any]  # outside functions whose code is guarded, by id

    def call(self, fn: Any, args: Any, kwargs: dict[str, Any] | None = None, cont: Any = None) -> None:
        """Call `fn`; its result reaches the current frame's stack, or `cont`, now or when its frame returns."""
        cls = type(fn)
        if self.heap.unread_met:
            refuse_unread(fn, args, kwargs)
        if cls is types.FunctionType:
            return self.call_function(fn, args, kwargs, cont)
        if cls is types.MethodType:
            return self.call(fn.__func__, (fn.__self__, *args), kwargs, cont)
        found = RULES.get(id(fn))
        if found is not None:
            return found(self, args, kwargs or {}, cont)
        if is_a(fn, type):
            return call_class(self, fn, args, kwargs, cont)
        if cls in _C_CALLABLES:
            return self.call_native(fn, args, kwargs, cont)
        if cls is functools.partial:
            merged = {**fn.keywords, **(kwargs or {})}
            return self.call(fn.func, (*fn.args, *args), merged, cont)
        if cls is _core.CompiledFunction:  # a compiled function inside a trace is simply part of it
            return self.call(fn.fn, (*(fn.prefix_args or ()), *args), kwargs, cont)
        if self.is_torch_leaf(fn):
            return self.give(self.torch_call(fn, args, kwargs), cont)
        if is_a(fn, torch._ops.HigherOrderOperator):  # its own code looks at dispatch keys, which fakes do not have
            raise Break("SB016", f"the operator {fn.name()}, which takes functions")
        method = find(self, cls, "__call__")
        if method is MISSING:
            raise Raised(TypeError(f"{cls.__name__!r} object is not callable"))
        if type(method) is types.FunctionType:
            return self.call_function(method, (fn, *args), kwargs, cont)
        if type(method) is types.WrapperDescriptorType:
            return self.call_native(fn, args, kwargs, cont)
        found = RULES.get(id(method))
        if found is not None:
            return found(self, (fn, *args), kwargs or {}, cont)
        bound: list[Any] = []
        self.sync(lambda: _bind_call(self, method, fn, cls), bound)
        self.call(bound[0], args, kwargs, cont)

    def call_function(self, fn: types.FunctionType, args: Any, kwargs: Any, cont: Any) -> None:
        found = RULES.get(id(fn))
        if found is not None:
            return found(self, args, kwargs or {}, cont)
        if torch_leaf(fn) and takes_values(args, kwargs):
            return self.give(self.torch_call(fn, args, kwargs), cont)
        found = CODE_RULES.get(id(fn.__code__))
        if found is not None:
            return found(self, fn, args, kwargs or {}, cont)
        if _marked(fn) and id(fn) not in self.fresh:
            return self.call_marked(fn, args, kwargs, cont)
        self.push(self.frame_for(fn, args, kwargs), cont)

    def frame_for(self, fn: types.FunctionType, args: Any, kwargs: Any) -> Frame:
        """A new frame of `fn`, its arguments bound and its closure in place."""
        code = fn.__code__
        unit = decode(code)
        slots = bind_arguments(self, fn, args, kwargs, unit.nlocalsplus)
        if slots is None:
            try:
                fn(*args, **(kwargs or {}))  # binding fails before any of the body runs
            except TypeError as error:
                raise Raised(error) from None
            raise AssertionError("a call that does not bind was accepted")
        frame = Frame(unit, program_of(unit), fn, slots, self.heap.scope(fn.__globals__))
        if id(fn) not in self.fresh:
            self.guard_code(fn)
        return frame

    def guard_code(self, fn: types.FunctionType) -> None:
        """An outside function may get another body; its code is a fact of the trace."""
        if id(fn) not in self.coded:
            self.coded[id(fn)] = fn
            self.heap.guard(Attr(self.heap.source_of(fn), "__code__"), Kind.ID, fn.__code__)

    def closure_of(self, fn: types.FunctionType) -> tuple[Any, ...]:
        cells = fn.__closure__ or ()
        if id(fn) in self.fresh:
            return cells
        source = self.heap.source_of(fn)
        if type(source) is Pinned:  # __closure__ is read-only: the cells can be pinned themselves
            return tuple(self.heap.adopt(cell, Pinned(cell)) for cell in cells)
        closure = Attr(source, "__closure__")
        return tuple(self.heap.adopt(cell, Index(closure, i)) for i, cell in enumerate(cells))

    def call_marked(self, fn: Any, args: Any, kwargs: Any, cont: Any) -> None:
        """Functions the user marked: disable, allow_in_graph, substitute_in_graph, ..."""
        refuse_disabled(fn)
        replacement = marks.substitute(fn)
        if replacement is not None:
            return self.call(replacement.replacement, args, kwargs, cont)
        if marks.allowed_in_graph(fn):
            return self.give(self.torch_call(fn, args, kwargs), cont)
        if marks.is_constant_result(fn):
            self.heap.expose_deep(args)
            return self.give(self.native_unhooked(fn, args, kwargs), cont)
        self.push(self.frame_for(fn, args, kwargs), cont)

    # ------------------------------------------------------------------ torch

    def is_torch_leaf(self, fn: Any) -> bool:
        return torch_leaf(fn)

    def torch_call(self, fn: Any, args: Any, kwargs: Any) -> Any:
        """A tensor operation: record it, answer with its fake result."""
        expose = self.heap.expose_deep
        plain = True
        for value in args:
            if type(value) is not FakeTensor:
                expose(value)
                plain = plain and type(value) in PLAIN_ARGUMENTS
        if kwargs:
            for value in kwargs.values():
                if type(value) is not FakeTensor:
                    expose(value)
        if not plain or kwargs:
            objects = overriding(self, (*args, *kwargs.values()) if kwargs else args)
            if objects:
                return ask(self, fn, args, kwargs, objects)
        args = plain_arguments(self, args)
        if kwargs:
            kwargs = dict(zip(kwargs, plain_arguments(self, kwargs.values()), strict=True))
        try:
            return self.recorder.call(fn, args, kwargs or {})
        except Exception as error:
            raise Raised(error) from None

    def torch_attribute(self, fake: Any, name: str, descr: Any) -> Any:
        try:
            return self.recorder.attribute(fake, name, descr)
        except Exception as error:
            raise Raised(error) from None

    # ------------------------------------------------------------------ C code

    def call_native(self, fn: Any, args: Any, kwargs: Any, cont: Any) -> None:
        descriptor, receiver = receiver_split(fn)
        found = RULES.get(id(descriptor))
        if found is not None:
            return found(self, args if descriptor is fn else (receiver, *args), kwargs or {}, cont)
        if torch_leaf(descriptor):
            return self.give(self.torch_call(descriptor, args if descriptor is fn else (receiver, *args), kwargs), cont)
        if torch_leaf(fn):
            return self.give(self.torch_call(fn, args, kwargs), cont)
        if _marked(fn):
            return self.call_marked(fn, args, kwargs, cont)
        self.call_listed(fn, descriptor, receiver, args, kwargs, cont)

    def call_listed(self, fn: Any, descriptor: Any, receiver: Any, args: Any, kwargs: Any, cont: Any) -> None:
        """Run a C callable as its row in the native table says."""
        every = args if descriptor is fn else (receiver, *args)
        if self.run_loop(descriptor, tuple(every), kwargs, cont):
            return
        symbolic = symbols.concern(self, every, kwargs)
        if symbolic:
            answer = symbols.call(self, descriptor, every, kwargs)
            if answer is not MISSING:
                return self.give(answer, cont)
        row = lookup(fn)
        self.admit(fn, row, every)
        self.expose_for(row, every)
        if (symbolic or symbols.concern(self, every, kwargs)) and symbols.reaches_symbol(every, kwargs):
            args, kwargs = symbols.arguments(self, row, descriptor, every, kwargs)
            fn = descriptor
        if descriptor is not fn:
            self.expose_for(row, (receiver,))
        self.expose_for(row, args)
        if kwargs:
            self.expose_for(row, kwargs.values())
        if row.formats:
            text = text_of_outside(self, fn, args)
            if text is not MISSING:
                return self.give(text, cont)
            refuse_addresses(self, fn, (*every, *kwargs.values()) if kwargs else every)
        if row.cls is NativeClass.ITERATOR or id(descriptor) in _HIGHER_ORDER:
            args = tuple([self.python_callable(value) for value in args])
            if kwargs and "key" in kwargs:
                kwargs = {**kwargs, "key": self.python_callable(kwargs["key"])}
        self.give(self.native(fn, args, kwargs), cont)

    def run_loop(self, descriptor: Any, args: tuple[Any, ...], kwargs: Any, cont: Any) -> bool:
        """Interpret what a C function does with an iterable that is Python code itself."""
        planned = consumers.plan(descriptor, args, kwargs)
        if planned is None or not self.is_python_iterable(args[planned[0]]):
            return False
        self.call_own(*planned[1], cont)
        return True

    def call_own(self, function: types.FunctionType, args: tuple[Any, ...], cont: Any) -> None:
        """Interpret a function of ours, on behalf of an instruction or a C function."""
        self.fresh[id(function)] = function
        self.push(self.frame_for(function, args, None), cont)

    def is_python_iterable(self, value: Any) -> bool:
        """Whether running through `value` runs Python code; of no use to who asks for its length first."""
        cls = type(value)
        if cls is types.GeneratorType:
            return id(value) in self.generators
        return type(find(self, cls, "__iter__")) is types.FunctionType and find(self, cls, "__len__") is MISSING \
            and find(self, cls, "__length_hint__") is MISSING

    def admit(self, fn: Any, row: Any, args: Any) -> None:
        """Default deny: only listed C callables run while tracing."""
        if row is None:
            raise Break("SB001", f"{_describe(fn)} is not in the native table")
        cls = row.cls
        if cls in _RUNNABLE:
            if args and row.mutates and self.heap.is_opaque(args[0]):
                raise Break("SB006", f"{name_of(row)} of an object from outside")
            return
        if cls is NativeClass.SPECIAL or cls is NativeClass.WRAPPER or cls is NativeClass.OUTSIDE_REF:
            raise Break("SB001", f"{name_of(row)} needs a rule of the interpreter that does not exist yet")
        raise Break(row.code or "SB001", f"{name_of(row)}: {row.why}" if row.why else name_of(row))

    def expose_for(self, row: Any, values: Any) -> None:
        cls = row.cls
        if cls is NativeClass.PURE_SHELL and not row.compares:
            return
        heap = self.heap
        for value in values:
            if id(value) in heap.by_standin and (type(value) in _RESUMABLE or heap.is_opaque(value)
                                                 and is_iterator(type(value))):
                raise Break("SB014", f"a {type(value).__name__} from outside")  # C code would advance the user's own
            if cls is NativeClass.PURE_DEEP or row.compares:
                heap.expose_deep(value)
            else:
                heap.expose(value)

    def python_callable(self, value: Any) -> Any:
        """A C callable handed to C code, wrapped so that its calls come back through the interpreter."""
        if type(value) in _C_CALLABLES or is_a(value, type) and not is_mutable_class(value) \
                or not is_a(value, type) and type(value) not in _PYTHON_CALLABLES and self.is_called_by_c(value):
            callback = _Callback(value)
            self.callbacks[id(callback.invoke)] = callback
            self.fresh[id(callback.invoke)] = callback.invoke
            return callback.invoke
        return value

    def is_called_by_c(self, value: Any) -> bool:
        """Whether calling the object runs C code of its class, which the hook does not see."""
        return type(find(self, type(value), "__call__")) is types.WrapperDescriptorType

    def native(self, fn: Any, args: Any, kwargs: Any = None) -> Any:
        """Run C code with the hook on: Python frames it enters are interpreted."""
        if args and type(args[0]) in UNREAD:
            _require_read(fn, args[0])
        _hook.enter()
        try:
            result = fn(*args, **kwargs) if kwargs else fn(*args)
        except BaseException as error:
            if self.pending is not None:
                raise self.pending from None
            if not is_a(error, Exception) and error is not self.escaped:
                raise
            if is_a(error, GuardOnDataDependentSymNode):
                raise data_dependent(error.cond,  # type: ignore[attr-defined]
                                     f"{_describe(fn)} asks for a number") from None
            raise Raised(error) from None
        finally:
            _hook.leave()
        if self.pending is not None:
            raise self.pending
        return result.force() if type(result) is Box else result

    def native_unhooked(self, fn: Any, args: Any, kwargs: Any = None) -> Any:
        if args and type(args[0]) in UNREAD:
            _require_read(fn, args[0])
        try:
            return fn(*args, **(kwargs or {}))
        except Exception as error:
            raise Raised(error) from None

    # ------------------------------------------------------------------ nested runs

    def sync(self, begin: Any, out: list[Any]) -> None:
        """Do something that may push frames, and wait for its value (a nested loop if it does)."""
        try:
            out.append(self.run(Thunk(begin)))
        except BaseException as error:  # the program's own: unwinding went past our base frame
            if not is_a(error, Exception) and error is not self.escaped:
                raise
            raise Raised(error) from None

    def call_sync(self, fn: Any, args: Any, kwargs: Any = None) -> Any:
        """Call and wait; a break inside is a break before the instruction that asked."""
        out: list[Any] = []
        self.sync(lambda: self.call(fn, args, kwargs), out)
        return out[0]

    def intercepted(self, func: types.FunctionType, args: tuple[Any, ...], closure: Any = None) -> Any:
        """The PEP 523 hook: C code entered a Python function while tracing."""
        if torch_leaf(func) or args and type(args[0]) in SYMBOLIC and _of_numbers(func):
            return _hook.RUN_ALL
        self.guard_callback(func, args)
        try:
            result = self.call_bound(func, args)
            if type(result) in UNREAD:
                raise unread(result, f"the answer of {func.__name__}, which C code asks for")
            if type(result) in SYMBOLIC and func.__name__ in _CONVERSIONS:
                return specialise(result, f"the answer of {func.__name__}")
            return symbols.truth(self, result) if type(result) is torch.SymBool else result
        except Raised as raised:
            self.escaped = raised.exc
            raise raised.exc from None

    def guard_callback(self, func: types.FunctionType, args: tuple[Any, ...]) -> None:
        """C code found `func` on a class by itself (`__eq__`, `__hash__`, ...): guard that finding."""
        if self.making_classes:
            self.note_class_in_making(func.__name__, args)
        if args and find_owner(type(args[0]), func):
            find(self, type(args[0]), func.__name__)

    def note_class_in_making(self, name: str, args: tuple[Any, ...]) -> None:
        """type.__new__ shows the class it makes to these before it returns it (to the third through C code)."""
        place = {"__set_name__": 1, "__init_subclass__": 0, "_generic_init_subclass": 0}.get(name)
        if place is not None and len(args) > place and is_a(args[place], type):
            self.fresh[id(args[place])] = args[place]

    def call_bound(self, func: types.FunctionType, args: tuple[Any, ...]) -> Any:
        """Run a function whose arguments CPython has already bound to its local slots."""
        found = RULES.get(id(func))
        if found is not None and not func.__code__.co_flags & 0x0C and not func.__code__.co_kwonlyargcount:
            out: list[Any] = []
            self.sync(lambda: found(self, args, {}, None), out)
            return out[0]
        unit = decode(func.__code__)
        slots = list(args) + [UNBOUND] * (unit.nlocalsplus - len(args))
        slots = [value.force() if type(value) is Box else value for value in slots]
        frame = Frame(unit, program_of(unit), func, slots, self.heap.scope(func.__globals__))
        if id(func) not in self.fresh:
            self.guard_code(func)
        return self.run(frame)


def refuse_unread(fn: Any, args: Any, kwargs: Any) -> None:
    """Code that is not interpreted gets no value of which only the type is known; some never look at it."""
    if type(fn) in UNREAD:
        raise unread(fn, "a call")
    if looks_itself(fn) or id(fn) in _LEAVE_UNREAD:
        return
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) in UNREAD and type(value) is not DeferredText:
            raise unread(value, _describe(fn))


def takes_values(args: Any, kwargs: Any) -> bool:
    """Whether a torch function written in Python gets values only: an object or a function of the program would be
    used by it, natively; then its body is interpreted like any other."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        cls = type(value)
        if cls is not FakeTensor and cls not in CONSTANT_TYPES and not is_a(value, _VALUE_TYPES) \
                and not torch_leaf(value):
            return False
    return True


def find_owner(cls: type, func: Any) -> bool:
    return any(base.__dict__.get(func.__name__) is func for base in cls.__mro__)


class _Callback:
    """A C callable as a Python function, for C code that will call it."""

    def __init__(self, target: Any) -> None:
        self.target = target
        def invoke(*args: Any, **kwargs: Any) -> Any:
            return target(*args, **kwargs)
        invoke.__code__ = invoke.__code__.replace(co_filename="<callback>")
        self.invoke = invoke


def _bind_call(vm: Any, method: Any, obj: Any, cls: type) -> None:
    getter = find(vm, type(method), "__get__")
    if getter is MISSING:
        return vm.give(adopt_entry(vm, method, cls))
    vm.call(getter, (adopt_entry(vm, method, cls), obj, cls), {})


def call_class(vm: Any, cls: type, args: Any, kwargs: Any, cont: Any) -> None:
    """type.__call__, unless the metaclass has its own."""
    refuse_disabled(cls)
    meta = type(cls)
    if meta is not type:
        meta_call = find(vm, meta, "__call__")
        if type(meta_call) is types.FunctionType:
            return vm.call(meta_call, (cls, *args), kwargs, cont)
        if type(meta_call) is not types.WrapperDescriptorType:
            return vm.call(vm.special_method(cls, "__call__", ""), args, kwargs, cont)
    instantiate(vm, cls, args, kwargs, cont)


def instantiate(vm: Any, cls: type, args: Any, kwargs: Any, cont: Any) -> None:
    row = lookup(cls)
    if row is not None:
        return vm.call_native(cls, args, kwargs, cont)
    new = find(vm, cls, "__new__")
    if type(new) is staticmethod:
        new = new.__func__
    if find(vm, cls, "__del__") is not MISSING:
        raise Break("SB019", f"{cls.__name__} has a finalizer (__del__)")
    if new is object.__new__:
        obj = new_plain_object(vm, cls, args, kwargs)
        return initialise(vm, cls, obj, args, kwargs, cont)
    if type(new) is types.FunctionType:
        return vm.call(new, (cls, *args), kwargs, AfterNew(cls, args, kwargs, cont))
    if type(new) is types.BuiltinFunctionType:
        vm.call(new, (cls, *args), kwargs, AfterNew(cls, args, kwargs, cont))
        return
    raise Break("SB001", f"{cls.__module__}.{cls.__qualname__} has a __new__ written in C")


def new_plain_object(vm: Any, cls: type, args: Any, kwargs: Any) -> Any:
    """object.__new__: extra arguments are an error only if `__init__` is object's, too."""
    if (args or kwargs) and find(vm, cls, "__init__") is object.__init__:
        return vm.native_unhooked(object.__new__, (cls, *args), kwargs)
    return vm.native_unhooked(object.__new__, (cls,))


def initialise(vm: Any, cls: type, obj: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if not issubclass_real(type(obj), cls):
        return vm.give(obj, cont)
    init = find(vm, type(obj), "__init__")
    if init is object.__init__:
        return vm.give(obj, cont)
    if type(init) is types.FunctionType:
        return vm.call(init, (obj, *args), kwargs, Initialise(obj, cont))
    vm.call(init, (obj, *args), kwargs, Initialise(obj, cont))


def issubclass_real(cls: type, parent: type) -> bool:
    return parent in type.__dict__["__mro__"].__get__(cls)


def looks_itself(fn: Any) -> bool:
    """Whether a call of `fn` does nothing but bind its arguments to the slots of an interpreted frame."""
    if type(fn) is types.MethodType:
        fn = fn.__func__
    return type(fn) is types.FunctionType and id(fn) not in RULES and not fn.__code__.co_flags & 0x0C \
        and not torch_leaf(fn) and not _marked(fn)


def refuse_disabled(fn: Any) -> None:
    """Break at a function or class that the user has marked with stator.disable."""
    mark = marks.disabled_mark(fn)
    if mark is not None:
        reason = f": {mark.reason}" if mark.reason else ""
        raise Break("SB010", f"{fn.__qualname__} is disabled{reason}")


def _marked(fn: Any) -> bool:
    return marks.is_disabled(fn) or marks.substitute(fn) is not None or marks.allowed_in_graph(fn) \
        or marks.is_constant_result(fn)


def is_iterator(cls: type) -> bool:
    return any("__next__" in base.__dict__ for base in type.__dict__["__mro__"].__get__(cls))


def _of_numbers(func: types.FunctionType) -> bool:
    """Whether a function belongs to torch's symbolic numbers, rather than to the program."""
    return func.__code__.co_filename.startswith(_TORCH)


_TORCH = torch.__file__.rpartition("__init__")[0]


def _describe(fn: Any) -> str:
    module = getattr(fn, "__module__", None)
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or repr(fn)
    return f"{module}.{name}" if module else f"{name}"



_VALUE_TYPES = (torch.Tensor, int, float, str, list, tuple, dict, set, slice, torch.SymInt, torch.SymFloat,
                torch.SymBool, torch.Generator, torch._C._SDPBackend)
_C_CALLABLES = {types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
                types.MethodWrapperType, types.ClassMethodDescriptorType}
def _require_read(fn: Any, receiver: Any) -> None:
    """A method of a C type works on the object itself, not on what stands for it unread."""
    if type(fn) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        raise unread(receiver, fn.__name__)


_LEAVE_UNREAD = frozenset(map(id, (isinstance, type, print, list.append, callable)))
_CONVERSIONS = frozenset({"__float__", "__int__", "__index__", "__len__", "__hash__", "__complex__", "__length_hint__"})
_RUNNABLE = {NativeClass.PURE_SHELL, NativeClass.PURE, NativeClass.PURE_DEEP, NativeClass.MUTATES, NativeClass.ITERATOR}
_RESUMABLE = {types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType}
_PYTHON_CALLABLES = {types.FunctionType, types.MethodType, type(None)}
_HIGHER_ORDER = {id(f) for f in (sorted, min, max, functools.reduce, list.sort, iter, filter, map)}

