"""Describe any value as plain data, so that two runs of one program can be compared.

In: a value, and the path under which it is seen ("args[0]").
Out: a `Portrait`: exact type, contents, and for whatever was met before, the path where it was met first.
Two portraits are equal when values, types, aliasing (objects and tensor storages) and state are equal.
Nothing here runs the program's own code: no user `__eq__`, `__repr__`, `__iter__` or `__getattr__`.
"""

from __future__ import annotations

import collections
import functools
import inspect
import operator
import re
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

ATOMS = (
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range,
    torch.dtype, torch.device, torch.layout, torch.memory_format, re.Pattern,
)  # fmt: skip
NAMED = (types.BuiltinFunctionType, types.ModuleType, types.WrapperDescriptorType,
         types.MethodDescriptorType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
         types.MemberDescriptorType, types.MethodWrapperType)  # fmt: skip
ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
BOOKKEEPING = frozenset({"__module__", "__dict__", "__weakref__", "__doc__", "_abc_impl", "__builtins__",
                         "__slotnames__"})  # what copyreg remembers of a class
HOOK_TABLE = re.compile(r"^_(forward|backward|state_dict|load_state_dict)\w*hooks\w*$")


@dataclass
class Portrait:
    """One value: what it is (`label`), what it holds (`parts`), and its numbers if it is a tensor."""

    label: str
    parts: dict[str, Portrait] = field(default_factory=dict)
    numbers: torch.Tensor | None = None


def without_addresses(text: str) -> str:
    return ADDRESS.sub("0x...", text)


def type_name(kind: type) -> str:
    return f"{type.__getattribute__(kind, '__module__')}.{type.__getattribute__(kind, '__qualname__')}"


def is_atom(value: object) -> bool:
    return type(value) in ATOMS


