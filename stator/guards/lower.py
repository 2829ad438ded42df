"""From guards to the flat program that C++ runs.

In: guards in checking order, and the sources whose values the residual wants.  Out: a Program of plain tuples: nodes
(op, parent, payload), each shared prefix once and parents first; checks (node, kind, payload); wanted node numbers.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from types import MemberDescriptorType
from typing import Any

from torch.utils._device import DeviceContext

from stator import _core
from stator.guards.global_state import DefaultDevice, GlobalState
from stator.guards.guard import MISSING, Guard, Kind, is_constant
from stator.guards.guard_set import Pattern, PatternInstance, needed
from stator.guards.tensor_meta import TensorMeta
from stator.host.value_kinds import dict_of_class
from stator.source import (
    Attr,
    CallOf,
    CellOf,
    DictOf,
    Global,
    Index,
    Key,
    KeyAt,
    Local,
    Pinned,
    SetAt,
    Slot,
    Source,
    TypeOf,
    ValueAt,
    name_of,
)


class Op(enum.IntEnum):
    """How a node's value is read from its parent's."""

    ARG, PINNED, DICT_OF, KEY, KEY_AT, VALUE_AT, INDEX, SET_AT, SLOT, ATTR, CELL, TYPE, CALL = range(13)
    ITEMS_LEFT = 13


class CheckedGuards:
    """The guard behind each check, by its number."""

    __slots__ = ("single", "_starts", "_instances")

    def __init__(self) -> None:
        self.single: list[Guard] = []
        self._starts: list[int] = []
        self._instances: list[tuple[PatternInstance, list[int]]] = []  # its guards that are checked, in order

    def add(self, start: int, instance: PatternInstance, facts: list[int]) -> None:
        self._starts.append(start)
        self._instances.append((instance, facts))

    def __getitem__(self, number: int) -> Guard:
        if number < len(self.single):
            return self.single[number]
        place = bisect_right(self._starts, number) - 1
        if place < 0:
            raise IndexError(number)
        instance, facts = self._instances[place]
        return instance.guard(facts[number - self._starts[place]])


@dataclass(slots=True)
class Program:
    """The arguments of `_core.GuardProgram`; `guards[i]` is the guard behind `checks[i]`."""

    nodes: list[tuple[int, int, Any]] = field(default_factory=list)
    checks: list[tuple[int, int, Any]] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    guards: CheckedGuards = field(default_factory=CheckedGuards)


def lower(guards: Iterable[Guard], wanted_sources: Sequence[Source] = (),
          instances: Sequence[PatternInstance] = ()) -> Program:
    program = Program()
    numbers: dict[Source, int] = {}
    guards = list(guards)
    instances, expanded = separate(instances)
    for each in expanded:
        guards += each.guards()
    for guard in guards:
        number = -1 if guard.kind is Kind.GLOBAL_STATE else _number(guard.source, program, numbers)
        program.checks.append((number, guard.kind._value_, _check_payload(guard, program, numbers)))
    program.guards.single = guards
    if instances:
        _lower_instances(instances, program, numbers)
    program.wanted = [_number(source, program, numbers) for source in wanted_sources]
    return program


def separate(instances: Sequence[PatternInstance]) -> tuple[list[PatternInstance], list[PatternInstance]]:
    """Split instances: those of objects that are no part of one another, and the others."""
    roots: set[Source] = set()
    apart: list[PatternInstance] = []
    others: list[PatternInstance] = []
    everything = {each.root for each in instances}
    for each in instances:
        above = each.root.base
        while above is not None and above not in everything:
            above = above.base
        (others if above is not None or each.root in roots else apart).append(each)
        roots.add(each.root)
    return apart, others


def lowered_pattern(pattern: Pattern) -> tuple[list[tuple[int, int, Any]], list[tuple[int, int, Any, int]], list[int]]:
    """Nodes (op, place of the parent, payload), checks (place, kind, payload, fact), the place of each source."""
    if pattern.lowered is None:
        program = Program()
        numbers = {pattern.sources[0]: 0}
        program.nodes.append((-1, -1, None))  # the object itself
        guards = [guard for guard, _ in pattern.facts]
        checks = []
        for fact in needed(guards):
            place = _number(guards[fact].source, program, numbers)
            checks.append((place, int(guards[fact].kind), _check_payload(guards[fact], program, numbers), fact))
        pattern.lowered = (program.nodes[1:], checks, [numbers.get(source, -1) for source in pattern.sources])
    return pattern.lowered  # type: ignore[no-any-return]


def _lower_instances(instances: Sequence[PatternInstance], program: Program, numbers: dict[Source, int]) -> None:
    """Append the nodes and checks of instances that no guard of its own has added."""
    roots = [_number(each.root, program, numbers) for each in instances]
    before = len(program.nodes)
    nodes, all_checks = program.nodes, program.checks
    below = set(roots)  # only nodes below the objects themselves can repeat
    known: dict[Any, int] = {}
    for place, node in enumerate(nodes):
        if node[1] in below:
            known[node] = place
            below.add(place)
    asked = {(*check[:2], guard.key[2]) for check, guard in zip(all_checks, program.guards.single, strict=True)
             if check[0] in below}
    for each, root in zip(instances, roots, strict=True):
        pattern_nodes, checks, places = lowered_pattern(each.pattern)
        at = [root]
        for op, parent, payload in pattern_nodes:
            above = at[parent]
            node = (op, above, payload)
            number = known.get(node) if above < before else None
            if number is None:
                number = len(nodes)
                nodes.append(node)
            at.append(number)
        facts: list[int] = []
        start = len(all_checks)
        for place, kind, payload, fact in checks:
            number = at[place]
            if number >= before or (number, kind, each.pattern.facts[fact][0].key[2]) not in asked:
                all_checks.append((number, kind, payload))
                facts.append(fact)
        program.guards.add(start, each, facts)
        for number, source in each.made():
            if places[number] > 0:
                numbers.setdefault(source, at[places[number]])


def _number(source: Source, program: Program, numbers: dict[Source, int]) -> int:
    """The node of a source, made with its parents when it is new."""
    known = numbers.get(source)
    if known is not None:
        return known
    base = source.base
    parent = -1
    if base is not None:
        above = numbers.get(base)
        parent = _number(base, program, numbers) if above is None else above
    if type(source) is CallOf:
        arguments = tuple(_number(arg, program, numbers) for arg in source.args)
        node: tuple[int, int, Any] = (int(Op.CALL), -1, (source.fn.obj, arguments))
        if source.fn.obj is _core.at_least:  # a read of the iterator that runs no code
            node = (int(Op.ITEMS_LEFT), arguments[0], source.args[1].obj)  # type: ignore[attr-defined]
    else:
        op, payload = _NODES[type(source)]
        node = (op, parent, None if payload is None else payload(source))
    numbers[source] = number = len(program.nodes)
    program.nodes.append(node)
    return number


# The operation of each step, and its payload.
_NODES: dict[type, tuple[int, Any]] = {step: (int(op), payload) for step, (op, payload) in {
    Local: (Op.ARG, attrgetter("index")), Pinned: (Op.PINNED, attrgetter("obj")), DictOf: (Op.DICT_OF, None),
    Key: (Op.KEY, lambda source: _hashed(source.key)), Global: (Op.KEY, lambda source: _hashed(source.key)),
    KeyAt: (Op.KEY_AT, attrgetter("index")), ValueAt: (Op.VALUE_AT, attrgetter("index")),
    Index: (Op.INDEX, attrgetter("index")), SetAt: (Op.SET_AT, attrgetter("index")),
    Slot: (Op.SLOT, lambda source: member_descriptor(source.owner, source.name)), Attr: (Op.ATTR, attrgetter("name")),
    CellOf: (Op.CELL, None), TypeOf: (Op.TYPE, None),
}.items()}


def _check_payload(guard: Guard, program: Program, numbers: dict[Source, int]) -> Any:
    made = _PAYLOADS.get(guard.kind)
    if made is not None:
        return made(guard.value)
    if guard.kind in (Kind.ALIAS, Kind.NOT_ALIAS):
        return _number(guard.value, program, numbers)
    if guard.kind is Kind.SHAPE:
        check = guard.value
        operands = tuple((_number(o.source, program, numbers), int(o.property), o.index) for o in check.operands)
        return (operands, check.code, check.constants)
    if guard.kind is Kind.PARTITION:
        held = guard.value
        places = tuple((_number(p.source, program, numbers), int(p.address), p.written) for p in held.places)
        return (places, held.groups, held.begins)
    return guard.value


def _constant(value: object) -> object:
    if not is_constant(value):
        raise ValueError(f"{name_of(value)} is not a constant: guard it by ID")
    return value


def _state_payload(state: GlobalState) -> tuple[Any, ...]:
    """Modes become (DeviceContext, device) or (class, None)."""
    modes = tuple((DeviceContext, mode.device) if isinstance(mode, DefaultDevice) else (mode.kind, None)
                  for mode in state.function_modes)
    return (state.grad_enabled, state.inference_mode, state.autocast, state.autocast_cache, state.default_dtype,
            state.deterministic, state.deterministic_warn_only, state.torch_function_disabled, modes,
            state.dispatch_modes, state.functorch_level)


def _hashed(key: object) -> tuple[Any, int]:
    """A dict key with its hash: C++ compares hash and identity or exact constants, and calls no `__hash__`."""
    if type(key) is str or is_lookup_key(key):
        return (key, hash(key))
    raise ValueError(f"cannot look up {name_of(key)} without running its code: use KeyAt and ValueAt")


def is_lookup_key(key: object) -> bool:
    """Whether a raw lookup finds this key: a constant, an object hashed by identity, or an enum member."""
    if is_constant(key):
        return type(key) is not slice
    kind = type(key)
    hash_method = kind.__hash__
    return (hash_method is object.__hash__ or hash_method is enum.Enum.__hash__) and kind.__eq__ is object.__eq__


_PAYLOADS: dict[Kind, Any] = {
    Kind.TENSOR: attrgetter(*(each.name for each in fields(TensorMeta))), Kind.GLOBAL_STATE: _state_payload,
    Kind.ABSENT: _hashed, Kind.PRESENT: _hashed, Kind.VALUES: attrgetter("dtype", "sizes", "data"),
    Kind.TYPE_ATTR: lambda value: value[:1] if value[1] is MISSING else value, Kind.SET_EQUALS: tuple,
    Kind.SLOT_EMPTY: lambda value: member_descriptor(value[1], value[0]), Kind.EQUALS: _constant,
    Kind.FRESH_CALL: _constant,
}  # of the others: the value of the guard


def member_descriptor(owner: type, name: str) -> MemberDescriptorType:
    """The descriptor of a `__slots__` member (its name may be mangled in the class's dict)."""
    descriptor = dict_of_class(owner).get(name)
    if type(descriptor) is not MemberDescriptorType:
        raise ValueError(f"{owner.__qualname__}.{name} is not a slot")
    return descriptor
