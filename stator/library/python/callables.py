"""Rules for descriptors called by hand, and for the operator and functools modules."""

from __future__ import annotations

import functools
import operator
import types
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator.host.suspended_patches import original
from stator.host.value_kinds import is_a
from stator.interp.calls.native_calls import C_CALLABLES
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.objects import operators
from stator.interp.objects.assignment import GiveNone, store_attr
from stator.interp.objects.attributes import load_attr
from stator.interp.objects.descriptors import bind_class_method, read_c_member
from stator.interp.objects.items import delete_item, get_item, set_item
from stator.interp.objects.membership import contains
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.source import Pinned

# ---------------------------------------------------------------------- descriptors called by hand


def getter_rule(*getters: Any) -> Any:
    """Register how `__get__` is called by hand; of no object and no class CPython refuses it in its own words."""
    def register(function: Any) -> Any:
        for each in getters:
            def checked(vm: VM, args: Any, kwargs: Any, cont: Any, each: Any = each) -> None:
                if args[1] is None and (len(args) == 2 or args[2] is None):
                    return vm.give(vm.native_unhooked(each, args, kwargs), cont)
                function(vm, args, kwargs, cont)
            rule(each, arity=(2, 3))(checked)
        return function
    return register


@getter_rule(types.FunctionType.__get__)
def _function_get(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    function, obj = args[0], args[1]
    vm.give(function if obj is None else types.MethodType(function, obj), cont)


@rule(*[kind.__call__ for kind in (types.FunctionType, types.MethodType, *C_CALLABLES)], operator.call)
def _function_call(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    vm.call(args[0], args[1:], kwargs, cont)


@getter_rule(property.__get__)
def _property_get(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    descr, obj = args[0], args[1]
    if obj is None:
        return vm.give(descr, cont)
    if descr.fget is None:
        return _refused(vm, property.__get__, args)
    vm.call(descr.fget, (obj,), {}, cont)


def _refused(vm: VM, access: Any, args: Any) -> None:
    """What a property does not allow is refused in CPython's own words."""
    vm.native_unhooked(access, args, {})


@rule(property.__set__, arity=(3,))
def _property_set(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    if args[0].fset is None:
        return _refused(vm, property.__set__, args)
    vm.call(args[0].fset, (args[1], args[2]), {}, GiveNone(cont))


@rule(property.__delete__, arity=(2,))
def _property_delete(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    if args[0].fdel is None:
        return _refused(vm, property.__delete__, args)
    vm.call(args[0].fdel, (args[1],), {}, GiveNone(cont))


@getter_rule(classmethod.__get__)
def _classmethod_get(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    owner = args[2] if len(args) > 2 and args[2] is not None else type(args[1])
    bind_class_method(vm, args[0], owner, cont)


@getter_rule(staticmethod.__get__)
def _staticmethod_get(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(args[0].__func__, cont)


@rule(staticmethod.__call__)
def _staticmethod_call(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    vm.call(args[0].__func__, args[1:], kwargs, cont)


def _unhooked_rule(function: Any) -> Any:
    def run(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        vm.give(vm.native_unhooked(function, args, kwargs), cont)
    return run


for _function in (property.getter, property.setter, property.deleter, property.__set_name__
                  if hasattr(property, "__set_name__") else property.getter):
    rule(_function)(_unhooked_rule(_function))


@getter_rule(types.GetSetDescriptorType.__get__, types.MemberDescriptorType.__get__)
def _member_get(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    if args[1] is None:
        return vm.give(args[0], cont)
    name = args[0].__name__
    if type(args[1]) is FakeTensor and original(name) is args[0]:  # perhaps called by what the program put in its place
        return vm.give_tensor_member(args[1], vm.recorder.services.class_of(args[1]), name, args[0], cont)
    read_c_member(vm, args[0], args[1], cont)


# ---------------------------------------------------------------------- operator and functools objects


def _operator_rules() -> None:
    for symbol, (function, inplace, _) in operators.BINARY.items():
        def binary(vm: VM, args: Any, kwargs: Any, cont: Any, symbol: str = symbol) -> None:
            operators.binary(vm, symbol, args[0], args[1], False, cont)
        def binary_inplace(vm: VM, args: Any, kwargs: Any, cont: Any, symbol: str = symbol) -> None:
            operators.binary(vm, symbol, args[0], args[1], True, cont)
        rule(function, arity=(2,))(binary)
        rule(inplace, arity=(2,))(binary_inplace)
    for symbol, (function, _, _) in operators.COMPARE.items():
        def compare(vm: VM, args: Any, kwargs: Any, cont: Any, symbol: str = symbol) -> None:
            operators.compare(vm, symbol, args[0], args[1], cont)
        rule(function, arity=(2,))(compare)
    for symbol, (function, _) in operators.UNARY.items():
        def unary(vm: VM, args: Any, kwargs: Any, cont: Any, symbol: str = symbol) -> None:
            operators.unary(vm, symbol, args[0], cont)
        rule(function, arity=(1,))(unary)


_operator_rules()


@rule(operator.getitem, arity=(2,))
def _getitem(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    get_item(vm, args[0], args[1], cont)


@rule(operator.setitem, arity=(3,))
def _setitem(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    obj, key, value = args
    set_item(vm, obj, key, value, GiveNone(cont))


@rule(operator.delitem, arity=(2,))
def _delitem(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    obj, key = args
    delete_item(vm, obj, key, GiveNone(cont))


@rule(operator.contains, arity=(2,))
def _contains(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    contains(vm, args[0], args[1], False, cont)


@rule(operator.is_, arity=(2,))
def _is(vm: VM, args: Any, kwargs: Any) -> Any:
    return operators.identical(vm, *args)


@rule(operator.is_not, arity=(2,))
def _is_not(vm: VM, args: Any, kwargs: Any) -> Any:
    return not operators.identical(vm, *args)


@rule(operator.truth, arity=(1,))
def _truth(vm: VM, args: Any, kwargs: Any) -> Any:
    return operators.truth(vm, args[0])


@rule(operator.not_, arity=(1,))
def _not(vm: VM, args: Any, kwargs: Any) -> Any:
    return not operators.truth(vm, args[0])


@rule(operator.invert, operator.inv, *([bool.__invert__] if "__invert__" in vars(bool) else []), arity=(1,))
def _invert(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    operators.unary(vm, "~", args[0], cont)


def parts_of_getter(vm: VM, getter: Any) -> tuple[Any, tuple[Any, ...]]:
    """What an attrgetter, itemgetter or methodcaller was made from; from outside: stand-ins of it."""
    function, parts = getter.__reduce__()[:2]
    if not vm.heap.is_opaque(getter):
        return function, parts
    vm.guard_identity(getter)
    if type(function) is functools.partial:
        keywords = {name: vm.heap.adopt(value, Pinned(value)) for name, value in function.keywords.items()}
        function = functools.partial(function.func, *function.args, **keywords)
    return function, tuple(vm.heap.adopt(part, Pinned(part)) for part in parts)


@rule(operator.attrgetter.__call__)
def _attrgetter(vm: VM, args: Any, kwargs: Any) -> Any:
    names = parts_of_getter(vm, args[0])[1]
    found = []
    for name in names:
        value = args[1]
        for part in name.split("."):
            out: list[Any] = []
            vm.sync(lambda: load_attr(vm, value, part), out)  # noqa: B023
            value = out[0]
        found.append(value)
    return found[0] if len(found) == 1 else tuple(found)


@rule(operator.itemgetter.__call__)
def _itemgetter(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    keys = parts_of_getter(vm, args[0])[1]
    if len(keys) == 1:
        return get_item(vm, args[1], keys[0], cont)
    found = []
    for key in keys:
        out: list[Any] = []
        vm.sync(lambda: get_item(vm, args[1], key), out)  # noqa: B023
        found.append(out[0])
    vm.give(tuple(found), cont)


@rule(operator.methodcaller.__call__)
def _methodcaller(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    function, parts = parts_of_getter(vm, args[0])
    keywords: dict[str, Any] = {}
    if type(function) is functools.partial:
        name, keywords, positional = function.args[0], function.keywords, parts
    else:
        name, positional = parts[0], tuple(parts[1:])
    out: list[Any] = []
    vm.sync(lambda: load_attr(vm, args[1], name), out)
    vm.call(out[0], positional, dict(keywords), cont)


@rule(functools.partial.__call__)
def _partial_call(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    function = args[0]
    vm.call(function.func, (*function.args, *args[1:]), {**function.keywords, **kwargs}, cont)


class NoteAlias(Continuation):
    """After `list[int]()`: the new object is told what it was called as, if it can be."""

    __slots__ = ("alias", "cont")
    resumes, held = True, ("alias",)

    def __init__(self, alias: Any, cont: Any) -> None:
        self.alias, self.cont = alias, cont

    def returned(self, vm: VM, frame: Frame, value: Any) -> None:
        out: list[Any] = []
        try:
            vm.sync(lambda: store_attr(vm, value, "__orig_class__", self.alias, None), out)
        except Raised as raised:
            if not is_a(raised.exc, (AttributeError, TypeError)):
                raise
        vm.give(value, self.cont)


@rule(types.GenericAlias.__call__)
def _alias_call(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    alias = args[0]
    vm.call(alias.__origin__, args[1:], kwargs, NoteAlias(alias, cont))


for _cls in (operator.attrgetter, operator.itemgetter, operator.methodcaller):
    rule(_cls)(_unhooked_rule(_cls))
