"""Rules for builtins that ask about objects: attributes, types, identity, iteration, classes."""

from __future__ import annotations

import _abc
import abc
import builtins
import functools
import operator
import sys
import types
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.source import CallOf, Pinned
from stator.heap.box import Box
from stator.heap.tracker import Shape
from stator.interp import generators, operators, symbols
from stator.interp.assignment import GiveNone, delete_attr, delete_generic, store_attr, store_generic
from stator.interp.attributes import load_attr, load_generic, load_type_attr, read_c_member, tensor_class
from stator.interp.calls import instantiate, rule
from stator.interp.frame import UNBOUND, Continuation, Frame, Raised
from stator.interp.lookup import MISSING, find
from stator.interp.ops_data import read_cell
from stator.kinds import is_a
from stator.shapes.values import SYMBOLIC, python_type

# ---------------------------------------------------------------------- attributes


class OrDefault(Continuation):
    """getattr with a default, hasattr: AttributeError is an answer."""

    __slots__ = ("cont", "found", "default")

    def __init__(self, cont: Any, found: Any, default: Any) -> None:
        self.cont, self.found, self.default = cont, found, default

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        vm.give(value if self.found is MISSING else self.found, self.cont)

    def raised(self, vm: Any, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, AttributeError):
            return False
        vm.give(self.default, self.cont)
        return True


def _try_load(vm: Any, obj: Any, name: Any, cont: Any) -> None:
    frame = vm.frame
    try:
        load_attr(vm, obj, name, cont)
    except Raised as raised:
        if vm.frame is not frame or not cont.raised(vm, frame, raised.exc):
            raise


