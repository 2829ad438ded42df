"""Branches on data, captured.   y = a(x) if t else b(x)   ->   cond(t, graph of a, graph of b, (x,))

In: a conditional jump on a tensor (or a number that only the graph knows), under `capture_control_flow`.  Each way is
interpreted on a copy of the frame, into a graph of its own, up to the place where the ways meet.  Out: one node in the
graph and the frame behind the meeting place, if neither way changes anything but local variables and both leave the
same there, tensors aside.  Otherwise the ordinary break, whose cause says what was in the way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.code.instruction import Instruction
from stator.code.joins import EXIT, Region, region_after
from stator.graph.record.subgraph import Subgraph
from stator.interp.branches.cond_operator import Merge, Unequal, record_cond
from stator.interp.frame import UNBOUND, Finished, Frame
from stator.interp.mutation_check import Unwatched, Witness
from stator.interp.numbers.symbolic_numbers import as_bool, item_of
from stator.interp.services import VM
from stator.interp.suspend import live_slots
from stator.shapes.symbolic_values import is_unbacked


class Refused(Exception):
    """The branch is left to the ordinary break; the text says why."""


@dataclass
class Way:
    """One way from the branch to the meeting place, interpreted."""

    part: Subgraph
    stack: list[Any]
    slots: list[Any] = field(default_factory=list)


def capture_branch(vm: VM, frame: Frame, instr: Instruction, value: Any, jump_if: bool, keeps: bool = False) -> bool:
    """Capture both ways of a branch and go on where they meet; False where this is no branch on data.

    With `keeps`, the jump leaves the value on the stack.
    """
    if not vm.policy.capture_control_flow:
        return False
    if type(value) is FakeTensor:
        if id(value) in vm.recorder.classes or type(value.numel()) is not int or value.numel() != 1:
            return False  # the class of a tensor may have an answer of its own
    elif not is_unbacked(value):
        return False
    vm.recorder.propagation.require_exact()  # which tensors share memory must be known
    state, ip = vm.exc_state, frame.ip
    try:
        region = find_region(frame, instr)
        witness = Witness(vm)
        below, whole = frame.stack[:-1], list(frame.stack)
        jumped = follow(vm, frame, instr.target, whole if keeps else below, region.join, witness)
        fallen = follow(vm, frame, ip, below, region.join, witness)
        ways = (jumped, fallen) if jump_if else (fallen, jumped)
        meet(vm, frame, region.join, value, *ways)
    except (Refused, Unwatched, Unequal) as why:
        text = describe(why)
        raise Break("SB002", f"the truth of a tensor, in a branch that cannot be captured: {text}", why=text) from None
    finally:
        vm.exc_state = state
    return True


def describe(why: Exception) -> str:
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


# ---------------------------------------------------------------------- one way


_MET = object()


def _meet(vm: VM, frame: Frame, instr: Instruction) -> None:
    raise Finished(_MET)


def follow(vm: VM, frame: Frame, start: int, stack: list[Any], join: int, witness: Witness) -> Way:
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


# ---------------------------------------------------------------------- both


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
    if not vm.policy.capture_control_flow or not vm.recorder.scope.data_dependent or id(value) in vm.recorder.classes \
            or "__bool__" in vm.modes.patched or value.device.type != "cpu" or type(value.numel()) is not int \
            or value.numel() != 1:
        return None
    vm.recorder.slots_used.add("__bool__")
    return as_bool(vm, item_of(vm, condition_of(vm, value)))


def condition_of(vm: VM, value: Any) -> Any:
    """The condition as the operation takes it, at this moment: a bool of the graph's, or a bool tensor of its own."""
    if type(value) is not FakeTensor:
        return as_bool(vm, value)
    return vm.torch_call(torch.ne, (value, 0), None)