class Describer:
    """Draws portraits that share one memory of objects and storages already met.

    `home` is the module under test: its functions and classes are described with their state (defaults,
    cells, class attributes); those of other modules are named only. `exact_layout` adds strides.
    """

    def __init__(self, home: str, exact_layout: bool = True) -> None:
        self.home = home
        self.exact_layout = exact_layout
        self.met: dict[int, tuple[str, object]] = {}
        self.storages: dict[int, str] = {}
        self.owners: list[Any] = []

    def describe(self, value: Any, path: str) -> Portrait:
        kind = type(value)
        if kind in ATOMS:
            return Portrait(f"{kind.__name__} {value!r}")
        if issubclass(kind, NAMED):
            return Portrait(f"{kind.__name__} {getattr(value, '__module__', '')}.{value.__name__}")
        if kind in (tuple, frozenset, slice, torch.Size) and self.is_constant(value):
            # CPython folds and interns constants: their identity means nothing.
            return Portrait(f"{type_name(kind)} {value!r}")
        if kind is types.MethodType:
            return self.compose("bound method", path, __func__=value.__func__, __self__=value.__self__)
        if id(value) in self.met:
            return Portrait(f"the same object as {self.met[id(value)][0]}")
        self.met[id(value)] = (path, value)
        return self.describe_new(value, kind, path)

    def is_constant(self, value: Any) -> bool:
        if type(value) is slice:
            value = (value.start, value.stop, value.step)
        return all(is_atom(item) or (type(item) in (tuple, frozenset) and self.is_constant(item)) for item in value)

    def compose(self, label: str, path: str, /, **held: Any) -> Portrait:
        return Portrait(label, {name: self.describe(v, f"{path}.{name}") for name, v in held.items()})

    def describe_new(self, value: Any, kind: type, path: str) -> Portrait:
        for base, method in METHODS:
            if issubclass(kind, base):
                portrait = method(self, value, path)
                break
        else:
            portrait = self.opaque(value, path)
        if not issubclass(kind, (type, types.FunctionType, BaseException)):
            self.add_state(portrait, value, kind, path)
        return portrait

    def add_state(self, portrait: Portrait, value: Any, kind: type, path: str) -> None:
        """Instance attributes, from `__dict__` and from slots."""
        state: dict[str, Any] = {}
        for base in reversed(kind.__mro__):
            for name, member in type.__getattribute__(base, "__dict__").items():
                if type(member) is types.MemberDescriptorType and type_name(base).startswith(self.home):
                    try:
                        state[name] = member.__get__(value, kind)
                    except AttributeError:
                        continue  # an empty slot
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            attributes = {}
        if type(attributes) is dict:
            state.update(attributes)
        for name, held in state.items():
            if HOOK_TABLE.match(str(name)) and isinstance(held, dict):
                held = list(held.values())  # keyed by a counter of the whole process
            portrait.parts[f".{name}"] = self.describe(held, f"{path}.{name}")

    # One method per family of types, tried in the order of METHODS.

    def array(self, value: numpy.ndarray, path: str) -> Portrait:
        """Contents, layout, and whose memory it is."""
        where = value.__array_interface__["data"][0]
        owner = value
        while isinstance(owner.base, numpy.ndarray):
            owner = owner.base
        place = f"at {(where - owner.__array_interface__['data'][0])} of {self.storages.setdefault(id(owner), path)}"
        self.owners.append(owner)  # its id stays its own
        shown = value.tolist() if not value.dtype.hasobject else "objects"
        return Portrait(f"array {value.dtype.str} {value.shape} {value.strides} {value.flags.writeable} {place} {shown}")

    def scalar(self, value: numpy.generic, path: str) -> Portrait:
        return Portrait(f"{type_name(type(value))} {value!r}")

    def tensor(self, value: torch.Tensor, path: str) -> Portrait:
        facts = [type_name(type(value)), str(value.dtype), str(tuple(value.shape)), str(value.device)]
        facts.append("requires_grad" if value.requires_grad else "no grad")
        facts.append("leaf" if value.is_leaf else "not a leaf")
        if value.layout is torch.strided and type(value) in (torch.Tensor, torch.nn.Parameter):
            if self.exact_layout:
                facts.append(f"stride {value.stride()} offset {value.storage_offset()}")
            where = value.untyped_storage().data_ptr()
            if where and where in self.storages:
                facts.append(f"shares storage with {self.storages[where]}")
            elif where:
                self.storages[where] = path
        with torch.no_grad():
            portrait = Portrait(", ".join(facts), numbers=value.detach().clone())
        if value.is_leaf and value.grad is not None:
            portrait.parts[".grad"] = self.describe(value.grad, f"{path}.grad")
        return portrait

    def sequence(self, value: Any, path: str) -> Portrait:
        base = next(b for b in (list, tuple, collections.deque) if issubclass(type(value), b))
        items = list(base.__iter__(value))
        parts = {f"[{i}]": self.describe(item, f"{path}[{i}]") for i, item in enumerate(items)}
        bound = f" maxlen {value.maxlen}" if base is collections.deque else ""
        return Portrait(f"{type_name(type(value))} of {len(items)}{bound}", parts)

    def unordered(self, value: Any, path: str) -> Portrait:
        base = set if issubclass(type(value), set) else frozenset
        # Sorted by contents: the order of a set of objects follows their addresses.
        ordered = sorted(base.__iter__(value), key=lambda item: str(Describer(self.home).describe(item, "")))
        parts = {f"{{{i}}}": self.describe(item, f"{path}{{{i}}}") for i, item in enumerate(ordered)}
        return Portrait(f"{type_name(type(value))} of {len(ordered)}", parts)

    def mapping(self, value: Any, path: str) -> Portrait:
        raw = value if type(value) is types.MappingProxyType else None
        pairs = list(value.items()) if raw is not None else list(dict.items(value))
        if isinstance(value, collections.OrderedDict):
            pairs = list(collections.OrderedDict.items(value))
        portrait = Portrait(f"{type_name(type(value))} of {len(pairs)}")
        for i, (key, held) in enumerate(pairs):
            edge = f"[{key!r}]" if is_atom(key) else f"[key {i}]"
            portrait.parts[f"key {i}"] = self.describe(key, f"{path} key {i}")
            portrait.parts[edge] = self.describe(held, path + edge)
        if isinstance(value, collections.defaultdict):
            portrait.parts["default_factory"] = self.describe(value.default_factory, f"{path}.default_factory")
        return portrait

    def function(self, value: types.FunctionType, path: str) -> Portrait:
        label = f"function {value.__module__}.{value.__qualname__}"
        if value.__module__ != self.home:
            return Portrait(label)
        cells = [self.cell_content(cell) for cell in value.__closure__ or ()]
        return self.compose(label, path, __defaults__=value.__defaults__, __kwdefaults__=value.__kwdefaults__,
                            __dict__=dict(value.__dict__), __name__=value.__name__, __doc__=value.__doc__,
                            __closure__=cells)  # fmt: skip

    def cell_content(self, cell: types.CellType) -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            return NotImplemented  # an empty cell

    def cell(self, value: types.CellType, path: str) -> Portrait:
        return self.compose("cell", path, contents=self.cell_content(value))

    def a_class(self, value: type, path: str) -> Portrait:
        label = f"class {type_name(value)} of {type_name(type(value))}"
        if type.__getattribute__(value, "__module__") != self.home:
            return Portrait(label)
        portrait = Portrait(label)
        for i, base in enumerate(type.__getattribute__(value, "__bases__")):
            portrait.parts[f"base {i}"] = self.describe(base, f"{path} base {i}")
        for name, held in type.__getattribute__(value, "__dict__").items():
            if name not in BOOKKEEPING:
                portrait.parts[f".{name}"] = self.describe(held, f"{path}.{name}")
        return portrait

    def exception(self, value: BaseException, path: str) -> Portrait:
        try:
            text = without_addresses(str(value))
        except Exception as failure:  # the program's own __str__ may raise: that too is compared
            text = f"<str() raised {failure!r}>"
        args = tuple(without_addresses(part) if type(part) is str else part for part in value.args)
        portrait = self.compose(f"{type_name(type(value))}: {text}", path, args=args,
                                __cause__=value.__cause__, __context__=value.__context__,
                                __suppress_context__=value.__suppress_context__)  # fmt: skip
        for name, held in value.__dict__.items():  # __notes__ among them
            portrait.parts[f".{name}"] = self.describe(held, f"{path}.{name}")
        return portrait

    def generator(self, value: types.GeneratorType, path: str) -> Portrait:
        return Portrait(f"generator {value.__qualname__} {inspect.getgeneratorstate(value)}")

    def coroutine(self, value: types.CoroutineType, path: str) -> Portrait:
        return Portrait(f"coroutine {value.__qualname__} {inspect.getcoroutinestate(value)}")

    def partial(self, value: functools.partial, path: str) -> Portrait:
        return self.compose(type_name(type(value)), path, func=value.func, args=value.args, keywords=value.keywords)

    def wrapper(self, value: Any, path: str) -> Portrait:
        return self.compose(type(value).__name__, path, __func__=value.__func__)

    def a_property(self, value: property, path: str) -> Portrait:
        return self.compose("property", path, fget=value.fget, fset=value.fset, fdel=value.fdel)

    def a_slice(self, value: slice, path: str) -> Portrait:
        return self.compose("slice", path, start=value.start, stop=value.stop, step=value.step)

    def weak(self, value: weakref.ref, path: str) -> Portrait:
        return self.compose(type_name(type(value)), path, target=value())

    def atom_subclass(self, value: Any, path: str) -> Portrait:
        base = next(b for b in (int, float, complex, str, bytes) if issubclass(type(value), b))
        return Portrait(f"{type_name(type(value))} {base.__repr__(value)}")

    def opaque(self, value: Any, path: str) -> Portrait:
        """A C object without state that we know: its type, its position, its repr if written in C."""
        label = type_name(type(value))
        if type(value).__init_subclass__ is object.__init_subclass__ and hasattr(type(value), "__length_hint__"):
            return Portrait(f"{label} with {operator.length_hint(value)} left")
        if isinstance(type(value).__repr__, types.WrapperDescriptorType):
            text = without_addresses(repr(value))
            return Portrait(label if "0x..." in text else f"{label} {text}")
        return Portrait(label)


