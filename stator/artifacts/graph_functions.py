"""Content of functions that torch runs while a graph is made.   a custom operator  ->  its schema, a digest of its code

In: a graph, whose nodes call operators and functions that are not interpreted: formulas of custom operators (fakes,
autograd), functions under `allow_in_graph`.  No guard compares what these read.  Out: for each one a digest of its code
and of all values that the code names, through closures, global names, modules and classes.  State that has no
content as data raises `NotPortable`.  Nothing of the program is called.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Iterator

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from stator.artifacts.code_content import code_hash, constant_text
from stator.artifacts.raw_steps import Thing
from stator.artifacts.value_writer import NotPortable, class_name, native_facts
from stator.heap.raw_access import instance_dict, slot_members
from stator.host.lazy_imports import load
from stator.host.value_kinds import is_a
from stator.source import name_of

_REACH, _PURE = "stator.heap.reached_state", "stator.graph.analysis.mutation"
_CONSTANTS = (int, float, complex, str, bytes, bool, type(None), type(...), type(NotImplemented), torch.dtype,
              torch.device, torch.layout, torch.memory_format, range, slice)
_WRAPPERS: dict[type, tuple[str, ...]] = {
    types.MethodType: ("__self__", "__func__"), functools.partial: ("func", "args", "keywords"),
    staticmethod: ("__func__",), classmethod: ("__func__",), property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func",), type(functools.lru_cache(len)): ("__wrapped__",)}
_NATIVE = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
           types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType)
_NO_CONTENT = ("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__",
               "__static_attributes__", "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__",
               "__abstractmethods__", "_abc_impl", "__slots__", "__parameters__", "__orig_bases__")
_FORMULAS = ("_abstract_fn", "_setup_context_fn", "_backward_fn", "_vmap_fn", "_torch_dispatch_fns", "_autocast_dtype")
_KERNELS = ("_init_fn", "_backend_fns")
_AT_EACH_CALL = ("CPU", "CUDA", "XPU", "MPS", "HPU", "XLA", "PrivateUse1", "ADInplaceOrView", "debug", "Undefined")
_class_dict = type.__dict__["__dict__"].__get__
_type_mro = type.__dict__["__mro__"].__get__
_MOST = 20_000  # objects


def unguarded(graph: fx.GraphModule) -> list[Thing]:
    """Operators and functions of the user that the nodes of a graph call, each once."""
    found: dict[int, Thing] = {}
    for module in graph.modules():
        for node in module.graph.nodes if is_a(module, fx.GraphModule) else ():
            target: Thing = node.target
            if node.op == "call_function" and id(target) not in found and _is_of_user(target):
                found[id(target)] = target
    return list(found.values())


def _is_of_user(target: Thing) -> bool:
    if is_a(target, (OpOverload, OpOverloadPacket)):
        return any(_has_code_of_user(each) for _, each in _functions(target, True))
    if type(target) is types.BuiltinFunctionType and is_a(target.__self__, type):  # Function.apply
        return not _is_library(_class_dict(target.__self__).get("__module__"))
    return type(target) is types.FunctionType and not _is_library(target.__globals__.get("__name__"))


def _has_code_of_user(function: Thing) -> bool:
    """Whether a kernel is the user's, or a wrapper of torch around one."""
    seen: dict[int, Thing] = {}
    waiting: list[Thing] = [function]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen[id(each)] = each
        if type(each) is not types.FunctionType:
            if type(each) not in _CONSTANTS and not is_a(each, (type, types.ModuleType)):
                waiting += list((instance_dict(each) or {}).values()) + [getattr(each, "__func__", None)]
        elif not _is_library(each.__globals__.get("__name__")):
            return True
        else:
            waiting += [cell.cell_contents for cell in each.__closure__ or () if cell != types.CellType()]
    return function is None


def content_of(target: Thing, with_kernels: bool) -> str:
    """A digest; `with_kernels`: of those functions of an operator, too, that run at each call."""
    walk = _Walk(with_kernels)
    while True:
        text = walk.text(target)
        if walk.is_complete():
            return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def has_pure_kernels(target: Thing) -> bool:
    """Whether the graph relies on it that the kernels of an operator have no effects."""
    return target in load(_PURE).PURE_KERNELS


def _is_library(name: object) -> bool:
    return bool(load(_REACH).is_of_library(name))


def _functions(target: Thing, with_kernels: bool) -> Iterator[tuple[str, Thing]]:
    """Python functions of an operator, by their part; None for one that cannot be found."""
    if is_a(target, OpOverloadPacket):
        for name in target.overloads():
            yield from [(f"{name}.{part}", each) for part, each in _functions(getattr(target, name), with_kernels)]
        return
    reach = load(_REACH)
    qualified = target._schema.name
    definition = reach.OPDEFS.get(qualified)
    if definition is not None:
        for part in (*_FORMULAS, *(_KERNELS if with_kernels else ())):
            if (each := getattr(definition, part, None)) is not None and each != {}:
                yield part, each
        return
    holder = torch._library.simple_registry.singleton.find(qualified).fake_impl
    kernels = getattr(holder, "kernels", [getattr(holder, "kernel", None)])  # torch before 2.7 has one
    fake = kernels[-1] if kernels else None
    if fake is not None:
        yield "fake", fake.func
    for key, each in target.py_kernels.items():
        yield f"python {key}", each
    if not torch._C._dispatch_has_kernel(target.name()):
        return  # an operator of TorchScript alone, which the dispatcher does not know
    described = torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "Meta")
    for line in torch._C._dispatch_dump(target.name()).splitlines():
        key, _, place = line.partition(": registered at ")
        key = key.partition("[")[0]
        at_call = key in _AT_EACH_CALL or described and key.startswith("CompositeExplicit")
        explained = key in ("debug", "schema") or key == "Meta" and fake is not None
        if ".py:" in place and not explained and (with_kernels or not at_call):
            yield from [(key, each) for each in reach.python_kernel(target, key)
                        if each is None or type(each) is types.FunctionType]