@rule(getattr)
def _getattr(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if len(args) not in (2, 3) or kwargs:
        return vm.give(vm.native_unhooked(getattr, args, kwargs), cont)
    if not is_a(args[1], str):
        raise Raised(TypeError("attribute name must be string, not " f"'{type(args[1]).__name__}'"))
    if len(args) == 2:
        return load_attr(vm, args[0], args[1], cont)
    _try_load(vm, args[0], args[1], OrDefault(cont, MISSING, args[2]))


@rule(hasattr)
def _hasattr(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    obj, name = args
    _try_load(vm, obj, name, OrDefault(cont, True, False))


@rule(setattr)
def _setattr(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    store_attr(vm, *args, GiveNone(cont))


@rule(delattr)
def _delattr(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    delete_attr(vm, *args, GiveNone(cont))


@rule(object.__getattribute__)
def _object_getattribute(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    load_generic(vm, args[0], args[1], cont, fallback=False)


@rule(object.__setattr__, type.__setattr__)
def _object_setattr(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    store_generic(vm, args[0], args[1], args[2], GiveNone(cont))


@rule(object.__delattr__, type.__delattr__)
def _object_delattr(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    delete_generic(vm, args[0], args[1], GiveNone(cont))


@rule(type.__getattribute__)
def _type_getattribute(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    load_type_attr(vm, args[0], args[1], cont, fallback=False)


@rule(vars)
def _vars(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if not args:
        return _locals(vm, args, kwargs, cont)
    load_attr(vm, args[0], "__dict__", cont)


@rule(locals)
def _locals(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    frame = vm.frame
    if frame.names is not None:
        return vm.give(frame.names, cont)
    found: dict[str, Any] = {}
    for slot, name in enumerate(frame.unit.local_names):
        value = frame.locals[slot]
        if slot in frame.unit.cell_slots or slot in frame.unit.free_slots:
            value = read_cell(frame, slot) if type(value) is types.CellType else value
        if type(value) is Box:
            value = value.force()
        if value is not UNBOUND:
            found[name] = value
    vm.give(found, cont)


@rule(globals)
def _globals(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(vm.frame.scope.view(), cont)


@rule(eval, exec)
def _eval(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    raise Break("SB001", "eval() or exec() of code made at run time")


@rule(dir)
def _dir(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if not args:
        out: list[Any] = []
        vm.sync(lambda: _locals(vm, (), {}, None), out)
        return vm.give(sorted(out[0]), cont)
    tracker = vm.heap.tracker_of(args[0])
    if tracker is not None:
        if tracker.shape in (Shape.OPAQUE, Shape.TENSOR):
            raise Break("SB005", f"dir() of a {type(args[0]).__name__} from outside")
        vm.heap.expose_attributes(tracker)
    elif is_a(args[0], (type, types.ModuleType)) and id(args[0]) not in vm.fresh:
        raise Break("SB005", "dir() of a class or module")
    vm.give(vm.native(dir, args), cont)


# ---------------------------------------------------------------------- types


def is_instance(vm: Any, obj: Any, cls: Any) -> bool:
    if is_a(cls, tuple):
        vm.heap.expose(cls)
        return any(is_instance(vm, obj, item) for item in cls)
    if is_a(cls, types.UnionType):
        return any(is_instance(vm, obj, item) for item in cls.__args__)
    if type(obj) in SYMBOLIC:
        return is_subclass(vm, python_type(obj), cls)
    seen_type = tensor_class(vm, obj) if type(obj) is FakeTensor else type(obj)
    return _check_class(vm, obj, seen_type, cls, "__instancecheck__", obj)


def is_subclass(vm: Any, sub: Any, cls: Any) -> bool:
    if is_a(cls, tuple):
        vm.heap.expose(cls)
        return any(is_subclass(vm, sub, item) for item in cls)
    if is_a(cls, types.UnionType):
        return any(is_subclass(vm, sub, item) for item in cls.__args__)
    if not is_a(sub, type):
        raise Raised(TypeError("issubclass() arg 1 must be a class"))
    return _check_class(vm, sub, sub, cls, "__subclasscheck__", sub)


def _check_class(vm: Any, obj: Any, seen_type: type, cls: Any, hook: str, argument: Any) -> bool:
    if seen_type is cls:
        return True
    meta = type(cls)
    if meta is type:
        if cls in seen_type.__mro__:
            return True
        if hook == "__subclasscheck__" or type(obj) is FakeTensor:
            return False
        claimed = find(vm, type(obj), "__class__")
        if type(claimed) is types.GetSetDescriptorType:
            return False
        out: list[Any] = []
        vm.sync(lambda: load_attr(vm, obj, "__class__"), out)
        return is_a(out[0], type) and cls in out[0].__mro__
    check = find(vm, meta, hook)
    if type(check) is types.FunctionType and check.__module__ != "abc":
        if cls is torch.nn.Parameter or cls is torch.nn.Buffer:
            return seen_type is cls or type(obj) is FakeTensor and getattr(obj, "_is_param", False) \
                and cls is torch.nn.Parameter
        return operators.truth(vm, vm.call_sync(check, (cls, argument)))
    if type(obj) is FakeTensor:
        if is_a(cls, abc.ABCMeta):
            guard_registrations(vm, cls, seen_type)
            return issubclass(seen_type, cls)
        if meta is torch.tensortype if hasattr(torch, "tensortype") else False:
            return is_a(obj, cls)
        return cls in seen_type.__mro__ if is_a(cls, type) else vm.native(isinstance, (obj, cls))
    if is_a(cls, abc.ABCMeta):
        guard_registrations(vm, cls, seen_type)
    function = isinstance if hook == "__instancecheck__" else issubclass
    return vm.native(function, (argument, cls))


@rule(isinstance)
def _isinstance(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if len(args) != 2:
        return vm.give(vm.native_unhooked(isinstance, args, kwargs), cont)
    vm.give(is_instance(vm, *args), cont)


@rule(issubclass)
def _issubclass(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(is_subclass(vm, *args), cont)


@rule(type)
def _type(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if len(args) == 1 and not kwargs:
        return vm.give(tensor_class(vm, args[0]) if type(args[0]) is FakeTensor else python_type(args[0]), cont)
    new_class(vm, type, args, kwargs, cont)


@rule(type.__new__)
def _type_new(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if len(args) != 4:
        return vm.give(vm.native_unhooked(type.__new__, args, kwargs), cont)
    new_class(vm, args[0], args[1:], kwargs, cont)


def new_class(vm: Any, meta: type, args: Any, kwargs: Any, cont: Any) -> None:
    """type.__new__: C code, which calls `__set_name__` and `__init_subclass__` back through the hook."""
    name, bases, namespace = args
    vm.heap.expose(bases)
    vm.heap.expose(namespace)
    namespace = {key: value.force() if type(value) is Box else value for key, value in namespace.items()}
    vm.making_classes += 1
    try:
        cls = vm.native(type.__new__, (meta, name, bases, namespace), kwargs)
    finally:
        vm.making_classes -= 1
    vm.fresh[id(cls)] = cls
    vm.give(cls, cont)


@rule(type.__init__)
def _type_init(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(None, cont)


@rule(type.__call__)
def _type_call(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if args[0] is type:
        return _type(vm, args[1:], kwargs, cont)
    instantiate(vm, args[0], args[1:], kwargs, cont)


@rule(type.__dict__["__prepare__"])
def _type_prepare(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give({}, cont)


@rule(type.__instancecheck__)
def _type_instancecheck(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    seen = tensor_class(vm, args[1]) if type(args[1]) is FakeTensor else type(args[1])
    vm.give(args[0] in seen.__mro__, cont)


@rule(type.__subclasscheck__)
def _type_subclasscheck(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(args[0] in args[1].__mro__, cont)


@rule(type.mro)
def _type_mro(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(list(args[0].__mro__), cont)


@rule(type.__or__, type.__ror__)
def _type_or(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(vm.native_unhooked(type.__or__, args, kwargs), cont)


@rule(type.__repr__)
def _type_repr(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(vm.native_unhooked(type.__repr__, args, kwargs), cont)


@rule(callable)
def _callable(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(find(vm, type(args[0]), "__call__") is not MISSING, cont)


def _holder_rule(cls: type) -> Any:
    def make(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        vm.give(vm.native_unhooked(cls, args, kwargs), cont)
    return make


for _cls in (property, classmethod, staticmethod, types.MethodType, types.CellType):
    rule(_cls)(_holder_rule(_cls))


@rule(super)
def _super(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if args:
        return vm.give(vm.native_unhooked(super, args, kwargs), cont)
    frame = vm.frame
    code = frame.code
    if not code.co_argcount and not code.co_posonlyargcount and "self" not in frame.unit.local_names[:1]:
        if not frame.locals or not code.co_varnames or code.co_varnames[0] not in (".0",):
            raise Raised(RuntimeError("super(): no arguments"))
    first = frame.locals[0]
    if type(first) is types.CellType:
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
    vm.give(vm.native_unhooked(super, (cls, first)), cont)


# ---------------------------------------------------------------------- class statements


@rule(builtins.__build_class__)
def _build_class(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    body, name, *original_bases = args
    bases = _resolve_bases(vm, tuple(original_bases))
    keywords = dict(kwargs)
    meta = keywords.pop("metaclass", None)
    if meta is None:
        meta = type(bases[0]) if bases else type
    if is_a(meta, type):
        meta = _most_derived(meta, bases)
    prepare = vm.optional_attr(meta, "__prepare__")
    namespace = {} if prepare is MISSING else vm.call_sync(prepare, (name, bases), keywords)
    frame = vm.frame_for(body, (), None)
    frame.names = namespace
    try:
        cell = vm.run(frame)
    except Exception as error:
        raise Raised(error) from None
    if bases != tuple(original_bases):
        namespace["__orig_bases__"] = tuple(original_bases)
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
    vm.give(cls, cont)


def _resolve_bases(vm: Any, bases: tuple[Any, ...]) -> tuple[Any, ...]:
    found: list[Any] = []
    for base in bases:
        if is_a(base, type):
            found.append(base)
            continue
        entries = vm.optional_attr(base, "__mro_entries__")
        if entries is MISSING:
            found.append(base)
        else:
            found.extend(vm.call_sync(entries, (bases,)))
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


# ---------------------------------------------------------------------- identity


@rule(id)
def _id(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(id(vm.guard_identity(args[0])), cont)


@rule(hash)
def _hash(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    value = symbols.specialise_deep(vm, args[0])
    method = find(vm, type(value), "__hash__") if type(value) is not FakeTensor else object.__hash__
    if type(method) is types.FunctionType and type(value) is not FakeTensor:
        return vm.call_function(method, (value,), None, cont)
    if method is object.__hash__ or method is torch.Tensor.__hash__:
        return vm.give(object.__hash__(vm.guard_identity(value)), cont)
    vm.heap.expose_deep(value)
    vm.give(vm.native(hash, (value,)), cont)


@rule(object.__hash__)
def _object_hash(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(object.__hash__(vm.guard_identity(args[0])), cont)


# ---------------------------------------------------------------------- iteration


@rule(iter)
def _iter(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if len(args) == 1:
        return vm.get_iter(args[0], cont)
    vm.give(vm.native(iter, args), cont)


@rule(next)
def _next(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    iterator = args[0]
    body = vm.generators.get(id(iterator))
    if body is not None:
        call = generators.NextCall(cont, args[1], True) if len(args) == 2 else generators.NextCall(cont)
        return generators.resume(vm, body, None, call)
    if len(args) == 1:
        return vm.call_next(iterator, cont)
    value = vm.next_or_missing(iterator)
    vm.give(args[1] if value is MISSING else value, cont)


@rule(len)
def _len(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if len(args) != 1:
        return vm.give(vm.native_unhooked(len, args, kwargs), cont)
    value = args[0]
    cls = type(value)
    if cls is FakeTensor:
        if value.dim() == 0:
            raise Raised(TypeError("len() of a 0-d tensor"))
        return vm.give(value.shape[0], cont)
    method = find(vm, cls, "__len__")
    if type(method) is types.FunctionType:
        return vm.call_function(method, (value,), None, LengthOf(cont))
    vm.heap.expose_length(value)
    vm.give(vm.native(len, args), cont)


class LengthOf(Continuation):
    """len(): `__len__` must answer with a non-negative int."""

    __slots__ = ("cont",)

    def __init__(self, cont: Any) -> None:
        self.cont = cont

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        vm.give(operators.check_length(value), self.cont)


@rule(bool)
def _bool(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if len(args) != 1 or kwargs:
        return vm.give(vm.native_unhooked(bool, args, kwargs), cont)
    if type(args[0]) in SYMBOLIC:
        return vm.give(symbols.as_bool(vm, args[0]), cont)
    vm.give(operators.truth(vm, args[0]), cont)


# ---------------------------------------------------------------------- generator methods


def _body(vm: Any, generator: Any) -> Any:
    body = vm.generators.get(id(generator))
    if body is None:
        raise Break("SB014", f"a {type(generator).__name__} from outside")
    return body


@rule(types.GeneratorType.send, types.CoroutineType.send)
def _send(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    generators.resume(vm, _body(vm, args[0]), args[1], generators.NextCall(cont))


@rule(types.GeneratorType.__next__)
def _generator_next(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    generators.resume(vm, _body(vm, args[0]), None, generators.NextCall(cont))


@rule(types.GeneratorType.__iter__)
def _generator_iter(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(args[0], cont)


@rule(types.CoroutineType.__await__)
def _await(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(args[0], cont)


@rule(types.GeneratorType.throw, types.CoroutineType.throw)
def _throw(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    body = _body(vm, args[0])
    kind, value = args[1], args[2] if len(args) > 2 else None
    if is_a(kind, type) and issubclass(kind, BaseException):
        exc = value if is_a(value, kind) else vm.call_sync(kind, () if value is None else (value,))
    elif is_a(kind, BaseException):
        exc = kind
    else:
        raise Raised(TypeError("exceptions must be classes or instances deriving from BaseException, "
                               f"not {type(kind).__name__}"))
    generators.throw(vm, body, exc, generators.NextCall(cont))


@rule(types.GeneratorType.close, types.CoroutineType.close)
def _close(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    body = _body(vm, args[0])
    if body.done or not body.started:
        body.done, body.frame = True, None
        return vm.give(None, cont)
    generators.throw(vm, body, GeneratorExit(), generators.CloseCall(cont))


@rule(sys.exc_info)
def _exc_info(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    exc = vm.exc_state.topmost()
    vm.give((None, None, None) if exc is None else (type(exc), exc, exc.__traceback__), cont)


@rule(sys.exception)
def _sys_exception(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(vm.exc_state.topmost(), cont)


# ---------------------------------------------------------------------- descriptors called by hand


@rule(types.FunctionType.__get__)
def _function_get(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    function, obj = args[0], args[1]
    vm.give(function if obj is None else types.MethodType(function, obj), cont)


@rule(types.FunctionType.__call__, types.MethodType.__call__)
def _function_call(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.call(args[0], args[1:], kwargs, cont)


@rule(property.__get__)
def _property_get(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    descr, obj = args[0], args[1]
    if obj is None:
        return vm.give(descr, cont)
    if descr.fget is None:
        raise Raised(AttributeError("property has no getter"))
    vm.call(descr.fget, (obj,), {}, cont)


@rule(property.__set__)
def _property_set(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.call(args[0].fset, (args[1], args[2]), {}, GiveNone(cont))


@rule(classmethod.__get__)
def _classmethod_get(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    owner = args[2] if len(args) > 2 and args[2] is not None else type(args[1])
    vm.give(types.MethodType(args[0].__func__, owner), cont)


@rule(staticmethod.__get__)
def _staticmethod_get(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(args[0].__func__, cont)


@rule(staticmethod.__call__)
def _staticmethod_call(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.call(args[0].__func__, args[1:], kwargs, cont)


def _unhooked_rule(function: Any) -> Any:
    def run(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        vm.give(vm.native_unhooked(function, args, kwargs), cont)
    return run


for _function in (property.getter, property.setter, property.deleter, property.__set_name__
                  if hasattr(property, "__set_name__") else property.getter):
    rule(_function)(_unhooked_rule(_function))


@rule(types.GetSetDescriptorType.__get__, types.MemberDescriptorType.__get__)
def _member_get(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if args[1] is None:
        return vm.give(args[0], cont)
    read_c_member(vm, args[0], args[1], cont)


# ---------------------------------------------------------------------- operator and functools objects


def _operator_rules() -> None:
    for symbol, (function, inplace, _) in operators.BINARY.items():
        def binary(vm: Any, args: Any, kwargs: Any, cont: Any, symbol: str = symbol) -> None:
            operators.binary(vm, symbol, args[0], args[1], False, cont)
        def binary_inplace(vm: Any, args: Any, kwargs: Any, cont: Any, symbol: str = symbol) -> None:
            operators.binary(vm, symbol, args[0], args[1], True, cont)
        rule(function)(binary)
        rule(inplace)(binary_inplace)
    for symbol, (function, _, _) in operators.COMPARE.items():
        def compare(vm: Any, args: Any, kwargs: Any, cont: Any, symbol: str = symbol) -> None:
            operators.compare(vm, symbol, args[0], args[1], cont)
        rule(function)(compare)
    for symbol, (function, _) in operators.UNARY.items():
        def unary(vm: Any, args: Any, kwargs: Any, cont: Any, symbol: str = symbol) -> None:
            operators.unary(vm, symbol, args[0], cont)
        rule(function)(unary)


_operator_rules()


@rule(operator.getitem)
def _getitem(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    operators.get_item(vm, args[0], args[1], cont)


@rule(operator.setitem)
def _setitem(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    operators.set_item(vm, *args, GiveNone(cont))


@rule(operator.delitem)
def _delitem(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    operators.delete_item(vm, *args, GiveNone(cont))


@rule(operator.contains)
def _contains(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    operators.contains(vm, args[0], args[1], False, cont)


@rule(operator.truth)
def _truth(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(operators.truth(vm, args[0]), cont)


@rule(operator.not_)
def _not(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(not operators.truth(vm, args[0]), cont)


@rule(operator.attrgetter.__call__)
def _attrgetter(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    names = args[0].__reduce__()[1]
    found = []
    for name in names:
        value = args[1]
        for part in name.split("."):
            out: list[Any] = []
            vm.sync(lambda: load_attr(vm, value, part), out)  # noqa: B023
            value = out[0]
        found.append(value)
    vm.give(found[0] if len(found) == 1 else tuple(found), cont)


@rule(operator.itemgetter.__call__)
def _itemgetter(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    keys = args[0].__reduce__()[1]
    if len(keys) == 1:
        return operators.get_item(vm, args[1], keys[0], cont)
    found = []
    for key in keys:
        out: list[Any] = []
        vm.sync(lambda: operators.get_item(vm, args[1], key), out)  # noqa: B023
        found.append(out[0])
    vm.give(tuple(found), cont)


@rule(operator.methodcaller.__call__)
def _methodcaller(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    function, parts = args[0].__reduce__()[:2]
    keywords: dict[str, Any] = {}
    if type(function) is functools.partial:
        name, keywords, positional = function.args[0], function.keywords, parts
    else:
        name, *positional = parts
    out: list[Any] = []
    vm.sync(lambda: load_attr(vm, args[1], name), out)
    vm.call(out[0], tuple(positional), dict(keywords), cont)


@rule(functools.partial.__call__)
def _partial_call(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    function = args[0]
    vm.call(function.func, (*function.args, *args[1:]), {**function.keywords, **kwargs}, cont)


for _cls in (operator.attrgetter, operator.itemgetter, operator.methodcaller):
    rule(_cls)(_holder_rule(_cls))


# ---------------------------------------------------------------------- abstract base classes


def guard_registrations(vm: Any, cls: type, seen: type) -> None:
    """A class may be registered with an abstract one later: the count of registrations is a fact."""
    if is_a(seen, type) and cls not in type.__dict__["__mro__"].__get__(seen):
        vm.heap.guard(CallOf(Pinned(_abc.get_cache_token)), Kind.FRESH_CALL, _abc.get_cache_token())


@rule(_abc._abc_instancecheck)
def _abc_instancecheck(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    seen = tensor_class(vm, args[1]) if type(args[1]) is FakeTensor else type(args[1])
    guard_registrations(vm, args[0], seen)
    vm.give(vm.native(_abc._abc_subclasscheck, (args[0], seen)), cont)


@rule(_abc._abc_subclasscheck)
def _abc_subclasscheck(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    guard_registrations(vm, args[0], args[1])
    vm.give(vm.native(_abc._abc_subclasscheck, args), cont)


@rule(_abc.get_cache_token)
def _abc_token(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(_abc.get_cache_token(), cont)


@rule(_abc._abc_init)
def _abc_init(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if id(args[0]) not in vm.fresh:
        raise Break("SB006", "initialising an abstract base class from outside")
    vm.give(vm.native(_abc._abc_init, args), cont)


# ---------------------------------------------------------------------- dicts, one key at a time


@rule(dict.get)
def _dict_get(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    mapping, key = args[0], args[1] if len(args) > 1 else None
    if len(args) not in (2, 3) or type(key) not in operators.SCALARS:
        vm.heap.expose(mapping)
        vm.heap.expose_deep(key)
        return vm.give(vm.native(dict.get, args), cont)
    tracker = vm.heap.tracker_of(mapping)
    if tracker is not None and key not in tracker.initial:
        vm.heap.guard(tracker.source, Kind.ABSENT, key)
    value = dict.get(mapping, *args[1:])
    vm.give(value.force() if type(value) is Box else value, cont)


@rule(dict.keys)
def _dict_keys(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    tracker = vm.heap.tracker_of(args[0])
    if tracker is not None:
        vm.heap.expose_keys(tracker)
    vm.give(dict.keys(args[0]), cont)


@rule(dict.items)
def _dict_items(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.heap.expose(args[0])
    vm.give(vm.native_unhooked(dict.items, args), cont)


@rule(dict.values)
def _dict_values(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.heap.expose(args[0])
    vm.give(vm.native_unhooked(dict.values, args), cont)


def _exposing_rule(function: Any) -> Any:
    def run(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        tracker = vm.heap.tracker_of(args[0])
        if tracker is not None:
            if tracker.shape in (Shape.OPAQUE, Shape.TENSOR):
                raise Break("SB005", f"{function.__name__} of a {type(args[0]).__name__}")
            vm.heap.expose(args[0])
            vm.heap.expose_attributes(tracker)
        vm.give(vm.native(function, args, kwargs), cont)
    return run


for _function in (object.__reduce_ex__, object.__reduce__, object.__getstate__, object.__dir__):
    rule(_function)(_exposing_rule(_function))
