"""Which memory an operation writes to, and whether it may run twice.   x.add_(1)  ->  x;   F.relu(y, True)  ->  y

In: a torch callable with its fake arguments.  Out: the arguments it writes to, by its schema, or observed while it runs
on fakes: version counters, or a dispatch mode.  The recorder stores them on the node (`WRITTEN`) for later passes.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode

from stator.host.value_kinds import mro_of

_FLAGS = ("training", "use_input_stats", "updates")
_PARTS = ("running_mean", "running_var")
_NORMALISATIONS: tuple[tuple[Any, tuple[str, ...], bool], ...] = (  # parameters, whether it updates by default
    (F.batch_norm, ("input", "running_mean", "running_var", "weight", "bias", "training"), False),
    (F.instance_norm, ("input", "running_mean", "running_var", "weight", "bias", "use_input_stats"), True),
)
COUNTED = frozenset({id(F.instance_norm), id(torch.instance_norm)})  # version counters show these updates
STATISTICS = {id(function): (names, updates) for function, names, updates in _NORMALISATIONS}
WRITTEN = "written"  # in a node's metadata: places of the arguments it writes to, among all nodes that it is given
UNREPEATABLE = "unrepeatable"  # in a node's metadata: running it a second time could be seen; why
CODE, COLLECTIVES = "code", "collectives"  # it runs code of the program; ranks communicate in it, and no more
WRITTEN_AROUND = "written_around"  # in the metadata of a piece: storages of its inputs that the whole graph writes to
_OF_TORCH = frozenset({"aten", "prims", "prim"})  # namespaces of operators
_OF_RANKS = frozenset({"stator_ranks", "_c10d_functional", "_c10d_functional_autograd", "c10d"})
_COUNTING = ("ADInplaceOrView", "CompositeExplicitAutograd", "CompositeImplicitAutograd")  # kernels that count writes
PURE_KERNELS: set[object] = set()  # custom operators whose Python code is proven pure (interp/pure_kernels)
_PRINT = "stator::print"  # the other operators of Stator compute numbers
_C_CALLABLES = (types.BuiltinFunctionType, types.MethodDescriptorType)
_MODULES = frozenset({"torch", "_operator", "operator", "math", "builtins"})
_NONE: list[FakeTensor] = []


def updates_statistics(schema: Any) -> bool:
    """Whether an operator may update statistics that its schema does not mark as written."""
    if _PARTS[0] not in str(schema):  # its text takes less than its arguments
        return False
    names = [argument.name for argument in schema.arguments if argument.alias_info is None]
    return schema.name.startswith("aten::") and _PARTS[0] in names and not any(
        part in schema.name for part in ("backward", "functional", "no_training", "no_update"))


def statistics_given(given: dict[str, Any], updates: bool) -> list[Any]:
    """The running mean and variance among named arguments, where the call updates them."""
    flag = next((given[name] for name in _FLAGS if name in given), updates)
    return [given[name] for name in _PARTS if given.get(name) is not None] if flag is not False else []


def normalised_statistics(func: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
    """The statistics that a Python function of torch updates; None for any other callable."""
    names = STATISTICS.get(id(func))
    return None if names is None else statistics_given(dict(zip(names[0], args, strict=False), **kwargs), names[1])


class Signature:
    """The parameters that an operator writes to, by position and by name."""

    __slots__ = ("positions", "names", "outputs", "schemas", "counted")

    def __init__(self, schemas: Iterable[Any], parsed: bool) -> None:
        self.positions: set[int] = set()
        self.names: set[str] = {"out"} if parsed else set()  # torch's argument parser calls every output so
        self.outputs = self.names.copy()  # those that get the results
        self.schemas = []  # of those that update running statistics
        self.counted = False  # whether version counters of tensors show the writes
        for schema in schemas:
            if updates_statistics(schema):
                self.schemas.append(schema)
            for place, argument in enumerate(schema.arguments if schema.is_mutable else ()):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    self.names.add(argument.name)
                    if argument.is_out:
                        self.outputs.add(argument.name)
                    self.counted = self.counted or any(
                        torch._C._dispatch_has_kernel_for_dispatch_key(full_name(schema), key) for key in _COUNTING)
                    if not argument.kwarg_only:
                        self.positions.add(place)

    def written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        found = [args[place] for place in self.positions if place < len(args)]
        if kwargs:
            found += [value for name, value in kwargs.items() if name in self.names]
        return found + self.statistics(args, kwargs) if self.schemas else found

    def statistics(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Those that are updated though no schema declares it."""
        found = []
        for schema in self.schemas:
            given = dict(zip([argument.name for argument in schema.arguments], args, strict=False), **kwargs)
            found += statistics_given(given, True)
        return found


