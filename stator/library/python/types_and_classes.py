"""Rules for classes: isinstance, type(), super(), class statements, abstract base classes."""

from __future__ import annotations

import _abc
import abc
import builtins
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.code.intrinsics import ODD_CLASS_KEYS
from stator.heap.iterators.peekable_iterators import posed_class
from stator.heap.tracker import Box
from stator.host.garbage_collection import request_collection
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.calls.instantiation import instantiate
from stator.interp.frame import UNBOUND, Raised
from stator.interp.lookup import MISSING, ancestors, find
from stator.interp.noted_effects import PlainCall, note
from stator.interp.objects import operators
from stator.interp.objects.attributes import load_attr, tensor_class
from stator.interp.objects.descriptors import TensorSuper
from stator.interp.objects.object_texts import guard_names
from stator.interp.objects.weak_access import PROXIES
from stator.interp.opcodes.name_opcodes import read_cell
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.torch_function_protocol import refuse_patched
from stator.interp.vm import VM
from stator.library.python.class_makers import caller_module
from stator.library.python.finalizers import interpret_finalizer
from stator.shapes.symbolic_values import SYMBOLIC, python_type, specialise
from stator.source import Pinned

DEEPEST = 100  # levels of bases, and of tuples of classes, that are walked
_PLAIN_CHECKS = (MISSING, type.__dict__["__subclasscheck__"])
_TENSOR_TYPES = type(torch.FloatTensor)
# The hook of a protocol looks whether a function of the module abc is asking.
_asked_by_abc = types.FunctionType((lambda cls, seen: abc.ABCMeta.__subclasscheck__(cls, seen)).__code__,
                                   {"__name__": "abc", "abc": abc})


def is_abstract_subclass(vm: VM, derived: Any, cls: Any) -> bool:
    """type.__subclasscheck__, and issubclass() where no class has a check of its own."""
    if is_a(derived, type) and is_a(cls, type):
        return cls in ancestors(vm, derived)
    require_bases(vm, derived, "issubclass() arg 1 must be a class")
    require_bases(vm, cls, "issubclass() arg 2 must be a class, a tuple of classes, or a union")
    return has_base(vm, derived, cls)


def require_bases(vm: VM, cls: type, text: str) -> None:
    if not is_a(cls, type) and bases_of(vm, cls) is None:
        raise Raised(TypeError(text))


def has_base(vm: VM, derived: Any, cls: object, depth: int = 0) -> bool:
    if derived is cls:
        return True
    require_shallow(depth)
    return any(has_base(vm, base, cls, depth + 1) for base in bases_of(vm, derived) or ())


def bases_of(vm: VM, cls: type) -> tuple[Any, ...] | None:
    """The tuple that `cls.__bases__` gives; None for another value or none at all."""
    bases = vm.optional_attr(cls, "__bases__")
    if not is_a(bases, tuple):
        return None
    vm.heap.expose(bases)
    return bases


def require_shallow(depth: int) -> None:
    """Break at a depth at which CPython may raise RecursionError: that depends on the frames around the call."""
    if depth > DEEPEST:
        raise Break("SB011", f"classes nested {DEEPEST} levels deep in isinstance() or issubclass()")


def is_any(vm: VM, check: Any, obj: object, classes: Any, depth: int) -> bool:
    if is_a(classes, types.UnionType):
        return any(check(vm, obj, item) for item in classes.__args__)
    require_shallow(depth)
    vm.heap.expose(classes)
    return any(check(vm, obj, item, depth + 1) for item in classes)


def is_instance(vm: VM, obj: object, cls: object, depth: int = 0) -> bool:
    if is_a(cls, (tuple, types.UnionType)):
        return is_any(vm, is_instance, obj, cls, depth)
    if type(obj) in SYMBOLIC:
        if not is_a(cls, type):  # its own check, or an error about it
            return is_instance(vm, specialise(obj, "isinstance()"), cls)
        return is_subclass(vm, python_type(obj), cls)
    posed = posed_class(vm.heap, obj)
    if posed is not None:
        if type(cls) is not type and type(cls) is not abc.ABCMeta:  # their checks ask the class alone
            raise Break("SB014", f"isinstance() of a {posed.__name__} from outside")
        return posed is cls or _check_class(vm, posed, posed, cls, "__subclasscheck__", posed)
    seen_type = tensor_class(vm, obj) if type(obj) is FakeTensor else type(obj)
    return seen_type is cls or _check_class(vm, obj, seen_type, cls, "__instancecheck__", obj)


