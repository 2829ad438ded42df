"""Rules for descriptors called by hand, and for the operator and functools modules."""

from __future__ import annotations

import functools
import operator
import types
import warnings
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.code.intrinsics import GET_FROM_PARTIAL
from stator.host.suspended_patches import original
from stator.host.value_kinds import is_a
from stator.interp.calls.allowed_calls import C_CALLABLES
from stator.interp.calls.call_protocol import merged_keywords
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.objects import operators
from stator.interp.objects.assignment import GiveNone, store_attr
from stator.interp.objects.attributes import load_attr
from stator.interp.objects.descriptors import bind_class_method
from stator.interp.objects.items import contains, delete_item, get_item, set_item
from stator.interp.objects.native_attributes import read_c_member
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.source import Pinned

_SYMBOLS = {id(function): (symbol, number == 1) for symbol, functions in operators.BINARY.items()
            for number, function in enumerate(functions[:2])}


def require_target(vm: VM, getter: Any, descr: Any, obj: object, owner: object) -> None:
    """Raise CPython's own error for a descriptor of no object and no class."""
    if obj is None and owner is None:
        vm.native_unhooked(getter, (descr, obj, owner))


@rule(types.FunctionType.__get__)
def _function_get(vm: VM, callee: object, function: Any, obj: object, owner: object = None, /) -> Any:
    require_target(vm, callee, function, obj, owner)
    return function if obj is None else types.MethodType(function, obj)


@rule(*[getattr(types.MethodType, "__get__")] if hasattr(types.MethodType, "__get__") else [])
def _method_get(vm: VM, callee: object, method: object, obj: object, owner: object = None, /) -> object:
    """A bound method is a descriptor since 3.13, and stays bound to what it was bound to."""
    require_target(vm, callee, method, obj, owner)
    return method


@suspending_rule(property.__get__)
def _property_get(vm: VM, cont: Any, callee: Any, descr: Any, obj: Any, owner: Any = None, /) -> None:
    require_target(vm, callee, descr, obj, owner)
    if obj is None:
        return vm.give(descr, cont)
    if descr.fget is None:
        vm.native_unhooked(callee, (descr, obj))  # raises what eager raises
    vm.call(descr.fget, (obj,), {}, cont)


@suspending_rule(property.__set__)
def _property_set(vm: VM, cont: Any, callee: Any, descr: Any, obj: Any, value: Any, /) -> None:
    if descr.fset is None:
        vm.native_unhooked(callee, (descr, obj, value))  # raises what eager raises
    vm.call(descr.fset, (obj, value), {}, GiveNone(cont))


@suspending_rule(property.__delete__)
def _property_delete(vm: VM, cont: Any, callee: Any, descr: Any, obj: Any, /) -> None:
    if descr.fdel is None:
        vm.native_unhooked(callee, (descr, obj))  # raises what eager raises
    vm.call(descr.fdel, (obj,), {}, GiveNone(cont))


@suspending_rule(classmethod.__get__)
def _classmethod_get(vm: VM, cont: Any, callee: Any, descr: Any, obj: Any, owner: Any = None, /) -> None:
    require_target(vm, callee, descr, obj, owner)
    bind_class_method(vm, descr, type(obj) if owner is None else owner, cont)


@rule(staticmethod.__get__)
def _staticmethod_get(vm: VM, callee: object, descr: Any, obj: object, owner: object = None, /) -> Any:
    require_target(vm, callee, descr, obj, owner)
    return descr.__func__


@rule(property.getter, property.setter, property.deleter, operator.attrgetter, operator.itemgetter,
      operator.methodcaller, *([property.__set_name__] if hasattr(property, "__set_name__") else []))
