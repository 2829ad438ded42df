"""Branches on data, captured.   y = a(x) if t else b(x)   ->   cond(t, graph of a, graph of b, (x,))

Under `capture_control_flow` each way is interpreted on a copy of the frame, into a graph of its own, up to the
instruction where the ways meet.  Values of both ways merge where they are one object, equal constants, tensors with the
same metadata, or plain containers of such.  A way that changes more than local variables breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.code.flow import EXIT, Region, region_after
from stator.code.instruction import Instruction
from stator.graph.analysis.autograd_boundaries import BOUNDARY, Remembered
from stator.graph.analysis.mutation import storage_of
from stator.graph.analysis.shared_memory import Choice
from stator.graph.record.subgraph import Subgraph, all_operands
from stator.heap.raw_access import CONSTANT_TYPES
from stator.heap.tracker import Box
from stator.host.value_kinds import is_a
from stator.interp.backward_ahead import captures_branch
from stator.interp.branches.branch_gradients import gradients_through
from stator.interp.frame import UNBOUND, Finished, Frame
from stator.interp.mutation_check import MutationCheck, Unwatched
from stator.interp.numbers.symbolic_numbers import as_bool, item_of
from stator.interp.services import VM
from stator.interp.suspend import live_slots

_MET = object()
CONTAINERS: tuple[type, ...] = (tuple, list, dict)


class Refused(Exception):
    """The branch is left to the ordinary break; the text is the reason."""


@dataclass
class Way:
    """One way from the branch to the meeting place, interpreted."""

    part: Subgraph
    stack: list[Any]
    slots: list[Any] = field(default_factory=list)


def capture_branch(vm: VM, frame: Frame, instr: Instruction, value: object, jump_if: bool, keeps: bool = False) -> bool:
    """Capture both ways of a branch; False where it is none on data.  `keeps`: the jump leaves the value there."""
    if not captures_branch(vm, value):
        return False
    vm.recorder.propagation.require_exact()  # which tensors share memory must be known
    state, ip = vm.exc_state, frame.ip
    try:
        region = find_region(frame, instr)
        witness = MutationCheck(vm)
        below, whole = frame.stack[:-1], list(frame.stack)
        jumped = follow(vm, frame, instr.target, whole if keeps else below, region.join, witness)
        fallen = follow(vm, frame, ip, below, region.join, witness)
        ways = (jumped, fallen) if jump_if else (fallen, jumped)
        meet(vm, frame, region.join, value, *ways)
    except (Refused, Unwatched, Unequal) as why:
        text = reason_of(why)
        raise Break("SB002", f"the truth of a tensor, in a branch that cannot be captured: {text}", why=text) from None
    finally:
        vm.exc_state = state
    return True


def reason_of(why: Exception) -> str:
    return f"the program holds a {why}" if type(why) is Unwatched else str(why)


def find_region(frame: Frame, instr: Instruction) -> Region:
    region = region_after(frame.unit, instr.index)
    if region is None:
        raise Refused("its ways never meet")
    if region.loops:
        raise Refused("it is the condition of a loop")
    if region.suspends or frame.names is not None or region.join == EXIT and frame.generator is not None:
        raise Refused("it is in a generator or in the body of a class")
    return region


def _meet(vm: VM, frame: Frame, instr: Instruction) -> None:
    raise Finished(_MET)


def follow(vm: VM, frame: Frame, start: int, stack: list[Any], join: int, witness: MutationCheck) -> Way:
    """Interpret one way on a copy of the frame, its operations recorded apart."""
    program = list(frame.program)
    if join != EXIT:
        program[join] = (_meet, program[join][1])
    copy = Frame(frame.unit, program, frame.func, list(frame.locals), frame.scope)
    copy.stack, copy.ip, copy.builtins = list(stack), start, frame.builtins
    with Subgraph(vm.recorder) as part:
        try:
            value = vm.run(copy)
        except Break as stop:
            vm.pending = None
            raise Refused(stop.stop.why or f"one way of it breaks, with {stop.code}: {stop.cause}") from None
        except Exception as error:
            raise Refused(f"one way of it raises {type(error).__name__}") from None
        finally:
            vm.frame = frame
    if (value is _MET) != (join != EXIT):
        raise Refused("one way of it leaves the function")
    why = witness.changed()
    if why:
        raise Refused(f"one way of it is not free of effects: {why}")
    return Way(part, [value]) if join == EXIT else Way(part, copy.stack, copy.locals)


def meet(vm: VM, frame: Frame, join: int, value: object, taken: Way, other: Way) -> None:
    """One operation for both ways, and the frame as it is behind them."""
    merge = Merge(vm)
    if len(taken.stack) != len(other.stack):
        raise Refused("its ways leave different stacks")
    stack = [merge.plan(a, b) for a, b in zip(taken.stack, other.stack, strict=True)]
    slots: dict[int, Any] = {}
    if join != EXIT:
        for slot in live_slots(frame, join, (taken.slots, other.slots)):
            slots[slot] = merge.plan(taken.slots[slot], other.slots[slot])
    results = record_cond(vm, condition_of(vm, value), taken.part, other.part, merge) if merge.pairs else []
    build = merge.builder(results)
    if join == EXIT:
        return vm.leave(frame, build(stack[0]))
    frame.stack[:] = [build(plan) for plan in stack]
    for slot in range(len(frame.locals)):
        kept = taken.slots[slot] if taken.slots[slot] is other.slots[slot] else UNBOUND
        frame.locals[slot] = build(slots[slot]) if slot in slots else kept
    frame.ip = join


def truth_as_symbol(vm: VM, value: Any) -> Any:
    """`bool(value)` of a tensor, as a number that the graph knows; None where that is not captured."""
    if not captures_branch(vm, value) or vm.policy.capture_control_flow is None and not vm.policy.breaks_are_errors \
            or not vm.recorder.scope.data_dependent or id(value) in vm.recorder.classes \
            or "__bool__" in vm.modes.patched or value.device.type != "cpu" or type(value.numel()) is not int \
            or value.numel() != 1:
        return None
    vm.recorder.slots_used.add("__bool__")
    return as_bool(vm, item_of(vm, condition_of(vm, value)))


def condition_of(vm: VM, value: object) -> Any:
    """The condition as the operation takes it, at this moment: a bool of the graph, or a bool tensor made for it."""
    if type(value) is not FakeTensor:
        return as_bool(vm, value)
    return vm.torch_call(torch.ne, (value, 0), None)


class Unequal(Exception):
    """The two ways yield values that cannot be one."""


@dataclass(frozen=True)
class Kept:
    value: Any


@dataclass(frozen=True)
class Output:
    number: int


@dataclass(frozen=True, eq=False)
class Made:
    cls: type
    keys: tuple[Any, ...]
    parts: tuple[Any, ...]


class Merge:
    """Values of both ways, pair by pair; `pairs` are the tensors that differ."""

    def __init__(self, vm: VM, always_new: bool = False) -> None:
        self.vm = vm
        self.always_new = always_new  # no way may pass on a tensor of before
        self.pairs: list[tuple[Any, Any]] = []
        self.plans: dict[tuple[int, int], Any] = {}
        self.partners: dict[tuple[int, int], int] = {}
        self.kept: list[Any] = []

    def plan(self, a: object, b: object) -> Any:
        a, b = (each.value if type(each) is Box and each.forced else each for each in (a, b))
        cls = type(a)
        if a is b and not (self.always_new and cls is FakeTensor):
            return Kept(a)
        if cls is not type(b):
            raise Unequal(f"its ways yield a {cls.__name__} and a {type(b).__name__}")
        if cls in CONSTANT_TYPES and a == b and repr(a) == repr(b):
            return Kept(a)
        if cls is not FakeTensor and cls not in CONTAINERS:
            raise Unequal(f"its ways yield different values of {cls.__name__}")
        known = self.plans.get((id(a), id(b)))
        if known is not None:
            return known
        for side, mine, other in ((0, a, b), (1, b, a)):  # an object must not be merged with two others
            if self.partners.setdefault((side, id(mine)), id(other)) != id(other):
                raise Unequal("its ways yield the same objects in different places")
        self.kept += (a, b)
        made = self.tensors(a, b) if cls is FakeTensor else self.container(a, b, cls)
        self.plans[id(a), id(b)] = made
        return made

    def tensors(self, a: object, b: object) -> Output:
        why = differing(a, b, self.always_new)
        if not why and any(id(each) in self.vm.tensors.attributes for each in (a, b)):
            why = "attributes"
        if not why and any(id(each) in self.vm.recorder.classes for each in (a, b)):
            why = "their class"
        if why:
            raise Unequal(f"its ways yield tensors that differ in {why}")
        self.pairs.append((a, b))
        return Output(len(self.pairs) - 1)

    def container(self, a: Any, b: Any, cls: type) -> Made:
        heap = self.vm.heap
        if heap.tracker_of(a) is not None or heap.tracker_of(b) is not None or len(a) != len(b):
            raise Unequal(f"its ways yield different values of {cls.__name__}")
        keys: tuple[Any, ...] = ()
        if cls is dict:
            keys = tuple(a)
            if any(type(key) is not str for key in (*keys, *b)) or keys != tuple(b):
                raise Unequal("its ways yield dicts with different keys")
            a, b = a.values(), b.values()
        return Made(cls, keys, tuple(self.plan(x, y) for x, y in zip(a, b, strict=True)))

    def builder(self, results: list[Any]) -> Callable[[Any], Any]:
        """A function from plans to values, given the results of the operation."""
        made: dict[int, Any] = {}

        def build(plan: Any) -> Any:
            if type(plan) is Kept:
                return plan.value
            if type(plan) is Output:
                return results[plan.number]
            if id(plan) not in made:
                parts = [build(part) for part in plan.parts]
                made[id(plan)] = dict(zip(plan.keys, parts, strict=True)) if plan.cls is dict else plan.cls(parts)
            return made[id(plan)]

        return build


def differing(a: Any, b: Any, without_history: bool = False) -> str:
    """In what two tensors differ to the program; empty where they do not."""
    with torch._C.DisableTorchFunction():
        for name in ("dtype", "device", "layout", "requires_grad", "is_quantized"):
            if getattr(a, name) != getattr(b, name) and not (without_history and name == "requires_grad"):
                return name
        if a.layout is not torch.strided:
            return "being sparse"
        if a.dim() != b.dim() or not all(map(_same_extent, a.shape, b.shape)):
            return "shape"
        if not all(map(_same_extent, a.stride(), b.stride())):
            return "strides"
        for ask in ("is_conj", "is_neg", "is_inference"):
            if getattr(a, ask)() != getattr(b, ask)():
                return ask
        return "being a parameter" if is_a(a, torch.nn.Parameter) or is_a(b, torch.nn.Parameter) else ""


def _same_extent(a: Any, b: Any) -> bool:
    """Sizes are the same number or the same expression; nothing is guarded to find out."""
    if type(a) is int or type(b) is int:
        return type(a) is type(b) and a == b
    return bool(a.node.expr == b.node.expr)


def record_cond(vm: VM, condition: object, when_true: Subgraph, when_false: Subgraph, merge: Merge) -> list[Any]:
    """The operation in the graph being recorded; its results have autograd's record if the ways' have one."""
    for side, part in enumerate((when_true, when_false)):
        close(vm, part, [pair[side] for pair in merge.pairs], not merge.always_new)
    operands = all_operands(when_true, when_false)
    modules = []
    for part, role in ((when_true, "cond_true"), (when_false, "cond_false")):
        part.align(operands)
        part.graph.lint()
        assert part.module is not None
        part.module.recompile()
        part.module.meta["role"] = role
        modules.append(part.module)
    outputs = merged_fakes(merge, operands)
    node = vm.recorder.record("call_function", torch.ops.higher_order.cond, (condition, *modules, tuple(operands)), {},
                              outputs)
    if merge.always_new:
        return list(outputs)
    node.meta["is_branch"] = True
    with torch._C.DisableTorchFunction():
        node.meta[BOUNDARY] = any(merged.requires_grad for merged in outputs)
    before = min(when_true.outer_fakes, when_false.outer_fakes, key=len)  # without what the first way has made
    for pair, merged in zip(merge.pairs, outputs, strict=True):
        note_candidates(vm, condition, pair, merged, before)
    return list(outputs)


def close(vm: VM, part: Subgraph, outputs: list[Any], copies: bool, given: list[Any] | None = None) -> None:
    """End one inner graph; what it passes on of outer tensors or of its arguments, whole or in part, is copied."""
    storages = [storage_of(each) for each in outputs if type(each) is FakeTensor]
    if len(set(storages)) != len(storages):
        raise Unequal("its ways yield tensors that share memory")
    with part.reopened():
        made = []
        for each in outputs:
            if type(each) is FakeTensor and shares(each, [*(given or ()), *part.outer_fakes]):
                if not copies:
                    raise Unequal("a function passes on a tensor that it was given")
                copy = vm.torch_call(torch.clone, (each,), None)
                if differing(each, copy):
                    raise Unequal("its ways yield a tensor with a layout of its own")
                each = copy
            made.append(each)
        part.finish(made)


def shares(tensor: torch.Tensor, others: list[Any]) -> list[Any]:
    """Those of the tensors that share memory with one."""
    storage = storage_of(tensor)
    return [other for other in others if other is tensor or type(other) is FakeTensor and storage_of(other) == storage]


def merged_fakes(merge: Merge, operands: list[Any]) -> tuple[Any, ...]:
    with torch._C.DisableTorchFunction():
        differentiable = [value for value in operands if isinstance(value, torch.Tensor) and value.requires_grad]
        with torch.no_grad():
            fakes = [torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device=a.device) for a, _ in merge.pairs]
        if not differentiable or not torch.is_grad_enabled():
            return tuple(fakes)
        constant = [fake for fake, (a, _) in zip(fakes, merge.pairs, strict=True)
                    if not (fake.is_floating_point() if merge.always_new else a.requires_grad)]
        if any(fake.is_floating_point() for fake in constant):  # the operation gives every result a history
            raise Unequal("its ways yield a tensor without a gradient, computed from one with a gradient")
        plan = (tuple(fakes), (), tuple(constant), gradients_through(merge.pairs, differentiable), ())
        return Remembered.apply(plan, *differentiable)  # type: ignore[no-any-return]


def note_candidates(vm: VM, condition: object, pair: tuple[Any, Any], merged: object, outer: list[Any]) -> None:
    """Remember which tensors of before the merged one may be."""
    found = [shares(each, outer) for each in pair]
    candidates = [each for group in found for each in group]
    if not candidates:
        return
    same = [each if any(each is other for other in group) else None for each, group in zip(pair, found, strict=True)]
    known = all(each is not None and (vm.heap.tracker_of(each) is not None or id(each) in vm.recorder.uncertain.choices)
                for each, group in zip(same, found, strict=True) if group)
    vm.recorder.uncertain.note(merged, candidates, Choice(condition, *same) if known else None)
