"""Calls of C code.   callable, arguments  ->  its result, if the native table lists it

Python that C code calls comes back through the frame hook and is interpreted.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from stator import _hook
from stator.breaks import Break
from stator.code.decode import decode
from stator.errors import describe_callable
from stator.guards.guard import Kind
from stator.heap.adopt.outside_sets import note_operation
from stator.heap.identity_facts import note_asked, note_compared, note_made
from stator.heap.iterators.peekable_iterators import is_known_ahead
from stator.heap.tracker import Box
from stator.host.value_kinds import is_a, module_of
from stator.interp import iteration, number_warnings
from stator.interp.calls import allowed_calls, module_copies
from stator.interp.frame import UNBOUND, Continuation, Frame, Raised
from stator.interp.iteration import containers_behind, is_iterator, is_to_be_read
from stator.interp.lookup import MISSING, find, guard_refused, is_mutable_class
from stator.interp.machine import program_of
from stator.interp.noted_effects import WARNING_TYPES, call_heard
from stator.interp.numbers import symbolic_numbers
from stator.interp.objects.function_attributes import refuse_renamed
from stator.interp.objects.keys import check_written
from stator.interp.objects.object_texts import note_addresses, text_of_outside
from stator.interp.objects.process_facts import note_read, with_originals
from stator.interp.objects.set_order import note_set
from stator.interp.rule_registry import RULES
from stator.interp.services import VM
from stator.interp.torch_function_protocol import own_method, refuse_patched
from stator.native.rows_declare import ROWS
from stator.native.table import NO_RECEIVER, NativeClass, Row, lookup, name_of, receiver_split
from stator.native.torch_ops import torch_leaf
from stator.shapes.symbolic_values import SYMBOLIC, UNREAD, data_dependent, specialise, unread, unread_text
from stator.source import Attr, Index, Pinned, root_of

_TENSOR_HASH = torch.Tensor.__hash__.__code__
_TORCH = torch.__file__.rpartition("__init__")[0]
_SPECIAL_METHODS = tuple(f"__{stem}__" for stem in (
    "float int index trunc complex bool len length_hint iter next getitem contains reversed abs neg pos invert round "
    "floor ceil bytes fspath call str repr format hash eq ne lt le gt ge divmod rdivmod pow rpow add radd mul rmul"
).split()) + ("keys", "items", "__missing__")
_MANY_DIGITS = 2048  # bits of a number whose text might be refused: the least limit is 640 digits
_OF_NUMBERS: Mapping[int, Callable[[object], str | int]] = {
    id(vars(cls)[f"__{function.__name__}__"].__code__): function for function in (repr, hash)
    for cls in (torch.SymInt, torch.SymFloat, torch.SymBool)} | dict.fromkeys((id(unread_text.__code__),), repr)
_SLOTS = (types.WrapperDescriptorType, types.MethodDescriptorType)
_RESUMABLE = {types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType}
_CALLED_IN_C = (types.WrapperDescriptorType, functools._lru_cache_wrapper, staticmethod, classmethod)
_PYTHON_CALLABLES = {types.FunctionType, types.MethodType, type(None)}


def call_native(vm: VM, fn: Any, args: Any, kwargs: object, cont: Any) -> None:
    descriptor, receiver = receiver_split(fn)
    fn = descriptor if receiver is NO_RECEIVER else fn  # an accessor of pybind11
    if id(descriptor) not in ROWS and id(descriptor) not in RULES:
        module_copies.declare(descriptor)
    if descriptor is not fn and (stop := vm.heap.refused.get(id(fn))) is not None:
        raise Break(stop.code, stop.detail)  # bound to the user's own object, which has no stand-in
    if vm.heap.is_opaque(fn):
        vm.guard_identity(fn)
    if (found := RULES.get(id(descriptor))) is not None:
        return found(vm, args if descriptor is fn else (receiver, *args), kwargs or {}, cont)
    allowed_calls.refuse_disallowed(fn)
    if torch_leaf(descriptor):
        every = args if descriptor is fn else (receiver, *args)
        return vm.give(vm.torch_call(descriptor, every, kwargs, asked=True), cont)
    if torch_leaf(fn):
        return vm.give(vm.torch_call(fn, args, kwargs, asked=True), cont)
    if allowed_calls.is_marked(fn):
        return vm.call_marked(fn, args, kwargs, cont)
    vm.call_listed(fn, descriptor, receiver, args, kwargs, cont)


def call_listed(vm: VM, fn: Any, descriptor: Any, receiver: object, args: Any, kwargs: Any,
                cont: Continuation | None) -> None:
    """Run a C function that the native table lists, on stand-ins: `outside.update(a=1)` changes the stand-in alone."""
    every = args if descriptor is fn else (receiver, *args)
    if run_loop(vm, descriptor, tuple(every), kwargs, cont):
        return
    symbolic = symbolic_numbers.concern(vm, every, kwargs)
    found = lookup(fn)
    if not symbolic:
        allowed_calls.runnable_row(fn, found)
    if every:
        vm.heap.note_write(every[0])  # perhaps
    if vm.functions.members:
        for value in (*every, *kwargs.values()) if kwargs else every:
            refuse_renamed(vm, value)
    if symbolic:
        answer = symbolic_numbers.call(vm, descriptor, every, kwargs)
        if answer is not MISSING:
            return vm.give(answer, cont)
    row = admit(vm, fn, found, every)
    if types.GeneratorType in map(type, args) and row.cls is not NativeClass.PURE_SHELL:
        args = tuple([vm.walked(value) if type(value) is types.GeneratorType else value for value in args])
        every = args if descriptor is fn else (receiver, *args)
    orderless = row.orderless and bool(every) and id(every[0]) in vm.heap.tables.sets
    if orderless:
        for member in vm.heap.tables.sets[id(every[0])].initial:
            vm.heap.expose_deep(member)
    elif row.shows_order or kwargs and "key" in kwargs:  # of members that compare equal the first one counts
        for value in every:
            if is_a(value, (set, frozenset)) and id(value) not in vm.heap.by_standin:
                vm.check_order(value)
    vm.expose_for(row, every[orderless:])
    if row.hashes_items:
        args = symbolic_numbers.specialise_hashed(vm, args)
        every = args if descriptor is fn else (receiver, *args)
    if (symbolic or symbolic_numbers.concern(vm, every, kwargs, row.formats)) \
            and symbolic_numbers.reaches_symbol(every, kwargs, row.formats):
        args, kwargs = symbolic_numbers.arguments(vm, row, descriptor, every, kwargs)
        fn = descriptor
    if descriptor is not fn and not orderless:
        vm.expose_for(row, (receiver,))
    vm.expose_for(row, args[orderless and descriptor is fn:])
    if kwargs:
        vm.expose_for(row, kwargs.values())
    if row.compares and every:
        note_compared(vm.heap, every)
    elif row.calls_back and row.cls is not NativeClass.PURE_SHELL or row.asks_items:
        for value in every:
            note_asked(vm.heap, value)
    for value in every:
        for held in containers_behind(value):
            note_asked(vm.heap, held)
    if row.formats:
        text = text_of_outside(vm, fn, args)
        if text is not MISSING:
            return vm.give(text, cont)
        note_addresses(vm, fn, (*every, *kwargs.values()) if kwargs else every)
    if row.cls is NativeClass.ITERATOR or row.asks_items:
        if (vm.recorder.classes or vm.modes.patched) and any(
                type(value) is FakeTensor and vm.is_python_iterable(value) for value in args):
            raise Break("SB017", f"{name_of(row)} of a tensor whose class has its own __iter__")
        args = tuple([vm.python_callable(value) if at == row.calls_at else value  # others are only handed on
                      for at, value in enumerate(args)])
    if kwargs and (row.cls is NativeClass.ITERATOR or row.asks_items or row.calls_back):
        kwargs = {key: vm.python_callable(value) if key in ("key", "func") else value for key, value in kwargs.items()}
    vm.functions.formatting += row.formats
    try:
        result = call_heard(vm, fn, args, kwargs) if row.warns else vm.native(fn, args, kwargs)
    finally:
        vm.functions.formatting -= row.formats
        if row.mutates and row.calls_back and every:
            vm.heap.note_write(every[0])  # called back, the program may have looked for changes so far
    if row.compares:
        note_made(vm.heap, result)
        if row.mutates and len(every) > 1 and is_iterator(type(every[1])):
            note_made(vm.heap, every[0])
    vm.give(with_originals(vm, result, fn) if row.formats else result, cont)


def run_loop(vm: VM, descriptor: object, args: tuple[Any, ...], kwargs: dict[str, Any],
             cont: Continuation | None) -> bool:
    """Interpret what a C function does with an iterable that is Python code, or is to be read item by item."""
    planned = iteration.plan(descriptor, args, kwargs)
    if planned is None:
        return False
    iterable = args[planned[0]]
    if not vm.is_python_iterable(iterable) and not is_to_be_read(vm, iterable, descriptor):
        return False
    vm.call_own(*planned[1], cont)
    return True


def call_own(vm: VM, function: Callable[..., object], args: tuple[Any, ...], cont: Continuation | None) -> None:
    """Interpret a function of ours, on behalf of an instruction or a C function."""
    assert isinstance(function, types.FunctionType)
    vm.fresh[id(function)] = function
    vm.push(vm.frame_for(function, args, None), cont)


def is_python_iterable(vm: VM, value: object) -> bool:
    """Whether running through `value` runs Python code; False for sized iterables: C reads their length first."""
    cls = type(value)
    if cls is types.GeneratorType:
        return id(value) in vm.generators
    if cls is FakeTensor:
        return own_method(vm, value, "__iter__") is not None
    return type(find(vm, cls, "__iter__")) is types.FunctionType and find(vm, cls, "__len__") is MISSING \
        and find(vm, cls, "__length_hint__") is MISSING


def admit(vm: VM, fn: Any, found: Row | None, args: Sequence[Any]) -> Row:
    """Return the row of a C callable that may run now: only listed ones run while tracing."""
    row = allowed_calls.runnable_row(fn, found)
    if type(fn) is types.BuiltinFunctionType and row.obj is not fn and vm.heap.is_opaque(fn):
        raise Break("SB005", f"{name_of(row)} of an object from outside")  # bound to the user's own
    if args and row.mutates and vm.heap.is_opaque(args[0]):
        raise Break("SB006", f"{name_of(row)} of an object from outside")
    if args and (type(fn) is types.MethodDescriptorType or fn is itertools.tee):
        refuse_copies(vm, fn, args[0])
    if row.depends is not None or row.shows_lines:
        note_read(vm, row, args)
    return row


def refuse_copies(vm: VM, fn: Callable[..., Any], value: object) -> None:
    """Break at a method that would move the user's own iterator; itertools.tee() copies what has a `__copy__`."""
    module_copies.refuse_changed_builtins(vm, fn.__name__)
    posed = None
    if is_known_ahead(vm.heap, value) or vm.heap.is_opaque(value) and is_iterator(type(value)):
        posed = type(vm.heap.original_of(value))
    if posed is not None and (fn is not itertools.tee or find(vm, posed, "__copy__") is not MISSING):
        raise Break("SB014", f"a {posed.__name__} from outside, copied or asked")


