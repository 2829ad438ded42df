"""Copy any value into plain data, and list the differences between two copies.

In: a value and the path under which the program reaches it ("args[0]").
Out: a `Snapshot`: exact type, contents, and for an object or a storage met before, the path where it was met first.
Two snapshots are equal when values, types, aliasing (objects and tensor storages) and state are equal.
Nothing here runs the program's own code: no user `__eq__`, `__repr__`, `__iter__`, `__getattr__` or `__torch_function__`.
"""

from __future__ import annotations

import collections
import functools
import inspect
import math
import operator
import re
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch.utils.hooks import RemovableHandle

ATOMS = (
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range,
    torch.dtype, torch.device, torch.layout, torch.memory_format, re.Pattern,
)  # fmt: skip
NAMED = (types.BuiltinFunctionType, types.ModuleType, types.WrapperDescriptorType,
         types.MethodDescriptorType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
         types.MemberDescriptorType, types.MethodWrapperType)  # fmt: skip
NUMERIC = tuple(numpy.dtype(name).str for name in ("f2", "f4", "f8", "c8", "c16", "i1", "i2", "i4", "i8", "u1", "?"))
ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
BOOKKEEPING = frozenset({"__module__", "__dict__", "__weakref__", "__doc__", "_abc_impl", "__builtins__",
                         "__slotnames__"})  # what copyreg remembers of a class
# Attributes that torch's own compilers leave on results of AOTAutograd's graphs and on exceptions.
SET_BY_TORCH = ("_dynamo_propagated_dynamic_indices", "_dynamo_weak_dynamic_indices", "_torch_dynamo_tracer_output")
Tolerance = float | tuple[float, float] | None
HOOK_TABLE = re.compile(r"^_(forward|backward|state_dict|load_state_dict)\w*hooks\w*$")


@dataclass
class Snapshot:
    """One value: its type and plain contents (`label`), what it holds (`parts`), and the numbers of a tensor."""

    label: str
    parts: dict[str, Snapshot] = field(default_factory=dict)
    numbers: torch.Tensor | None = None


def without_addresses(text: str) -> str:
    return ADDRESS.sub("0x...", text)


def type_name(kind: type) -> str:
    return f"{type.__getattribute__(kind, '__module__')}.{type.__getattribute__(kind, '__qualname__')}"


def is_atom(value: object) -> bool:
    return type(value) in ATOMS