def is_subclass(vm: VM, sub: Any, cls: Any, depth: int = 0) -> bool:
    if is_a(cls, (tuple, types.UnionType)):
        return is_any(vm, is_subclass, sub, cls, depth)
    if type(cls) is type or find(vm, type(cls), "__subclasscheck__") in _PLAIN_CHECKS:
        return is_abstract_subclass(vm, sub, cls)
    return _check_class(vm, sub, sub, cls, "__subclasscheck__", sub)


def _check_class(vm: VM, obj: Any, seen_type: type, cls: Any, hook: str, argument: object) -> bool:
    meta = type(cls)
    if meta is type:
        if cls in ancestors(vm, seen_type):
            return True
        return hook != "__subclasscheck__" and type(obj) is not FakeTensor and _is_claimed(vm, obj, cls)
    check = find(vm, meta, hook)
    if type(check) is types.FunctionType and check.__module__ != "abc":
        if not is_a(seen_type, type):
            return operators.truth(vm, vm.call_sync(check, (cls, argument)))
        plain = type(obj) is FakeTensor or torch.Tensor not in ancestors(vm, seen_type)
        if plain and (cls is torch.nn.Parameter or cls is torch.nn.Buffer):
            return cls in ancestors(vm, seen_type) or type(obj) is FakeTensor and (
                getattr(obj, "_is_param", False) and cls is torch.nn.Parameter or _claims(vm, obj, cls))
        if type(obj) is FakeTensor and meta is type(torch.nn.Parameter):  # of a subclass it asks the class alone
            return cls in ancestors(vm, seen_type)
        return operators.truth(vm, vm.call_sync(check, (cls, argument)))
    if type(obj) is FakeTensor:
        if is_a(cls, abc.ABCMeta):
            guard_registrations(vm, cls, seen_type)
            return issubclass(seen_type, cls)
        if meta is _TENSOR_TYPES:  # torch.FloatTensor: dtype, layout and device
            device = "cuda" if cls.is_cuda else "xpu" if cls.is_xpu else "cpu"
            return obj.dtype is cls.dtype and obj.layout is cls.layout and obj.device.type == device
        return cls in ancestors(vm, seen_type) if is_a(cls, type) else vm.native(isinstance, (obj, cls))
    if is_a(cls, abc.ABCMeta):
        guard_registrations(vm, cls, seen_type)
    return vm.native(isinstance if hook == "__instancecheck__" else issubclass, (argument, cls))


def _is_claimed(vm: VM, obj: object, cls: type) -> bool:
    """Whether the `__class__` of an object makes it one of a class."""
    try:
        claimed = claimed_class(vm, obj)
    except Raised as raised:
        if not is_a(raised.exc, AttributeError):
            raise
        return False
    return is_a(claimed, type) and cls in ancestors(vm, claimed)


def claimed_class(vm: VM, obj: object) -> Any:
    """The value of `obj.__class__`; None where it is the type's own descriptor."""
    if type(obj) not in PROXIES and type(find(vm, type(obj), "__class__")) is types.GetSetDescriptorType \
            and type(find(vm, type(obj), "__getattribute__")) is types.WrapperDescriptorType:
        return None
    return vm.sync(lambda: load_attr(vm, obj, "__class__"))


def _claims(vm: VM, fake: FakeTensor, cls: type) -> bool:
    """torch.nn.Buffer(t), and Parameter(t) of a subclass, stay of t's class, and have an attribute with their kind."""
    name = "_is_buffer" if cls is torch.nn.Buffer else "_is_param"
    if cls is torch.nn.Parameter and id(fake) not in vm.recorder.classes:
        return False
    try:
        claim = vm.sync(lambda: load_attr(vm, fake, name))
    except Raised:
        return False
    return operators.truth(vm, claim)