def admit_slot(vm: VM, method: Any, args: Any) -> None:
    """The same of what an operator reaches; a type that lacks the slot says so itself."""
    if type(method) in _SLOTS and id(method) not in RULES and admit(vm, method, lookup(method), args).compares:
        note_compared(vm.heap, args)


def expose_for(vm: VM, row: Row, values: Iterable[Any]) -> None:
    cls = row.cls
    if cls is NativeClass.PURE_SHELL and not row.compares:
        return
    heap = vm.heap
    for value in values:
        if heap.original_of(value) is value and id(value) in heap.by_standin and (
                type(value) in _RESUMABLE or heap.is_opaque(value) and is_iterator(type(value))):
            raise Break("SB014", f"a {type(value).__name__} from outside")  # C code would advance the user's own
        show = heap.expose_deep if cls is NativeClass.PURE_DEEP or row.compares else heap.expose
        show(value)
        for held in containers_behind(value):
            show(held)
            if row.compares:
                symbolic_numbers.specialise_deep(vm, held)


def handed_to_c(vm: VM, value: object) -> Any:
    """A callable or a generator that C code will run, so that it comes back through the interpreter."""
    return vm.walked(value) if type(value) is types.GeneratorType else vm.python_callable(value)


def python_callable(vm: VM, value: Any) -> Any:
    """A C callable handed to C code, wrapped so that its calls come back through the interpreter."""
    if type(value) in allowed_calls.C_CALLABLES or is_a(value, type) and not is_mutable_class(value) \
            or not is_a(value, type) and type(value) not in _PYTHON_CALLABLES \
            and type(find(vm, type(value), "__call__")) in _CALLED_IN_C \
            or type(value) is types.MethodType and type(value.__func__) is functools._lru_cache_wrapper:
        vm.functions.callbacks[id(made := _callback(value))] = value
        vm.fresh[id(made)] = made
        return made
    return value