class Snapshotter:
    """Take snapshots that share one memory of objects and storages already met.

    `home` is the module under test: snapshots of its functions and classes hold their state (defaults,
    cells, class attributes); those of other modules hold a name only. `exact_layout` adds strides.
    """

    def __init__(self, home: str, exact_layout: bool = True) -> None:
        self.home = home
        self.exact_layout = exact_layout
        self.met: dict[int, tuple[str, object]] = {}
        self.storages: dict[int, str] = {}
        self.owners: list[Any] = []

    def take(self, value: Any, path: str) -> Snapshot:
        kind = type(value)
        if kind in ATOMS:
            return Snapshot(f"{kind.__name__} {value!r}")
        if issubclass(kind, NAMED):
            return Snapshot(f"{kind.__name__} {getattr(value, '__module__', '')}.{value.__name__}")
        if kind in (tuple, frozenset, slice, torch.Size) and self.is_constant(value):
            # CPython folds and interns constants: their identity means nothing.
            return Snapshot(f"{type_name(kind)} {value!r}")
        if kind is types.MethodType:
            return self.compose("bound method", path, __func__=value.__func__, __self__=value.__self__)
        if id(value) in self.met:
            return Snapshot(f"the same object as {self.met[id(value)][0]}")
        self.met[id(value)] = (path, value)
        return self.take_new(value, kind, path)

    def is_constant(self, value: Any) -> bool:
        if type(value) is slice:
            value = (value.start, value.stop, value.step)
        return all(is_atom(item) or (type(item) in (tuple, frozenset) and self.is_constant(item)) for item in value)

    def compose(self, label: str, path: str, /, **held: Any) -> Snapshot:
        return Snapshot(label, {name: self.take(v, f"{path}.{name}") for name, v in held.items()})

    def take_new(self, value: Any, kind: type, path: str) -> Snapshot:
        for base, method in METHODS:
            if issubclass(kind, base):
                snapshot = method(self, value, path)
                break
        else:
            snapshot = self.opaque(value, path)
        if not issubclass(kind, (type, types.FunctionType, BaseException, RemovableHandle)):
            self.add_state(snapshot, value, kind, path)
        return snapshot

    def add_state(self, snapshot: Snapshot, value: Any, kind: type, path: str) -> None:
        """Instance attributes, from `__dict__` and from slots."""
        state: dict[str, Any] = {}
        for base in reversed(kind.__mro__):
            if not self.home or not type_name(base).startswith(self.home):
                continue
            for name, member in type.__getattribute__(base, "__dict__").items():
                if type(member) is types.MemberDescriptorType:
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
            if name in SET_BY_TORCH:
                continue
            if HOOK_TABLE.match(str(name)) and isinstance(held, dict):
                held = list(held.values())  # keyed by a counter of the whole process
            snapshot.parts[f".{name}"] = self.take(held, f"{path}.{name}")

    # One method per family of types, tried in the order of METHODS.

    def array(self, value: numpy.ndarray, path: str) -> Snapshot:
        """Contents, layout, and whose memory it is."""
        where = value.__array_interface__["data"][0]
        owner = value
        while isinstance(owner.base, numpy.ndarray):
            owner = owner.base
        place = f"at {(where - owner.__array_interface__['data'][0])} of {self.storages.setdefault(id(owner), path)}"
        self.owners.append(owner)  # its id stays its own
        facts = f"{type_name(type(value))} {value.dtype.str} {value.shape} {value.strides} {value.flags.writeable} {place}"
        if value.dtype.str in NUMERIC:
            return Snapshot(facts, numbers=torch.from_numpy(numpy.array(value)))
        return Snapshot(f"{facts} {'objects' if value.dtype.hasobject else value.tolist()}")

    def scalar(self, value: numpy.generic, path: str) -> Snapshot:
        return Snapshot(f"{type_name(type(value))} {value!r}")

    def tensor(self, value: torch.Tensor, path: str) -> Snapshot:
        with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
            facts = [type_name(type(value)), str(value.dtype), str(tuple(value.shape)), str(value.device)]
            facts.append("requires_grad" if value.requires_grad else "no grad")
            facts.append("leaf" if value.is_leaf else "not a leaf")
            if value.layout is torch.strided and type(value) in (torch.Tensor, torch.nn.Parameter):
                facts += self.memory(value, path)
            elif value.layout is not torch.strided:
                facts.append(str(value.layout))
            if value.layout is torch.sparse_coo:
                facts.append("coalesced" if value.is_coalesced() else "not coalesced")
            inner = inner_tensors(value)
            snapshot = Snapshot(", ".join(facts), numbers=None if inner else numbers_of(value))
            for name, part in inner.items():
                snapshot.parts[f"inner {name}"] = self.take(part, f"{path} inner {name}")
            if value.is_leaf and value.grad is not None:
                snapshot.parts[".grad"] = self.take(value.grad, f"{path}.grad")
        return snapshot

    def memory(self, value: torch.Tensor, path: str) -> list[str]:
        """Strides, lazy flags, and the first tensor met that shares the storage."""
        facts = [name for name, is_set in (("conj", value.is_conj()), ("neg", value.is_neg())) if is_set]
        if self.exact_layout:
            facts.append(f"stride {value.stride()} offset {value.storage_offset()}")
        where = value.untyped_storage().data_ptr()
        if where and where in self.storages:
            facts.append(f"shares storage with {self.storages[where]}")
        elif where:
            self.storages[where] = path
        return facts

    def sequence(self, value: Any, path: str) -> Snapshot:
        base = next(b for b in (list, tuple, collections.deque) if issubclass(type(value), b))
        items = list(base.__iter__(value))
        parts = {f"[{i}]": self.take(item, f"{path}[{i}]") for i, item in enumerate(items)}
        bound = f" maxlen {value.maxlen}" if base is collections.deque else ""
        return Snapshot(f"{type_name(type(value))} of {len(items)}{bound}", parts)

    def unordered(self, value: Any, path: str) -> Snapshot:
        base = set if issubclass(type(value), set) else frozenset
        # Sorted by contents: the order of a set of objects follows their addresses.
        ordered = sorted(base.__iter__(value), key=lambda item: str(Snapshotter(self.home).take(item, "")))
        parts = {f"{{{i}}}": self.take(item, f"{path}{{{i}}}") for i, item in enumerate(ordered)}
        return Snapshot(f"{type_name(type(value))} of {len(ordered)}", parts)

    def mapping(self, value: Any, path: str) -> Snapshot:
        raw = value if type(value) is types.MappingProxyType else None
        pairs = list(value.items()) if raw is not None else list(dict.items(value))
        if isinstance(value, collections.OrderedDict):
            pairs = list(collections.OrderedDict.items(value))
        snapshot = Snapshot(f"{type_name(type(value))} of {len(pairs)}")
        for i, (key, held) in enumerate(pairs):
            edge = f"[{key!r}]" if is_atom(key) else f"[key {i}]"
            snapshot.parts[f"key {i}"] = self.take(key, f"{path} key {i}")
            snapshot.parts[edge] = self.take(held, path + edge)
        if isinstance(value, collections.defaultdict):
            snapshot.parts["default_factory"] = self.take(value.default_factory, f"{path}.default_factory")
        return snapshot

    def function(self, value: types.FunctionType, path: str) -> Snapshot:
        label = f"function {value.__module__}.{value.__qualname__}"
        if value.__module__ != self.home:
            return Snapshot(label)
        # The namespace of a class that a decorator replaced is emptied by the collector: 3.14 holds it for annotations.
        cells = [self.cell_content(cell) for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
                 if name != "__classdict__"]
        return self.compose(label, path, __defaults__=value.__defaults__, __kwdefaults__=value.__kwdefaults__,
                            __dict__=dict(value.__dict__), __name__=value.__name__, __doc__=value.__doc__,
                            __closure__=cells)  # fmt: skip

    def cell_content(self, cell: types.CellType) -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            return NotImplemented  # an empty cell

    def cell(self, value: types.CellType, path: str) -> Snapshot:
        return self.compose("cell", path, contents=self.cell_content(value))

    def a_class(self, value: type, path: str) -> Snapshot:
        label = f"class {type_name(value)} of {type_name(type(value))}"
        if type.__getattribute__(value, "__module__") != self.home:
            return Snapshot(label)
        snapshot = Snapshot(label)
        for i, base in enumerate(type.__getattribute__(value, "__bases__")):
            snapshot.parts[f"base {i}"] = self.take(base, f"{path} base {i}")
        for name, held in type.__getattribute__(value, "__dict__").items():
            if name not in BOOKKEEPING:
                snapshot.parts[f".{name}"] = self.take(held, f"{path}.{name}")
        return snapshot

    def exception(self, value: BaseException, path: str) -> Snapshot:
        try:
            text = without_addresses(str(value))
        except Exception as failure:  # the program's own __str__ may raise: that too is compared
            text = f"<str() raised {failure!r}>"
        args = tuple(without_addresses(part) if type(part) is str else part for part in value.args)
        snapshot = self.compose(f"{type_name(type(value))}: {text}", path, args=args,
                                __cause__=value.__cause__, __context__=value.__context__,
                                __suppress_context__=value.__suppress_context__)  # fmt: skip
        for name in [name for name in value.__dict__ if name not in SET_BY_TORCH]:  # __notes__ among them
            held = value.__dict__[name]
            snapshot.parts[f".{name}"] = self.take(held, f"{path}.{name}")
        return snapshot

    def handle(self, value: RemovableHandle, path: str) -> Snapshot:
        """The hooks beside it; its id is a counter of the whole process."""
        return self.compose(type_name(type(value)), path, hooks=list((value.hooks_dict_ref() or {}).values()))

    def generator(self, value: types.GeneratorType, path: str) -> Snapshot:
        return Snapshot(f"generator {value.__qualname__} {inspect.getgeneratorstate(value)}")

    def coroutine(self, value: types.CoroutineType, path: str) -> Snapshot:
        return Snapshot(f"coroutine {value.__qualname__} {inspect.getcoroutinestate(value)}")

    def partial(self, value: functools.partial, path: str) -> Snapshot:
        return self.compose(type_name(type(value)), path, func=value.func, args=value.args, keywords=value.keywords)

    def wrapper(self, value: Any, path: str) -> Snapshot:
        return self.compose(type(value).__name__, path, __func__=value.__func__)

    def a_property(self, value: property, path: str) -> Snapshot:
        return self.compose("property", path, fget=value.fget, fset=value.fset, fdel=value.fdel)

    def a_slice(self, value: slice, path: str) -> Snapshot:
        return self.compose("slice", path, start=value.start, stop=value.stop, step=value.step)

    def weak(self, value: weakref.ref, path: str) -> Snapshot:
        return self.compose(type_name(type(value)), path, target=value())

    def atom_subclass(self, value: Any, path: str) -> Snapshot:
        base = next(b for b in (int, float, complex, str, bytes) if issubclass(type(value), b))
        return Snapshot(f"{type_name(type(value))} {base.__repr__(value)}")

    def opaque(self, value: Any, path: str) -> Snapshot:
        """A C object without state that we know: its type, its position, its repr if written in C."""
        label = type_name(type(value))
        if type(value).__init_subclass__ is object.__init_subclass__ and hasattr(type(value), "__length_hint__"):
            return Snapshot(f"{label} with {operator.length_hint(value)} left")
        if isinstance(type(value).__repr__, types.WrapperDescriptorType):
            text = without_addresses(repr(value))
            return Snapshot(label if "0x..." in text else f"{label} {text}")
        return Snapshot(label)


