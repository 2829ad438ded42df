"""Find the Python state that a call with unknown effects can reach.   custom(x)  ->  LOG, Counter.n, the cell `n`

In: the target of a node that must not run twice.  Out: the mutable objects that its Python code names, and the names
that it assigns.  Code objects are read and never run.  Code of libraries counts for its closures and arguments alone.
"""

from __future__ import annotations

import collections
import contextlib
import dis
import functools
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._python_dispatch import _disable_current_modes

from stator import _hook
from stator.graph.analysis.mutation import qualified_name
from stator.heap.raw_access import CONSTANT_TYPES, instance_dict, items_in_order, raw_members, slot_members
from stator.heap.tracker import VariableTracker
from stator.host.value_kinds import dict_of_class, is_a, module_of, mro_of

_LIMIT = 20_000  # objects; with more of them no bound is known
_LIBRARIES = sys.stdlib_module_names - {"__main__"} | {"torch", "numpy", "stator"}
_SETTERS = frozenset({"setattr", "delattr", "vars", "__dict__", "__setattr__"})  # ways to assign an unnamed attribute
_LEAVES = (torch.Tensor, torch._ops.OperatorBase, CustomOpDef)
_CHANGEABLE = (list, dict, set, collections.deque)
_FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property)
_IGNORED_KEYS = ("Meta", "ADInplaceOrView", "debug")  # kernels for fakes, and wrappers of the one that runs