def native(vm: VM, fn: Any, args: Any, kwargs: Any = None) -> Any:
    """Run C code with the hook on: Python frames it enters are interpreted."""
    if args:
        if type(args[0]) in UNREAD:
            _require_read(fn, args[0])
        vm.heap.note_write(args[0])  # perhaps: C code changes nothing but its first argument
        if len(args) > 1 and is_a(args[0], (dict, set)):
            check_written(vm, fn, args)
        if (type(args[0]) in WARNING_TYPES or len(args) > 1 and type(args[1]) in WARNING_TYPES) \
                and not vm.hears_numpy:
            return call_heard(vm, fn, args, kwargs)
    heard = vm.warnings.heard  # by C code further out
    _hook.enter()
    try:
        result = fn(*args, **kwargs) if kwargs else fn(*args)
    except BaseException as error:
        if vm.pending is not None:
            raise vm.pending from None
        if not is_a(error, Exception) and error is not vm.escaped and type(error) not in vm.generators.thrown:
            raise
        if vm.heap.tables.sets:
            note_operation(vm.heap, fn, args, failed=True)
        if is_a(error, BufferError) and args and id(args[0]) in vm.heap.held_views:
            raise Break("SB006", "a buffer changes its size that somebody outside has a view of") from None
        if is_a(error, GuardOnDataDependentSymNode):
            raise data_dependent(error.cond,  # type: ignore[attr-defined]
                                 f"{describe_callable(fn)} needs a number") from None
        if type(error) is ValueError and "set_int_max_str_digits" in str(error):
            number_warnings.guard_digits(vm)
        raise failed(vm, error, fn, args, kwargs) from None
    finally:
        _hook.leave()
        if vm.warnings.heard is not heard:
            number_warnings.end_hearing(vm)
    if args and (type(args[0]) is int and args[0].bit_length() > _MANY_DIGITS or type(result) is int
                 and result.bit_length() > _MANY_DIGITS):
        number_warnings.guard_digits(vm)
    if vm.pending is not None:
        raise vm.pending
    if args and is_a(args[0], set) or type(result) in (set, frozenset) or type(fn) is types.BuiltinMethodType:
        note_set(vm, fn, args, result)
    if vm.policy.not_rebuilt:
        refuse_not_rebuilt(vm, result)
    return result.force() if type(result) is Box else result