class _Walk:
    """Text of everything that code can reach by the names in it; these are collected by a first walk."""

    def __init__(self, with_kernels: bool) -> None:
        self._with_kernels = with_kernels
        self._names: set[str] = set()
        self._named_before = -1
        self._seen: dict[int, tuple[int, Thing]] = {}

    def is_complete(self) -> bool:
        """Whether the last walk knew all names; if not, the next one starts anew."""
        complete = len(self._names) == self._named_before
        self._named_before, self._seen = len(self._names), {}
        return complete

    def text(self, value: Thing) -> str:
        if type(value) in _CONSTANTS:
            return constant_text(value) if type(value) is not slice else repr(value)
        if id(value) in self._seen:
            return f"#{self._seen[id(value)][0]}"
        self._seen[id(value)] = len(self._seen), value
        if len(self._seen) > _MOST:
            raise NotPortable("a function that torch has run, which can reach too many objects")
        return f"({self._content(value)})"

    def _content(self, value: Thing) -> str:
        cls = type(value)
        if cls in (tuple, list, torch.Size):
            return f"{cls.__name__}:" + ",".join(map(self.text, value))
        if cls in (set, frozenset) and all(type(each) in _CONSTANTS for each in value):
            return f"{cls.__name__}:" + ",".join(sorted(map(self.text, value)))
        if cls is dict:
            return "dict:" + ",".join([f"{self.text(key)}={self.text(each)}" for key, each in value.items()])
        if cls is types.FunctionType:
            return self._function(value)
        if cls is types.CellType:
            return "cell:" + ("" if value == types.CellType() else self.text(value.cell_contents))
        if cls in _WRAPPERS:
            return f"{cls.__name__}:" + ",".join([self.text(getattr(value, name)) for name in _WRAPPERS[cls]])
        if is_a(value, (OpOverload, OpOverloadPacket)):
            return self._operator(value)
        if is_a(value, load(_REACH).CustomOpDef):
            return self.text(value._opoverload)
        if is_a(value, torch.library.Library):
            return f"library:{value.ns}"
        if is_a(value, HigherOrderOperator):
            return f"operator:{value.name()}"
        if is_a(value, types.ModuleType):
            return f"module:{value.__name__}" + self._members(value.__name__, value.__dict__)
        if is_a(value, type):
            return self._class(value)
        if cls in _NATIVE:
            return f"native:{native_facts(value)}"
        return self._instance(value)

    def _members(self, module: object, held: dict[str, Thing]) -> str:
        """Values under names that some code has; those of libraries belong to their versions."""
        if _is_library(module):
            return ""
        return ":" + ",".join([f"{name}={self.text(held[name])}" for name in sorted(self._names & held.keys())])

    def _function(self, value: Thing) -> str:
        parts = [value.__globals__.get("__name__"), value.__qualname__, code_hash(value.__code__)]
        if _is_library(value.__globals__.get("__name__")):  # a wrapper around a function, with notes of its own
            cells = [each.cell_contents for each in value.__closure__ or () if each != types.CellType()]
            held = [self.text(each) for each in cells if type(each) not in _CONSTANTS]
        else:
            held = [self.text(each) for each in (value.__defaults__, value.__kwdefaults__, value.__closure__)]
            self._note(value.__code__)
            held.append(self._members(None, value.__globals__))
        return f"function:{parts}" + ",".join(held)

    def _note(self, code: types.CodeType) -> None:
        self._names.update(code.co_names)
        for each in code.co_consts:
            if type(each) is types.CodeType:
                self._note(each)
            elif type(each) is str and each.isidentifier():  # getattr(settings, "scale")
                self._names.add(each)

    def _operator(self, value: Thing) -> str:
        overloads = [value] if is_a(value, OpOverload) else [getattr(value, name) for name in value.overloads()]
        parts = [str(each._schema) for each in overloads]
        for part, each in _functions(value, self._with_kernels):
            if each is None:
                raise NotPortable(f"the operator {value}, whose Python function is not known")
            parts.append(f"{part}={self.text(each)}")
        return "operator:" + ",".join(parts)

    def _class(self, cls: Thing) -> str:
        held = _class_dict(cls)
        module = held.get("__module__")
        if _is_library(module) or module == "builtins":
            return f"class:{class_name(cls)}"
        return f"class:{class_name(cls)}:" + ",".join(
            [*map(self.text, (type(cls), *_type_mro(cls)[1:])),
             *[f"{name}={self.text(held[name])}" for name in sorted(held) if name not in _NO_CONTENT]])

    def _instance(self, value: Thing) -> str:
        cls, own = type(value), instance_dict(value)
        members = slot_members(cls)
        if is_a(value, torch.Tensor) or own is None and not members or is_a(value, (dict, list, set, tuple)):
            raise NotPortable(f"a function that torch has run, which can read {name_of(value)} of type {name_of(cls)}")
        slots = [(each.__name__, each.__get__(value)) for each in members if hasattr(value, each.__name__)]
        parts = [f"{name}={self.text(each)}" for name, each in [*sorted((own or {}).items()), *slots]]
        return f"of:{self.text(cls)}" + ",".join(parts)