def signature_of(func: object) -> Signature | None:
    """None: a callable without a schema, or with one that the dispatcher does not know."""
    return _signature_of(func) if isinstance(func, (*_C_CALLABLES, OpOverload, OpOverloadPacket)) else None


@functools.cache
def _signature_of(func: Any) -> Signature | None:
    parsed = isinstance(func, _C_CALLABLES)
    if parsed:  # torch generates it from the operators of the same name
        every = schemas_of(f"aten::{func.__name__}") if is_torchs(func) else []
        if not every:
            return None
    else:
        every = [func._schema] if isinstance(func, OpOverload) else schemas_of(func._qualified_op_name)
    # Operators of TorchScript write to copies of lists, or by calling operators of the dispatcher.
    schemas = [each for each in every if torch._C._dispatch_has_kernel(full_name(each))]
    return Signature(schemas, parsed) if schemas or parsed else None


@functools.cache
def schemas_of(operator: str) -> list[torch._C.FunctionSchema]:
    """The schemas of all overloads; torch.ops would make an object of each overload."""
    return torch._C._jit_get_schemas_for_operator(operator)


def full_name(schema: torch._C.FunctionSchema) -> str:
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def writes_two_ways(node: fx.Node) -> bool:
    """Whether an operator writes to outputs (out=) and to other arguments (`rrelu_with_noise.out`: to `noise`, too)."""
    if node.op != "call_function" or not node.kwargs:
        return False
    signature = signature_of(node.target)
    return signature is not None and bool(signature.positions) and not signature.names.isdisjoint(node.kwargs)


def output_names(func: object) -> set[str]:
    signature = signature_of(func) if operator_name(func) else None
    return set() if signature is None else signature.outputs