def native_unhooked(vm: VM, fn: Callable[..., Any], args: Any, kwargs: Any = None) -> Any:
    if args:
        if type(args[0]) in UNREAD:
            _require_read(fn, args[0])
        vm.heap.note_write(args[0])  # perhaps: C code changes nothing but its first argument
    try:
        result = fn(*args, **(kwargs or {}))
    except Exception as error:
        raise failed(vm, error, fn, args, kwargs) from None
    if vm.policy.not_rebuilt:
        refuse_not_rebuilt(vm, result)
    return result


def failed(vm: VM, error: BaseException, fn: Any, args: tuple[Any, ...],
           kwargs: dict[str, Any] | None) -> Break | Raised:
    """The exception for an error of C code; special methods that it may have missed are guarded."""
    if is_a(error, RecursionError):  # how deep the call may go depends on the frames around it
        return Break("SB011", f"values nested too deep for {describe_callable(fn)}")
    if is_a(error, (TypeError, KeyError)):
        guard_refused(vm, args, kwargs)
    return Raised(error, chained=error is vm.escaped)  # from interpreted code: C code lets it pass


def refuse_not_rebuilt(vm: VM, result: object) -> None:
    """Break at the call that makes a value which an earlier trace could not rebuild."""
    for value in (result, *result) if type(result) is tuple else (result,):
        if type(value) in vm.policy.not_rebuilt and id(value) not in vm.heap.by_standin:
            raise Break("SB007", f"a {module_of(type(value))}.{type(value).__qualname__}")