METHODS: tuple[tuple[Any, Callable[[Describer, Any, str], Portrait]], ...] = (
    (torch.Tensor, Describer.tensor),
    (numpy.ndarray, Describer.array),
    (numpy.generic, Describer.scalar),
    ((list, tuple, collections.deque), Describer.sequence),
    ((set, frozenset), Describer.unordered),
    ((dict, types.MappingProxyType), Describer.mapping),
    (types.FunctionType, Describer.function),
    (type, Describer.a_class),
    (BaseException, Describer.exception),
    (types.GeneratorType, Describer.generator),
    (types.CoroutineType, Describer.coroutine),
    (functools.partial, Describer.partial),
    ((classmethod, staticmethod), Describer.wrapper),
    (property, Describer.a_property),
    (slice, Describer.a_slice),
    (types.CellType, Describer.cell),
    (weakref.ref, Describer.weak),
    ((int, float, complex, str, bytes), Describer.atom_subclass),
)


def same_numbers(left: torch.Tensor, right: torch.Tensor, exact: bool) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.layout is not torch.strided:
        left, right = left.to_dense(), right.to_dense()
    if exact or not left.dtype.is_floating_point:
        return bool(((left == right) | ((left != left) & (right != right))).all())
    return torch.allclose(left, right, rtol=1e-4, atol=1e-5, equal_nan=True)


def differences(eager: Portrait, compiled: Portrait, path: str, exact: bool = True) -> Iterator[str]:
    """Every place where two portraits differ, in the user's terms."""
    if eager.label != compiled.label:
        yield f"{path}: eager {eager.label!r}, compiled {compiled.label!r}"
        return
    if eager.numbers is not None and compiled.numbers is not None:
        if not same_numbers(eager.numbers, compiled.numbers, exact):
            yield f"{path}: eager {eager.numbers}, compiled {compiled.numbers}"
    if list(eager.parts) != list(compiled.parts):
        yield f"{path}: eager has {only_in(eager, compiled)}, compiled has {only_in(compiled, eager)}"
    for edge in [edge for edge in eager.parts if edge in compiled.parts]:
        joint = "" if edge.startswith(("[", ".", "{")) else "."
        yield from differences(eager.parts[edge], compiled.parts[edge], f"{path}{joint}{edge}", exact)


def only_in(one: Portrait, other: Portrait) -> str:
    """The parts that the other lacks, with what they are; all of them if only the order differs."""
    own = {edge: part.label for edge, part in one.parts.items() if edge not in other.parts}
    return str(own) if one.parts.keys() != other.parts.keys() else f"the order {list(one.parts)}"