def _only_keeps(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    """It keeps what it is given, and looks at nothing of it."""
    return vm.native_unhooked(callee, args, kwargs)


@suspending_rule(types.GetSetDescriptorType.__get__, types.MemberDescriptorType.__get__, unasked=True)
def _member_get(vm: VM, cont: Continuation | None, callee: object, descr: Any, obj: object, owner: object = None,
                /) -> None:
    require_target(vm, callee, descr, obj, owner)
    if obj is None:
        return vm.give(descr, cont)
    name = descr.__name__
    if type(obj) is FakeTensor and original(name) is descr:  # perhaps called by what the program put in its place
        return vm.give_tensor_member(obj, vm.recorder.services.class_of(obj), name, descr, cont)
    read_c_member(vm, descr, obj, cont)


suspending_rule(*[kind.__call__ for kind in (types.FunctionType, types.MethodType, *C_CALLABLES)], operator.call)(
    lambda vm, cont, function, /, *args, **kwargs: vm.call(function, args, kwargs, cont))
suspending_rule(staticmethod.__call__)(
    lambda vm, cont, descr, /, *args, **kwargs: vm.call(descr.__func__, args, kwargs, cont))


_SYMBOLS |= {id(functions[0]): (symbol, False) for table in (operators.COMPARE, operators.UNARY)
             for symbol, functions in table.items()}


@suspending_rule(*[function for functions in operators.BINARY.values() for function in functions[:2]])
def _binary(vm: VM, cont: Continuation | None, callee: object, left: object, right: object, /) -> None:
    symbol, inplace = _SYMBOLS[id(callee)]
    operators.binary(vm, symbol, left, right, inplace, cont)


def parts_of_getter(vm: VM, getter: Any) -> tuple[Any, tuple[Any, ...]]:
    """Parts of an attrgetter, itemgetter or methodcaller; stand-ins for those of an outside one."""
    function, parts = getter.__reduce__()[:2]
    if not vm.heap.is_opaque(getter):
        return function, parts
    vm.guard_identity(getter)
    if type(function) is functools.partial:
        keywords = {name: vm.heap.adopt(value, Pinned(value)) for name, value in function.keywords.items()}
        function = functools.partial(function.func, *function.args, **keywords)
    return function, tuple(vm.heap.adopt(part, Pinned(part)) for part in parts)


@rule(operator.attrgetter.__call__)
def _attrgetter(vm: VM, getter: object, obj: object, /) -> Any:
    found = []
    for name in parts_of_getter(vm, getter)[1]:
        value = obj
        for part in name.split("."):
            value = vm.sync(lambda: load_attr(vm, value, part))  # noqa: B023
        found.append(value)
    return found[0] if len(found) == 1 else tuple(found)


@suspending_rule(operator.itemgetter.__call__)
def _itemgetter(vm: VM, cont: Continuation | None, getter: object, obj: object, /) -> None:
    keys = parts_of_getter(vm, getter)[1]
    if len(keys) == 1:
        return get_item(vm, obj, keys[0], cont)
    vm.give(tuple([vm.sync(lambda: get_item(vm, obj, key)) for key in keys]), cont)  # noqa: B023


@suspending_rule(operator.methodcaller.__call__)
def _methodcaller(vm: VM, cont: Continuation | None, caller: object, obj: object, /) -> None:
    function, parts = parts_of_getter(vm, caller)
    keywords: dict[str, Any] = {}
    if type(function) is functools.partial:
        name, keywords, positional = function.args[0], function.keywords, parts
    else:
        name, positional = parts[0], tuple(parts[1:])
    vm.call(vm.sync(lambda: load_attr(vm, obj, name)), positional, dict(keywords), cont)


@suspending_rule(functools.partial.__call__)
def _partial_call(vm: VM, cont: Any, partial: Any, /, *args: Any, **kwargs: Any) -> None:
    if vm.heap.is_opaque(partial):
        raise Break("SB005", f"a call of a {type(partial).__name__}, which no guard can read")
    vm.call(partial.func, (*partial.args, *args), merged_keywords(partial, kwargs), cont)


def _bind_partial(vm: VM, partial: object, obj: object, owner: object = None, /) -> object:
    """A descriptor since 3.13, which only warns that it will bind; later ones bind."""
    if obj is None or GET_FROM_PARTIAL:
        if obj is not None:
            vm.call_sync(warnings.warn, (GET_FROM_PARTIAL, FutureWarning))
        return partial
    return vm.native_unhooked(getattr(functools.partial, "__get__"), (partial, obj, owner))


if hasattr(functools.partial, "__get__"):
    rule(getattr(functools.partial, "__get__"))(_bind_partial)


class NoteAlias(Continuation):
    """After `list[int]()`: set `__orig_class__` on the new object, if it takes attributes."""

    __slots__ = ("alias", "cont")
    resumes, held = True, ("alias",)

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        try:
            vm.sync(lambda: store_attr(vm, value, "__orig_class__", self.alias, None))
        except Raised as raised:
            if not is_a(raised.exc, (AttributeError, TypeError)):
                raise
        vm.give(value, self.cont)


suspending_rule(*[functions[0] for functions in operators.COMPARE.values()])(
    lambda vm, cont, callee, left, right, /: operators.compare(vm, _SYMBOLS[id(callee)][0], left, right, cont))
suspending_rule(*[functions[0] for functions in operators.UNARY.values()])(
    lambda vm, cont, callee, value, /: operators.unary(vm, _SYMBOLS[id(callee)][0], value, cont))
suspending_rule(operator.getitem)(lambda vm, cont, obj, key, /: get_item(vm, obj, key, cont))
suspending_rule(operator.setitem)(lambda vm, cont, obj, key, value, /: set_item(vm, obj, key, value, GiveNone(cont)))
suspending_rule(operator.delitem)(lambda vm, cont, obj, key, /: delete_item(vm, obj, key, GiveNone(cont)))
suspending_rule(operator.contains)(lambda vm, cont, container, item, /: contains(vm, container, item, False, cont))
rule(operator.is_)(lambda vm, left, right, /: operators.identical(vm, left, right))
rule(operator.is_not)(lambda vm, left, right, /: not operators.identical(vm, left, right))
rule(operator.truth)(lambda vm, value, /: operators.truth(vm, value))
rule(operator.not_)(lambda vm, value, /: not operators.truth(vm, value))
suspending_rule(operator.invert, operator.inv, *([bool.__invert__] if "__invert__" in vars(bool) else []))(
    lambda vm, cont, value, /: operators.unary(vm, "~", value, cont))
suspending_rule(types.GenericAlias.__call__)(
    lambda vm, cont, alias, /, *args, **kwargs: vm.call(alias.__origin__, args, kwargs, NoteAlias(alias, cont)))