def place_in_table(vm: VM, tensor: FakeTensor) -> int:
    """Hash of a tensor in a dict or a set: only identity counts, which is guarded once for a parameter."""
    refuse_patched(vm, "__hash__")
    tracker = vm.heap.by_standin.get(id(tensor))
    if tracker is None:
        return id(tensor)
    if is_a(tracker.original, torch.nn.Parameter):
        vm.heap.guard(tracker.source, Kind.ID, tracker.original)
    return id(tracker.original)


def intercepted(vm: VM, func: types.FunctionType, args: tuple[Any, ...], closure: object = None) -> Any:
    """The PEP 523 hook: C code entered a Python function while tracing."""
    if args and (asked := _OF_NUMBERS.get(id(func.__code__))) is not None and type(args[0]) in SYMBOLIC:
        return asked(specialise(args[0], f"{asked.__name__}()"))  # inside an object of C code: operator.itemgetter(n)
    if torch_leaf(func) or args and type(args[0]) in SYMBOLIC and func.__code__.co_filename.startswith(_TORCH):
        return _hook.RUN_ALL
    if func.__code__ is _TENSOR_HASH and type(args[0]) is FakeTensor:
        return place_in_table(vm, args[0])
    func = guard_callback(vm, func, args)
    if (func.__defaults__ or func.__kwdefaults__) and id(func) not in vm.fresh:
        args = with_defaults(vm, func, args)
    try:
        result = call_bound(vm, func, args)
        if type(result) in UNREAD:
            raise unread(result, f"the answer of {func.__name__}, which C code asks for")
        if vm.functions.formatting:  # json writes what `default` answers
            result = symbolic_numbers.specialise_deep(vm, result)
        if func.__name__ in number_warnings.CONVERSIONS:
            result = number_warnings.number_for_c(vm, func.__name__, result)
        if type(result) is types.GeneratorType:
            return vm.walked(result)
        if id(result) in vm.heap.by_standin:
            vm.heap.expose(result)
        for held in containers_behind(result):  # `return iter(vm.items)`
            vm.heap.expose(held)
        return symbolic_numbers.truth(vm, result) if type(result) is torch.SymBool else result
    except Raised as raised:
        vm.escaped = raised.exc
        raise raised.exc from None