@rule(type, unread=True, unasked=True)
def _type(vm: VM, /, *args: object, **kwargs: object) -> Any:
    if len(args) == 1 and not kwargs:
        if (posed := posed_class(vm.heap, args[0])) is not None:
            return posed
        return tensor_class(vm, args[0]) if type(args[0]) is FakeTensor else python_type(args[0])
    return vm.native_unhooked(type, args, kwargs) if len(args) != 3 else new_class(vm, type, *args, kwargs)


@rule(type.__new__)
def _type_new(vm: VM, /, *args: Any, **kwargs: Any) -> Any:
    return vm.native_unhooked(type.__new__, args, kwargs) if len(args) != 4 else new_class(vm, *args, kwargs)


def new_class(vm: VM, meta: type, name: object, bases: Any, namespace: Any, kwargs: object) -> Any:
    """type.__new__: C code, which calls `__set_name__` and `__init_subclass__` back through the hook."""
    if not is_a(bases, tuple) or not is_a(namespace, dict):
        return vm.native_unhooked(type.__new__, (meta, name, bases, namespace), kwargs)  # raises
    vm.heap.expose(bases)
    vm.heap.expose(namespace)
    namespace = {key: value.force() if type(value) is Box else value for key, value in namespace.items()}
    if ODD_CLASS_KEYS and any(type(key) is not str for key in namespace):
        raise Break("SB013", "a class whose namespace has keys that are no strings: CPython warns", asks_caller=True)
    if "__module__" not in namespace and (module := caller_module(vm, 0)) is not MISSING:
        namespace["__module__"] = module  # C code would ask the frame that it finds: one of ours
    interpret_finalizer(vm, namespace)
    for owner, called in [(type(each), "__set_name__") for each in namespace.values()] + [
            (base, "__init_subclass__") for base in bases if is_a(base, type) and base.__mro__ is not None]:
        find(vm, owner, called)  # a guard: C code may call it
    vm.classes.making += 1
    try:
        if any(is_a(base, type) and torch.Tensor in (base.__mro__ or ()) for base in bases):  # None: mro() runs
            refuse_patched(vm, "__init_subclass__")
        cls = vm.native(type.__new__, (meta, name, bases, namespace), kwargs)
    finally:
        vm.classes.making -= 1
    vm.fresh[id(cls)] = cls
    if any(id(base) not in vm.fresh and base is not object for base in bases):
        request_collection()  # the program's class lists this one among its subclasses until it is collected
    return cls


@rule(torch._C._TensorMeta.__init__)
def _tensor_class_init(vm: VM, cls: object, /, *args: object, **kwargs: object) -> Any:
    """Of a class that the trace has made: C code that prepares its slots."""
    if id(cls) not in vm.fresh:
        raise Break("SB006", "a tensor class initialised again")
    return vm.native_unhooked(torch._C._TensorMeta.__init__, (cls, *args), kwargs)


@suspending_rule(type.__call__)
def _type_call(vm: VM, cont: Any, cls: Any, /, *args: Any, **kwargs: Any) -> None:
    if cls is type:
        return vm.give(_type(vm, *args, **kwargs), cont)
    instantiate(vm, cls, args, kwargs, cont)


@rule(type.__instancecheck__)
def _type_instancecheck(vm: VM, cls: type, obj: object, /) -> Any:
    """isinstance() past the metaclass."""
    seen = seen_class(vm, obj)
    return cls in ancestors(vm, seen) or seen is type(obj) and _is_claimed(vm, obj, cls)


def seen_class(vm: VM, obj: object) -> type:
    """The class that the program's own object has, behind a fake, an open number or a stand-in that poses."""
    if type(obj) is FakeTensor:
        return tensor_class(vm, obj)  # type: ignore[no-any-return]
    return python_type(obj) if type(obj) in SYMBOLIC else posed_class(vm.heap, obj) or type(obj)


@rule(type.mro)
def _type_mro(vm: VM, cls: Any, /) -> list[type]:
    for each in (cls, *cls.__bases__) if cls.__mro__ is not None else cls.__bases__:  # None: it is being made
        ancestors(vm, each)
    return vm.native_unhooked(type.mro, (cls,))  # type: ignore[no-any-return]


@rule(type.__repr__)
def _type_repr(vm: VM, cls: object, /) -> Any:
    guard_names(vm, cls)
    return vm.native_unhooked(type.__repr__, (cls,))