def declared_writes(func: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[FakeTensor] | None:
    """The tensors that a schema declares written; None where there is no schema."""
    signature = signature_of(func)
    if signature is None:
        found = normalised_statistics(func, args, kwargs)
        return None if found is None else list(tensors_in(found))
    if not signature.positions and not kwargs and not signature.schemas:
        return _NONE
    return list(tensors_in(signature.written(args, kwargs)))


def may_write_first(func: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a call that fails may have written: to the first of several tensors, or the sizes of out=."""
    written = declared_writes(func, args, kwargs)
    return not is_torchs(func) if written is None else len(written) > 1 or bool(written) and "out" in kwargs


def tensors_in(value: object) -> Iterator[FakeTensor]:
    if type(value) is FakeTensor or isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


class _Operators(TorchDispatchMode):
    """The operators that run: which storages they write to, whether all may run twice."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.storages: set[int] = set()
        self.counted: set[int] = set()  # storages whose version counters show a write in an eager call
        self.repeatable = True

    def __torch_dispatch__(self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        written = set(map(storage_of, declared_writes(func, args, kwargs) or ()))
        self.storages |= written
        if written and counts_writes(func):
            self.counted |= written
        self.repeatable = self.repeatable and is_repeatable_target(func)
        return func(*args, **kwargs)


class Observation:
    """Writes of a callable without a schema.   with Observation(func, args, kwargs) as seen: ..."""

    __slots__ = ("tensors", "versions", "operators", "opaque", "missed")

    def __init__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                 opaque: bool | None = None) -> None:
        self.tensors = [*tensors_in(args), *tensors_in(kwargs)] if kwargs else list(tensors_in(args))
        self.opaque = not is_torchs(func) if opaque is None else opaque
        self.versions = versions_of(self.tensors)
        self.missed: list[FakeTensor] = []  # written to, and no version counter shows it
        with torch._C.DisableTorchFunction():
            counted = not any([tensor.is_inference() for tensor in self.tensors])
        watched = (self.opaque or not counted) and not isinstance(func, HigherOrderOperator)
        self.operators = _Operators() if watched else None

    def __enter__(self) -> Observation:
        if self.operators is not None:
            self.operators.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.operators is not None:
            self.operators.__exit__(*exc)

    @property
    def repeatable(self) -> bool:
        return not self.opaque and (self.operators is None or self.operators.repeatable)

    def written(self) -> list[FakeTensor]:
        if self.operators is not None and self.operators.storages:
            found = [(tensor, then) for tensor, then in zip(self.tensors, self.versions, strict=True)
                     if storage_of(tensor) in self.operators.storages]
            counted = [each for each in found if storage_of(each[0]) in self.operators.counted]
            count_writes([tensor for tensor, _ in counted], [then for _, then in counted])
            self.missed = not_counted([tensor for tensor, _ in found], [then for _, then in found])
        now = versions_of(self.tensors)
        return [tensor for tensor, then, count in zip(self.tensors, self.versions, now, strict=True)
                if count != then] + self.missed


def why_seen_once(seen: Observation | None) -> str:
    """Why a call must not run twice, where it was observed."""
    return "" if seen is None or seen.repeatable else CODE


def versions_of(tensors: Iterable[Any]) -> list[int]:
    with torch._C.DisableTorchFunction():
        return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


def counts_writes(func: Callable[..., Any]) -> bool:
    """Whether an eager call counts its writes in version counters: not those to running statistics, nor fused steps."""
    signature = signature_of(func)
    return id(func) in COUNTED or signature is not None and signature.counted


def count_writes(tensors: list[Any], before: list[int]) -> None:
    """Count writes to fakes whose rules do not, as eager calls do (`_foreach_add_`)."""
    with torch._C.DisableTorchFunction():
        for tensor in not_counted(tensors, before):
            if not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)


def not_counted(tensors: list[Any], before: list[int]) -> list[Any]:
    return [tensor for tensor, now, then in zip(tensors, versions_of(tensors), before, strict=True) if now == then]


def storage_of(tensor: torch.Tensor) -> int:
    """The identity of a fake's storage; 0 where there is none."""
    with torch._C.DisableTorchFunction():
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
            return 0
        storage: int = tensor.untyped_storage()._cdata
        return storage


def note_writes(node: fx.Node, written: set[fx.Node]) -> None:
    """Put on a node which of the nodes that it is given it writes to."""
    node.meta[WRITTEN] = tuple([place for place, given in enumerate(given_nodes(node)) if given in written])


def given_nodes(node: fx.Node) -> list[fx.Node]:
    """The arguments of a node that are nodes, in order, as often as they occur."""
    found: list[fx.Node] = []
    map_arg((node.args, node.kwargs), found.append)
    return found


def reached(start: Iterable[fx.Node], step: Callable[[fx.Node], Iterable[fx.Node]]) -> set[fx.Node]:
    """The nodes that `start` leads to, itself included."""
    waiting, seen = list(start), set()
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += step(node)
    return seen


def writes(node: fx.Node) -> bool:
    return bool(written_by(node))


def written_by(node: fx.Node) -> list[fx.Node]:
    """The nodes among its arguments that a node writes to: as recorded, or as the schema of its target declares."""
    if not node.op.startswith("call_"):
        return []  # an input of a piece keeps the metadata of the node that made it
    places = node.meta.get(WRITTEN)
    if places is not None:
        given = given_nodes(node)
        return list(dict.fromkeys([given[place] for place in places]))
    func = getattr(torch.Tensor, str(node.target), None) if node.op == "call_method" else node.target
    signature = signature_of(func)
    if signature is None or not signature.positions and not node.kwargs and not signature.schemas:
        return []
    found: list[fx.Node] = []
    map_arg(signature.written(node.args, node.kwargs), found.append)
    return list(dict.fromkeys(found))


def changes_views(node: fx.Node) -> bool:
    """Whether a node changes in place how a tensor lies in its memory, or whose view it is (`t_`, `detach_`)."""
    tags = tags_of(node.target) if node.op.startswith("call_") else ()
    return torch.Tag.inplace_view in tags


@functools.cache
def _tags_of(name: str) -> frozenset[torch.Tag]:
    qualified = f"aten::{name}"
    return frozenset([tag for schema in schemas_of(qualified)
                      for tag in torch._C._get_operation_overload(qualified, schema.overload_name)[2]])


def tags_of(target: object) -> frozenset[torch.Tag]:
    """The tags of all overloads of ATen's operator of that name; none for a function of the user."""
    return _tags_of(operator_name(target) or "-")


def uncounted_writes(node: fx.Node) -> list[fx.Node]:
    """The running statistics that a node updates: no version counter shows it."""
    found = normalised_statistics(node.target, node.args, node.kwargs)
    if found is None:
        signature = signature_of(node.target) if node.op == "call_function" else None
        found = [] if signature is None else signature.statistics(node.args, node.kwargs)
    return [each for each in found if isinstance(each, fx.Node)]


def written_storages(node: fx.Node) -> set[int]:
    """The storages that a node writes to, by identity (`storage_of`)."""
    return {storage_of(tensor) for each in written_by(node) for tensor in tensors_in(each.meta.get("example_value"))}


def operator_name(target: object) -> str:
    """`add_` of Tensor.add_ and torch.ops.aten.add_.Tensor; "" for a function of the user, whatever its name."""
    if type(target) is str:
        return target
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        namespace, _, name = qualified_name(target).partition("::")
        return name if namespace in _OF_TORCH else ""
    return getattr(target, "__name__", "") if is_torchs(target) else ""


def is_repeatable(node: fx.Node) -> bool:
    """Whether a node may run twice: not custom operators, collectives, prints and functions of the user."""
    return not why_once(node)


def why_once(node: fx.Node) -> str:
    """Why a node must not run twice; empty where it may."""
    if node.op != "call_function":
        return ""
    found: str = node.meta.get(UNREPEATABLE, "")
    if found or is_repeatable_target(node.target):
        return found
    return COLLECTIVES if is_collective(node.target) else CODE


def is_collective(target: object) -> bool:
    """An operator in which ranks communicate, or that waits for one."""
    return isinstance(target, (OpOverload, OpOverloadPacket)) and qualified_name(target).partition("::")[0] in _OF_RANKS


def is_repeatable_target(target: object) -> bool:
    if HigherOrderOperator in mro_of(type(target)):  # no subclass is registered: ABCMeta asks all classes
        return True  # the recorder looks at the inner graphs that it runs
    if not isinstance(target, (OpOverload, OpOverloadPacket)):
        return not str(getattr(target, "__module__", "")).startswith("torch.distributed")
    name = qualified_name(target)
    namespace = name.partition("::")[0]
    return namespace in _OF_TORCH or namespace == "stator" and name != _PRINT or target in PURE_KERNELS


def qualified_name(operator: Any) -> str:
    """`aten::add` of torch.ops.aten.add and torch.ops.aten.add.Tensor."""
    name: str = operator._schema.name if isinstance(operator, OpOverload) else operator._qualified_op_name
    return name


def is_torchs(func: object) -> bool:
    """Whether a callable is part of torch or of Python."""
    module = getattr(func, "__module__", None) or type(func).__module__
    return str(module).partition(".")[0] in _MODULES or isinstance(func, types.MethodDescriptorType)