def with_defaults(vm: VM, func: types.FunctionType, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of a call by C code, with the user's defaults that CPython has filled in; equal ones must stay so."""
    code, raw, bound = func.__code__, func.__defaults__ or (), list(args)
    first = code.co_argcount - len(raw)
    for slot in range(first, code.co_argcount + code.co_kwonlyargcount):
        name = code.co_varnames[slot]
        given = raw[slot - first] if slot < code.co_argcount else (func.__kwdefaults__ or {}).get(name, UNBOUND)
        if bound[slot] is given:
            found = function_defaults(vm, func)[slot - first] if slot < code.co_argcount else \
                keyword_default(vm, func, name)
            bound[slot] = specialise(found, f"the default of {name}") if type(found) in SYMBOLIC else found
    return tuple(bound)


def guard_callback(vm: VM, func: types.FunctionType, args: tuple[Any, ...]) -> types.FunctionType:
    """Guard a function that C code found on a class (`__eq__`, `__hash__`, ...); return it as patched."""
    if vm.classes.making:
        note_class_in_making(vm, func.__name__, args)
    cls = type(args[0]) if args else type(None)
    if any(base.__dict__.get(func.__name__) is func for base in cls.__mro__):
        found = find(vm, cls, func.__name__)
        vm.guard_special_methods(args[0])
        return found if type(found) is types.FunctionType else func
    if is_mutable_class(cls):
        names = [name for base in cls.__mro__ for name, value in base.__dict__.items() if value is func]
        for name in names:
            find(vm, cls, name)
        if names:
            vm.guard_special_methods(args[0])
    return func


def guard_special_methods(vm: VM, value: object) -> None:
    """C code asks an object: what its class has for C code to find, and what it has not, must stay so."""
    cls = type(value)
    if cls not in vm.classes.asked and is_mutable_class(cls) and id(cls) not in vm.fresh \
            and cls not in UNREAD and cls not in SYMBOLIC and cls is not FakeTensor:
        vm.classes.asked.add(cls)
        for name in _SPECIAL_METHODS:
            find(vm, cls, name)


def guard_slots_of_tensors(vm: VM) -> None:
    """C code has refused a tensor, perhaps for a special method that it has not got."""
    vm.recorder.slots_used.update(_SPECIAL_METHODS)


def note_class_in_making(vm: VM, name: str, args: tuple[Any, ...]) -> None:
    """type.__new__ shows the class it makes to these before it returns it (to the third through C code)."""
    place = {"__set_name__": 1, "__init_subclass__": 0, "_generic_init_subclass": 0}.get(name)
    if place is not None and len(args) > place and is_a(args[place], type):
        vm.fresh[id(args[place])] = args[place]


def call_bound(vm: VM, func: types.FunctionType, args: tuple[Any, ...]) -> Any:
    """Run a function whose arguments CPython has already bound to its local slots."""
    found = RULES.get(id(func))
    if found is not None and not func.__code__.co_flags & 0x0C and not func.__code__.co_kwonlyargcount:
        return vm.sync(lambda: found(vm, args, {}, None))
    unit = decode(func.__code__)
    slots = list(args) + [UNBOUND] * (unit.nlocalsplus - len(args))
    slots = [value.force() if type(value) is Box else value for value in slots]
    frame = Frame(unit, program_of(unit), func, slots, vm.heap.scope(func.__globals__))
    if id(func) not in vm.fresh:
        vm.guard_code(func)
    return vm.run(frame)


def _callback(target: Any) -> Callable[..., Any]:
    """A C callable as a Python function, for C code that will call it."""
    def invoke(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)
    invoke.__code__ = invoke.__code__.replace(co_filename="<callback>")
    return invoke


def _require_read(fn: Callable[..., Any], receiver: object) -> None:
    """A method of a C type works on the object itself, not on what stands for it unread."""
    if type(fn) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        raise unread(receiver, fn.__name__)


def function_defaults(vm: VM, func: types.FunctionType) -> tuple[Any, ...]:
    raw = func.__defaults__ or ()
    if id(func) in vm.fresh:
        return raw
    found = vm.functions.defaults.get(id(func))
    if found is None:
        source = Attr(vm.heap.source_of(func), "__defaults__")
        if raw and type(root_of(source)) is not Pinned:  # of a function that is made anew in each call
            vm.heap.guard(source, Kind.TYPE, tuple)
            vm.heap.guard(source, Kind.LEN, len(raw))
        else:
            vm.heap.guard(source, Kind.ID, func.__defaults__) if func.__defaults__ is not None else \
                vm.heap.guard(source, Kind.EQUALS, None)
        found = vm.functions.defaults[id(func)] = tuple(
            value if value is None else vm.heap.adopt(value, Index(source, i)) for i, value in enumerate(raw))
    return found


def keyword_default(vm: VM, func: types.FunctionType, name: str) -> Any:
    """Out of the table as the program sees it: it may have written to it."""
    raw = func.__kwdefaults__
    if id(func) in vm.fresh:
        return UNBOUND if raw is None else dict.get(raw, name, UNBOUND)
    source = Attr(vm.heap.source_of(func), "__kwdefaults__")
    if raw is None:
        vm.heap.guard(source, Kind.EQUALS, None)
        return UNBOUND
    table = vm.heap.adopt(raw, source)
    if type(table) in UNREAD:  # of a function that is made anew in each call
        raise unread(table)
    value = dict.get(table, name, UNBOUND)
    if type(value) is Box:
        return value.force()
    if value is UNBOUND:
        if name in raw:  # CPython, which words the error, would find it
            raise Break("SB006", "a call after the program has removed a default of the function")
        vm.heap.guard(source, Kind.ABSENT, name)
    return value