METHODS: tuple[tuple[Any, Callable[[Snapshotter, Any, str], Snapshot]], ...] = (
    (torch.Tensor, Snapshotter.tensor),
    (numpy.ndarray, Snapshotter.array),
    (numpy.generic, Snapshotter.scalar),
    ((list, tuple, collections.deque), Snapshotter.sequence),
    ((set, frozenset), Snapshotter.unordered),
    ((dict, types.MappingProxyType), Snapshotter.mapping),
    (types.FunctionType, Snapshotter.function),
    (type, Snapshotter.a_class),
    (BaseException, Snapshotter.exception),
    (types.GeneratorType, Snapshotter.generator),
    (types.CoroutineType, Snapshotter.coroutine),
    (functools.partial, Snapshotter.partial),
    ((classmethod, staticmethod), Snapshotter.wrapper),
    (property, Snapshotter.a_property),
    (slice, Snapshotter.a_slice),
    (types.CellType, Snapshotter.cell),
    (weakref.ref, Snapshotter.weak),
    (RemovableHandle, Snapshotter.handle),
    ((int, float, complex, str, bytes), Snapshotter.atom_subclass),
)


def inner_tensors(value: torch.Tensor) -> dict[str, torch.Tensor]:
    """The tensors that a wrapper subclass or a nested tensor is made of."""
    if value.is_nested:
        return {f"row {i}": row for i, row in enumerate(value.unbind())}
    if not hasattr(type(value), "__tensor_flatten__"):
        return {}
    return {name: getattr(value, name) for name in value.__tensor_flatten__()[0]}  # type: ignore[attr-defined]