class Reach:
    """Mutable objects behind one call, by id; assigned names, as (id of a namespace or class, name)."""

    __slots__ = ("objects", "names", "unbounded", "_seen", "_todo", "_holders", "_named", "_stored")

    def __init__(self, target: object) -> None:
        self.objects: dict[int, Any] = {}
        self.names: set[tuple[int, str]] = set()
        self._seen: dict[int, Any] = {}
        self._todo: list[Any] = []
        self._holders: dict[int, tuple[Mapping[str, Any], int]] = {}  # namespaces, and the id that `names` has for each
        self._named: set[str] = set()
        self._stored: set[str] = set()  # attributes that are assigned
        self.unbounded = not all(map(self._add, kernels_of(target)))
        self._walk()

    def _add(self, value: object) -> bool:
        if value is not None and id(value) not in self._seen and type(value) not in CONSTANT_TYPES:
            self._seen[id(value)] = value
            self._todo.append(value)
        return value is not None

    def _walk(self) -> None:
        instances: list[Any] = []
        while self._todo:
            if len(self._seen) > _LIMIT:
                self.unbounded = True
                return
            self._visit(self._todo.pop(), instances)
            if not self._todo:
                for holder, _ in list(self._holders.values()):
                    for name in self._named & holder.keys():
                        self._add(holder[name])
        if self._stored or self._named & _SETTERS:
            self.objects.update((id(each), each) for each in instances)
        self.names |= {(number, name) for _, number in self._holders.values() for name in self._stored}

    def _visit(self, value: Any, instances: list[Any]) -> None:
        cls = type(value)
        if cls is types.FunctionType:
            self._visit_function(value)
        elif cls is types.MethodType or cls is types.BuiltinMethodType:
            self._add(value.__self__)
            self._add(getattr(value, "__func__", None))
        elif cls is functools.partial or cls is staticmethod or cls is classmethod or cls is property:
            for name in ("func", "args", "keywords", "__func__", "fget", "fset", "fdel"):
                self._add(getattr(value, name, None))
        elif cls is types.ModuleType:
            if not is_of_library(value.__name__):
                self._holders[id(value)] = vars(value), id(vars(value))
        elif is_a(value, type):
            self._visit_class(value)
        elif is_a(value, (tuple, frozenset)) or not is_a(value, _LEAVES):
            self._visit_object(value, instances)

    def _visit_function(self, fn: types.FunctionType) -> None:
        names, stored, globals_, cells = _facts(fn.__code__)
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            if cell != types.CellType():
                self._add(cell.cell_contents)
            if name in cells:
                self.objects[id(cell)] = cell
        for each in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
            self._add(each)
        if not is_of_library(fn.__globals__.get("__name__")):
            self._holders[id(fn.__globals__)] = fn.__globals__, id(fn.__globals__)
            self._named |= names
            self._stored |= stored
            self.names |= {(id(fn.__globals__), name) for name in globals_}

    def _visit_class(self, cls: type) -> None:
        """Methods are reached by name; those that Python or a base class of a library calls, at once."""
        bases = [base for base in mro_of(cls) if base is not object]
        called = any(is_of_library(module_of(base)) for base in bases)
        for base in bases:
            if not is_of_library(module_of(base)) and id(base) not in self._holders:
                own = dict_of_class(base)
                self._holders[id(base)], self._seen[id(base)] = (own, id(base)), base
                for name, each in own.items():
                    if (called or name.startswith("__")) and type(each) in _FUNCTIONS:
                        self._add(each)

    def _visit_object(self, value: Any, instances: list[Any]) -> None:
        cls = type(value)
        if is_a(value, dict):
            for pair in items_in_order(value):
                self._add(pair[0])
                self._add(pair[1])
        elif is_a(value, (list, set, collections.deque, tuple, frozenset)):
            for each in raw_members(value) if not is_a(value, (tuple, frozenset)) else value:
                self._add(each)
        own = instance_dict(value)
        if is_of_library(module_of(cls)):
            if cls is not tuple and cls is not frozenset:
                self.objects[id(value)] = value
            self._add((own or {}).get("__wrapped__"))
            return
        self._add(cls)
        if own is not None:
            self._holders[id(value)] = own, id(own)
        for member in slot_members(cls):
            self._add(member.__get__(value) if _is_bound(member, value) else None)
        (instances.append if not is_a(value, (list, dict, set, collections.deque)) else self._keep)(value)

    def _keep(self, value: object) -> None:
        self.objects[id(value)] = value

    def may_read(self, changed: Iterable[VariableTracker]) -> bool:
        """Whether the code may read one of these objects."""
        seen = {*self._seen, *self._holders, *self.objects}
        parts = [part for each in changed for part in (each, each.part_of) if part is not None]
        return self.unbounded or any(id(part.original) in seen for part in parts)

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Undo changes that code makes to containers, attributes, globals and cells in reach."""
        held = [each for each in self.objects.values() if is_a(each, _CHANGEABLE)]
        held += [own for each in self.objects.values() if (own := instance_dict(each)) is not None]
        before = [list(items_in_order(each) if is_a(each, dict) else raw_members(each)) for each in held]
        cells = [(each, each.cell_contents) for each in self.objects.values()
                 if type(each) is types.CellType and each != types.CellType()]
        slots = [(member, each, member.__get__(each)) for each in self.objects.values()
                 for member in slot_members(type(each)) if _is_bound(member, each)]
        names = [(space, at, name, space.get(name, self)) for at, (space, number) in self._holders.items()
                 for name in space.keys() & {name for place, name in self.names if place == number}]
        try:
            yield
        finally:
            for each, parts in zip(held, before, strict=True):
                kind: Any = next(base for base in _CHANGEABLE if is_a(each, base))
                now = list(items_in_order(each) if kind is dict else raw_members(each))
                if len(now) != len(parts) or any(_differ(*pair) for pair in zip(now, parts, strict=True)):
                    kind.clear(each)
                    (kind.update if kind in (dict, set) else kind.extend)(each, parts)
            for cell, value in cells:
                cell.cell_contents = value
            for member, each, value in slots:
                member.__set__(each, value)
            for space, number, name, value in names:
                if space.get(name, self) is not value:
                    if isinstance(space, dict):
                        space[name] = value
                    else:
                        type.__setattr__(self._seen[number], name, value)


def _is_bound(member: types.MemberDescriptorType, value: object) -> bool:
    try:
        member.__get__(value)
    except AttributeError:
        return False
    return True


def _differ(now: Any, then: Any) -> bool:
    return now is not then and not (type(now) is tuple and len(now) == 2 and now[0] is then[0] and now[1] is then[1])


def is_of_library(name: object) -> bool:
    return str(name).partition(".")[0] in _LIBRARIES


@functools.lru_cache(1024)
def _facts(code: types.CodeType) -> tuple[set[str], set[str], set[str], set[str]]:
    """Names and texts in a code object; attributes, globals and closure cells that it assigns."""
    names = {*code.co_names, *_texts(code.co_consts)}
    stored: tuple[set[str], set[str], set[str]] = set(), set(), set()
    for each in dis.get_instructions(code):
        kind = each.opname.partition("_")
        if kind[0] in ("STORE", "DELETE") and kind[2] in ("ATTR", "GLOBAL", "DEREF"):
            stored[("ATTR", "GLOBAL", "DEREF").index(kind[2])].add(each.argval)
    for inner in code.co_consts:
        if type(inner) is types.CodeType:
            names, *others = [mine | its for mine, its in zip((names, *stored), _facts(inner), strict=True)]
            stored = others[0], others[1], others[2]
    return names, *stored


def _texts(value: object) -> Iterator[str]:
    if type(value) is str:
        yield value
    elif type(value) is tuple:
        for each in value:
            yield from _texts(each)


def kernels_of(target: object) -> Iterator[Any]:
    """Python code behind a target; None for code that cannot be found."""
    if isinstance(target, OpOverloadPacket):
        for each in target.overloads():
            yield from kernels_of(getattr(target, each))
        return
    if not isinstance(target, OpOverload):
        yield target
        return
    definition = OPDEFS.get(qualified_name(target))
    if definition is not None:
        for each in vars(definition).values():
            yield from each.values() if type(each) is dict else [each] if type(each) is types.FunctionType else ()
        return
    for key in python_keys(target):
        yield from python_kernel(target, key)


def python_keys(target: OpOverload) -> list[str]:
    lines = [line.partition(": registered at ") for line in torch._C._dispatch_dump(target.name()).splitlines()]
    return [key.partition("[")[0] for key, _, place in lines if ".py:" in place and not key.startswith(_IGNORED_KEYS)]


def runs_on_fakes(target: object) -> bool:
    """Whether torch runs Python code of the user in place of the operator where it traces, effects included."""
    if isinstance(target, OpOverloadPacket):
        return any(runs_on_fakes(getattr(target, each)) for each in target.overloads())
    if not isinstance(target, OpOverload) or qualified_name(target) in OPDEFS:
        return False
    described = torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "Meta")
    kernels = [python_kernel(target, key)[0] for key in python_keys(target)
               if key.startswith(("Autograd", "CompositeImplicit") if described else ("Autograd", "Composite"))]
    return any(kernel is None or not is_of_library(kernel.__globals__.get("__name__")) for kernel in kernels)


def effects_undone(target: object) -> contextlib.AbstractContextManager[None]:
    """Around a call of an operator on fakes."""
    return Reach(target).restored() if runs_on_fakes(target) else contextlib.nullcontext()


def python_kernel(target: OpOverload, key: str) -> tuple[Any, ...]:
    """The Python kernel of an operator for a key: called on empty arguments, stopped at its first frame."""
    found: list[Any] = []

    def stop(fn: object, args: tuple[object, ...], closure: object) -> None:
        found.extend([fn, *[each for each in args if not any(each is mine for mine in (*given, *named.values()))]])
        raise _Stopped

    arguments = target._schema.arguments
    given = [_EMPTY.get(each.type.kind()) for each in arguments if not each.kwarg_only]
    named = {each.name: _EMPTY.get(each.type.kind()) for each in arguments if each.kwarg_only}
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _CALLED_AS.get(key, key)))
    try:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            _hook.call_below(stop, target._handle.redispatch_boxed, keys, *given, **named)
    except _Stopped:
        return tuple(found)
    except Exception:  # of arguments that the operator does not take
        pass
    return (None,)


class _Stopped(Exception):
    """A call has reached Python code."""


_EMPTY = {"TensorType": torch.empty(0), "IntType": 0, "SymIntType": 0, "FloatType": 0.0, "BoolType": False,
          "StringType": "", "NumberType": 0, "ListType": [], "DeviceObjType": torch.device("cpu")}
_CALLED_AS = {key: "CPU" for key in ("CompositeExplicitAutograd", "CompositeImplicitAutograd",
                                     "CompositeExplicitAutogradNonFunctional")}
