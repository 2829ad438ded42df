"""Rules for Python's introspection.   inspect.signature(f)  ->  a fresh Signature, guarded;  sys.getrecursionlimit()

Of an outside function the code is guarded; defaults and annotations are handed out unread, in boxes.  Queries of
installed packages have no guard (docs/decisions/0003-installed-packages.md).  sys._getframe() breaks in a caller that
really calls: frames that are read run natively.
"""

from __future__ import annotations

import _thread
import copyreg
import functools
import importlib.metadata
import importlib.util
import inspect
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import torch

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.pure_readers import mapping_behind
from stator.heap.tracker import Box
from stator.host.value_kinds import is_a, mro_of
from stator.interp.calls.native_calls import function_defaults, keyword_default
from stator.interp.frame import UNBOUND, Continuation, Raised
from stator.interp.lookup import MISSING, find, is_mutable_class
from stator.interp.objects.assignment import DISCARD, store_on_class
from stator.interp.objects.attributes import read_instance_dict
from stator.interp.objects.descriptors import load_module_attr
from stator.interp.rule_registry import INTERPRETED, rule, suspending_rule
from stator.interp.suspend import chain
from stator.interp.vm import VM
from stator.source import Attr, DictOf, Key, Pinned

_VARARGS, _VARKEYWORDS = 0x04, 0x08
_PARAMETER = inspect.Parameter
_FOLLOWED = ("__wrapped__", "__signature__", "__text_signature__", "_partialmethod", "__partialmethod__")
WHY = "sys._getframe: frames of the program do not exist in the compiled function"


@rule(inspect.signature)
def _signature(vm: VM, obj: Any, *, follow_wrapped: Any = True, globals: Any = None, locals: Any = None,
               eval_str: Any = False) -> Any:
    if follow_wrapped is True and globals is None and locals is None and eval_str is False:
        function, bound = obj, 0
        if type(function) is types.MethodType:
            function, bound = function.__func__, 1
        function = _unwrapped(vm, function)
        if function is not None and function.__code__.co_argcount >= bound:
            return signature_of(vm, function, bound)
    return INTERPRETED


def _unwrapped(vm: VM, function: Callable[..., Any]) -> types.FunctionType | None:
    """The function whose parameters count, behind `__wrapped__`; None where inspect has more to ask."""
    seen: set[int] = set()
    while type(function) is types.FunctionType and id(function) not in seen:
        seen.add(id(function))
        if any(read_instance_dict(vm, function, name) is not MISSING for name in _FOLLOWED[1:]):
            return None
        inner = read_instance_dict(vm, function, "__wrapped__")
        if inner is MISSING:
            return function
        function = inner
    return None


def signature_of(vm: VM, function: types.FunctionType, bound: int) -> inspect.Signature:
    """A new Signature; its first `bound` parameters are already given."""
    if id(function) not in vm.fresh:
        vm.guard_code(function)
    code = function.__code__
    names, positional = code.co_varnames, code.co_argcount
    defaults = function_defaults(vm, function)
    annotations = _annotations(vm, function)
    found = []

    def add(name: str, kind: Any, default: Any) -> None:
        found.append(_PARAMETER(name, kind, default=default, annotation=annotations.get(name, _PARAMETER.empty)))

    for slot in range(bound, positional):
        place = slot - (positional - len(defaults))
        kind = _PARAMETER.POSITIONAL_ONLY if slot < code.co_posonlyargcount else _PARAMETER.POSITIONAL_OR_KEYWORD
        add(names[slot], kind, defaults[place] if place >= 0 else _PARAMETER.empty)
    total = positional + code.co_kwonlyargcount
    if code.co_flags & _VARARGS:
        add(names[total], _PARAMETER.VAR_POSITIONAL, _PARAMETER.empty)
    for slot in range(positional, total):
        default = keyword_default(vm, function, names[slot])
        add(names[slot], _PARAMETER.KEYWORD_ONLY, _PARAMETER.empty if default is UNBOUND else default)
    if code.co_flags & _VARKEYWORDS:
        add(names[total + bool(code.co_flags & _VARARGS)], _PARAMETER.VAR_KEYWORD, _PARAMETER.empty)
    return inspect.Signature(found, return_annotation=annotations.get("return", inspect.Signature.empty),
                             __validate_parameters__=False)


def _annotations(vm: VM, function: types.FunctionType) -> dict[str, Any]:
    """The annotations by name, unread; which names have one is a fact."""
    raw = function.__annotations__
    if id(function) in vm.fresh:
        return dict(raw)
    source = Attr(vm.heap.source_of(function), "__annotations__")
    vm.heap.guard(source, Kind.KEYS, tuple(raw))
    return {name: Box(vm.heap, value, Key, source, name) for name, value in raw.items()}