def super_of(vm: VM, cls: type, fake: FakeTensor) -> TensorSuper:
    seen = tensor_class(vm, fake)
    if not is_a(cls, type) or cls not in ancestors(vm, seen):
        vm.native_unhooked(super, (cls, type(seen.__name__, (), {})()))  # raises CPython's own error
    return TensorSuper(cls, fake, seen)


@rule(super)
def _super(vm: VM, /, *args: Any) -> Any:
    if len(args) == 2 and type(args[1]) is FakeTensor:
        return super_of(vm, *args)
    if args:
        return vm.native_unhooked(super, args)
    cls, first = around_super(vm)
    return super_of(vm, cls, first) if type(first) is FakeTensor else vm.native_unhooked(super, (cls, first))


def around_super(vm: VM) -> tuple[Any, Any]:
    """The class and the object that super() without arguments finds in the frame that calls."""
    frame = vm.running
    code = frame.code
    if not code.co_argcount and not code.co_posonlyargcount and "self" not in frame.unit.local_names[:1]:
        if not frame.locals or not code.co_varnames or code.co_varnames[0] not in (".0",):
            raise Raised(RuntimeError("super(): no arguments"))
    first = frame.locals[0]
    if type(first) is types.CellType and 0 in frame.unit.cell_slots:
        first = read_cell(frame, 0)
    if type(first) is Box:
        first = first.force()
    if first is UNBOUND:
        raise Raised(RuntimeError("super(): arg[0] deleted"))
    names = frame.unit.local_names
    slots = [slot for slot in frame.unit.free_slots if names[slot] == "__class__"]
    if not slots:
        raise Raised(RuntimeError("super(): __class__ cell not found"))
    cls = read_cell(frame, slots[0])
    if cls is UNBOUND:
        raise Raised(RuntimeError("super(): empty __class__ cell"))
    return cls, first


rule(isinstance, unread=True, unasked=True)(lambda vm, obj, cls, /: is_instance(vm, obj, cls))
rule(issubclass, unasked=True)(lambda vm, sub, cls, /: is_subclass(vm, sub, cls))
rule(type.__init__)(lambda vm, /, *args, **kwargs: None)
rule(type.__dict__["__prepare__"])(lambda vm, /, *args, **kwargs: {})
rule(type.__subclasscheck__)(lambda vm, cls, sub, /: is_abstract_subclass(vm, sub, cls))
rule(callable, unread=True, unasked=True)(lambda vm, obj, /: find(vm, type(obj), "__call__") is not MISSING)
rule(property, classmethod, staticmethod, types.MethodType, types.CellType, type.__or__, type.__ror__,
     property.__new__, property.__init__)(  # of a subclass, whose `__init__` is interpreted
    lambda vm, callee, /, *args, **kwargs: vm.native_unhooked(callee, args, kwargs))


@rule(builtins.__build_class__)
def _build_class(vm: VM, body: Any, name: object, /, *original_bases: Any, metaclass: Any = None,
                 **keywords: Any) -> Any:
    bases = _resolve_bases(vm, original_bases)
    meta = metaclass
    if meta is None:
        meta = type(bases[0]) if bases else type
    if is_a(meta, type):
        meta = _most_derived(meta, bases)
    prepare = vm.optional_attr(meta, "__prepare__")
    namespace = {} if prepare is MISSING else vm.call_sync(prepare, (name, bases), keywords)
    if find(vm, type(namespace), "__getitem__") is MISSING:
        said = f"__prepare__() must return a mapping, not {name_in_errors(type(namespace))}"
        raise Raised(TypeError(f"{meta.__name__ if is_a(meta, type) else '<metaclass>'}.{said}"))
    frame = vm.frame_for(body, (), None)
    frame.names = namespace
    try:
        cell = vm.run(frame)
    except Exception as error:
        raise Raised(error) from None
    if bases != original_bases:
        namespace["__orig_bases__"] = original_bases
    cls = vm.call_sync(meta, (name, bases, namespace), keywords)
    if type(cell) is types.CellType and is_a(cls, type):
        try:
            held = cell.cell_contents
        except ValueError:
            held = MISSING
        if held is MISSING:
            raise Raised(RuntimeError(f"__class__ not set defining {name!r} as {cls!r}. "
                                      "Was __classcell__ propagated to type.__new__?"))
        if held is not cls:
            raise Raised(TypeError(f"__class__ set to {held!r} defining {name!r} as {cls!r}"))
    return cls