def numbers_of(value: torch.Tensor) -> torch.Tensor | None:
    """A plain strided copy; None on the meta device, which holds no numbers."""
    plain = value.detach()
    if plain.device.type == "meta":
        return None
    if plain.is_quantized:
        return plain.dequantize()
    return plain.to_dense() if plain.layout is not torch.strided else plain.clone()


def same_numbers(left: torch.Tensor, right: torch.Tensor, tolerance: Tolerance) -> bool:
    """Equal numbers: bit by bit (0.0), within a tolerance (relative, absolute), or as torch.testing takes their dtype (None).

    A single number is the relative tolerance; the absolute one is a tenth of it.
    An infinite tolerance accepts any: torch.empty() gives arbitrary numbers.
    """
    if tolerance == math.inf:
        return True
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    with torch._C.DisableTorchFunctionSubclass():
        if tolerance == 0.0 or not (left.dtype.is_floating_point or left.dtype.is_complex):
            return bool((((left == right) & same_signs(left, right)) | ((left != left) & (right != right))).all())
        try:
            relative, absolute = (tolerance, tolerance / 10) if isinstance(tolerance, float) else tolerance or (None, None)
            torch.testing.assert_close(right, left, rtol=relative, atol=absolute, equal_nan=True)
        except AssertionError:
            return False
    return True


def same_signs(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where two tensors agree in the sign of zeros."""
    if left.dtype.is_complex:
        return (torch.view_as_real(left.resolve_conj()).signbit() == torch.view_as_real(right.resolve_conj()).signbit()).all(-1)
    if left.dtype.itemsize == 1 and left.dtype.is_floating_point:  # float8, which has no such kernel
        left, right = left.float(), right.float()
    return left.signbit() == right.signbit() if left.dtype.is_floating_point else torch.ones_like(left, dtype=torch.bool)


def same_floats(eager: str, compiled: str, tolerance: Tolerance) -> bool:
    """Whether two labels are Python floats within the tolerance of the tensors that they were read from."""
    if tolerance == 0.0 or not (eager.startswith("float ") and compiled.startswith("float ")):
        return False
    left, right = (torch.tensor(float(label.removeprefix("float "))) for label in (eager, compiled))
    return same_numbers(left, right, tolerance)


def differences(eager: Snapshot, compiled: Snapshot, path: str, tolerance: Tolerance = 0.0) -> Iterator[str]:
    """Every place where two snapshots differ, in the program's terms."""
    if eager.label != compiled.label and not same_floats(eager.label, compiled.label, tolerance):
        yield f"{path}: eager {eager.label!r}, compiled {compiled.label!r}"
        return
    if eager.numbers is not None and compiled.numbers is not None:
        if not same_numbers(eager.numbers, compiled.numbers, tolerance):
            yield f"{path}: eager {eager.numbers}, compiled {compiled.numbers}"
    if list(eager.parts) != list(compiled.parts):
        yield f"{path}: eager has {only_in(eager, compiled)}, compiled has {only_in(compiled, eager)}"
    for edge in [edge for edge in eager.parts if edge in compiled.parts]:
        joint = "" if edge.startswith(("[", ".", "{")) else "."
        yield from differences(eager.parts[edge], compiled.parts[edge], f"{path}{joint}{edge}", tolerance)


def only_in(one: Snapshot, other: Snapshot) -> str:
    """The parts that the other lacks, with what they are; all of them if only the order differs."""
    own = {edge: part.label for edge, part in one.parts.items() if edge not in other.parts}
    return str(own) if one.parts.keys() != other.parts.keys() else f"the order {list(one.parts)}"