@rule(getattr(copyreg, "_slotnames"))
def _slotnames(vm: VM, cls: Any) -> list[str]:
    """copyreg keeps its answer on the class, which the program can see: so does the residual, once."""
    names: list[str] = []
    if is_a(cls, type):
        for base in mro_of(cls):
            slots = base.__dict__.get("__slots__", ())
            if type(slots) is not str:
                find(vm, base, "__slots__")
            for name in (slots,) if type(slots) is str else slots:
                if name in ("__dict__", "__weakref__"):
                    continue
                stripped = base.__name__.lstrip("_")
                private = name.startswith("__") and not name.endswith("__") and stripped
                names.append(f"_{stripped}{name}" if private else name)
        if is_mutable_class(cls):
            known = "__slotnames__" in cls.__dict__
            if id(cls) not in vm.fresh:
                vm.heap.guard(DictOf(Pinned(cls)), Kind.PRESENT if known else Kind.ABSENT, "__slotnames__")
                known = known or "__slotnames__" in vm.classes.overlays.get(cls, {})
            if not known:
                store_on_class(vm, cls, "__slotnames__", names, DISCARD)
    return names


@suspending_rule(torch.jit.ScriptFunction.__dict__["__call__"])
def _call_scripted(vm: VM, cont: Continuation | None, scripted: Any, /, *args: object, **kwargs: object) -> None:
    """torch.jit.script keeps the function it was given, which is what is captured; torch.jit.trace freezes more."""
    function = read_instance_dict(vm, scripted, "_torchdynamo_inline")
    known = torch.jit._state._try_get_jit_cached_function(function) if type(function) is types.FunctionType else None
    if known is None or known.qualified_name != scripted.qualified_name:
        raise Break("SB001", "a TorchScript function that was not made by torch.jit.script")
    vm.call(function, args, kwargs, cont)


@suspending_rule(types.MappingProxyType.get)
def _proxy_get(vm: VM, cont: Any, proxy: Any, /, *args: Any) -> None:
    vm.call(vm.sync(lambda: vm.load_attr(mapping_behind(proxy), "get")), args, {}, cont)


# The frames of a traceback that the trace made hold nothing to be cleared
rule(traceback.clear_frames)(
    lambda vm, tb: INTERPRETED if id(tb) in vm.heap.by_standin or type(tb) is not types.TracebackType else None)


@rule(importlib.util.find_spec)
def _find_spec(vm: VM, name: object, package: object = None) -> Any:
    if type(name) is not str or type(package) not in (str, type(None)):
        raise Break("SB001", "importlib.util.find_spec of a name that is not a constant")
    parent = name.rpartition(".")[0]
    if parent and parent not in sys.modules:
        raise Break("SB006", f"importlib.util.find_spec({name!r}) imports {parent}")
    spec = vm.native_unhooked(importlib.util.find_spec, (name, package))
    return None if spec is None else vm.heap.adopt(spec, Pinned(spec))


@rule(importlib.metadata.version)
def _version(vm: VM, distribution_name: object) -> Any:
    if type(distribution_name) not in (str, type(None)):
        raise Break("SB001", "importlib.metadata.version of a name that is not a constant")
    return vm.native_unhooked(importlib.metadata.version, (distribution_name,))


rule(importlib.metadata.packages_distributions)(
    lambda vm: vm.native_unhooked(importlib.metadata.packages_distributions, ()))


@rule(sys.getrecursionlimit)
def _recursion_limit(vm: VM) -> int:
    """The trace runs under a limit of its own; the program sees the user's."""
    vm.heap.guard_call(sys.getrecursionlimit, vm.progress.recursion_limit)
    return vm.progress.recursion_limit


@rule(sys.setrecursionlimit)
def _set_recursion_limit(vm: VM, limit: object, /) -> None:
    raise Break("SB011", "sys.setrecursionlimit: frames of a capture count too", whole_call=True)


@rule(types.ModuleType, functools._lru_cache_wrapper, _thread.allocate_lock, _thread.allocate, _thread.RLock)
def _make(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A module, cache or lock made in the trace, which the residual makes anew."""
    made = vm.native_unhooked(callee, args, kwargs)
    vm.fresh[id(made)] = made
    return made


@suspending_rule(types.ModuleType.__getattribute__)
def _module_getattribute(vm: VM, cont: Any, module: Any, name: object, /) -> None:
    if type(name) is not str:
        raise Raised(TypeError("attribute name must be string"))
    load_module_attr(vm, module, name, cont, ask_class=False)


@rule(sys._getframe)
def _getframe(vm: VM, depth: object = None, /) -> None:
    below = len(chain(vm, vm.frame)) - 1
    if not below and depth is None:
        raise Break("SB008", WHY)
    if below <= 1:
        raise Break("SB008", WHY, whole_call=True)
    raise Break("SB008", WHY, asks_caller=True, outermost=True)