def _resolve_bases(vm: VM, bases: tuple[Any, ...]) -> tuple[Any, ...]:
    found: list[Any] = []
    for base in bases:
        if is_a(base, type):
            found.append(base)
            continue
        entries = vm.optional_attr(base, "__mro_entries__")
        if entries is MISSING:
            found.append(base)
        else:
            given = vm.call_sync(entries, (bases,))
            if not is_a(given, tuple):
                raise Raised(TypeError("__mro_entries__ must return a tuple"))
            found.extend(vm.collect(given))
    return tuple(found)


def _most_derived(meta: type, bases: tuple[Any, ...]) -> type:
    winner = meta
    for base in bases:
        kind = type(base)
        if kind in winner.__mro__:
            continue
        if winner in kind.__mro__:
            winner = kind
            continue
        raise Raised(TypeError("metaclass conflict: the metaclass of a derived class must be a (non-strict) "
                               "subclass of the metaclasses of all its bases"))
    return winner


def guard_registrations(vm: VM, cls: type, seen: type) -> Any:
    """Guard whether a class counts as a subclass of an abstract one, which it may be registered with later."""
    answer = vm.native(_abc._abc_subclasscheck, (cls, seen))
    if is_a(seen, type) and cls not in ancestors(vm, seen) and id(cls) not in vm.fresh:
        reader = _abc._abc_subclasscheck if type(cls) is abc.ABCMeta else _asked_by_abc
        for each in ancestors(vm, seen) if id(seen) in vm.fresh else (seen,):  # one made inside has no registrations
            if id(each) not in vm.fresh:
                vm.heap.guard_call(reader, vm.native(_abc._abc_subclasscheck, (cls, each)), Pinned(cls), Pinned(each))
    return answer


@rule(_abc._abc_instancecheck)
def _abc_instancecheck(vm: VM, cls: Any, obj: object, /) -> bool:
    seen = seen_class(vm, obj)
    if seen is not type(obj):
        return guard_registrations(vm, cls, seen)
    claimed = claimed_class(vm, obj)
    if claimed is not None and not is_a(claimed, type):
        raise Raised(TypeError("issubclass() arg 1 must be a class"))
    return claimed is not None and _counts_as_subclass(vm, cls, claimed) or _counts_as_subclass(vm, cls, type(obj))


def _counts_as_subclass(vm: VM, cls: type, seen: type) -> bool:
    if type(cls) is abc.ABCMeta:
        return bool(guard_registrations(vm, cls, seen))
    return operators.truth(vm, vm.call_sync(find(vm, type(cls), "__subclasscheck__"), (cls, seen)))


@rule(_abc._abc_init)
def _abc_init(vm: VM, cls: object, /) -> Any:
    if id(cls) not in vm.fresh:
        raise Break("SB006", "initialising an abstract base class from outside")
    return vm.native(_abc._abc_init, (cls,))


@rule(_abc._abc_register)
def _abc_register(vm: VM, cls: type, sub: type, /) -> object:
    if id(cls) not in vm.fresh and (id(sub) not in vm.fresh or is_a(sub, abc.ABCMeta)):  # else it goes with the trace
        raise Break("SB006", "registering a class with an abstract base class from outside")
    registered = vm.native(_abc._abc_register, (cls, sub))
    note(vm, PlainCall(abc.ABCMeta.register, (cls, sub), {}), False)  # hooks of typing look for a frame of abc
    return registered


@rule(_abc._reset_registry, _abc._reset_caches)
def _abc_reset(vm: VM, callee: Callable[[object], None], cls: object, /) -> None:
    if id(cls) not in vm.fresh:
        raise Break("SB006", "registrations with an abstract base class from outside are removed")
    vm.native(callee, (cls,))
    note(vm, PlainCall(callee, (cls,), {}), False)


rule(_abc._abc_subclasscheck)(lambda vm, cls, sub, /: guard_registrations(vm, cls, sub))
rule(_abc.get_cache_token)(lambda vm: _abc.get_cache_token())
