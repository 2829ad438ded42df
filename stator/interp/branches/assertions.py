"""Branches on data that only guard a `raise`.   assert (x > 0).all(), "negative"  ->  an assertion in the graph

Where one side only raises, the trace takes the other, the graph asserts the condition, and the residual raises the
exception of the program.  With an unbacked message, or one that leaves `with` and `finally` blocks, the call is made
again, eagerly.  A branch whose exception the program may handle breaks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break, Strategy
from stator.code.enclosing_handlers import written_handler
from stator.code.instruction import Instruction
from stator.graph.analysis.may_fail import HANDLED
from stator.heap.raw_access import CONSTANT_TYPES
from stator.interp.frame import Frame, Place, outward, place_of, places_from
from stator.interp.graph_errors import Assertion, promise_number
from stator.interp.mutation_check import MutationCheck, Unwatched
from stator.interp.numbers.symbolic_numbers import as_bool
from stator.interp.services import VM
from stator.interp.torch_function_protocol import own_method
from stator.shapes.symbolic_values import SYMBOLIC, is_unbacked

_STRAIGHT = frozenset({
    "LOAD_ASSERTION_ERROR", "LOAD_CONST", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD",
    "FORMAT_VALUE", "BUILD_STRING", "BUILD_TUPLE", "PUSH_NULL", "PRECALL", "CALL", "KW_NAMES", "BINARY_OP",
    "BINARY_SUBSCR", "COMPARE_OP", "NOP", "RESUME", "CACHE", "EXTENDED_ARG", "FORMAT_SIMPLE", "CONVERT_VALUE",
    "FORMAT_WITH_SPEC", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "BINARY_SLICE", "CALL_KW", "LOAD_SUPER_ATTR",
    "POP_TOP", "JUMP_FORWARD",
})
_LIMIT = 48  # instructions in a branch that only raises
_PLAIN_INITS = frozenset({BaseException.__init__, Exception.__init__, ValueError.__init__, AssertionError.__init__,
                          RuntimeError.__init__, TypeError.__init__, IndexError.__init__})


def take_for_granted(vm: VM, frame: Frame, instr: Instruction, value: Any, jump_if: bool) -> bool | None:
    """The truth of `value` that does not raise, asserted; None where this is not such a branch."""
    if type(value) is not FakeTensor and not is_unbacked(value) or not vm.recorder.scope.data_dependent:
        return None
    if type(value) is FakeTensor:
        if id(value) in vm.recorder.classes or own_method(vm, value, "__bool__") is not None:
            return None  # which may have an answer of its own
        count = value.numel()
        if type(count) is not int or count != 1 or value.device.type != "cpu":
            return None
    elif not _made_by_the_graph(vm, value):
        return None
    jump_raises, fall_raises = _only_raises(frame, instr.target), _only_raises(frame, frame.ip)
    handled = _is_handled(frame)
    if jump_raises == fall_raises or handled and vm.caught() & HANDLED:
        return None
    error = None if handled or Strategy.EXCEPTIONS_BEFOREHAND in vm.turned_off else \
        _exception_of(vm, frame, instr.target if jump_raises else frame.ip)
    if error is None and (type(value) is not FakeTensor or Strategy.UNSPOKEN_ASSERTIONS in vm.turned_off):
        return None
    wanted = jump_if != jump_raises
    if type(value) is FakeTensor:
        text = f"stator assertion {len(vm.residual.assertions)}"
        vm.residual.assertions.append(Assertion(text, None, ()) if error is None else
                             Assertion(text, type(error), error.args, places_of(frame, error)))
        held = value if wanted else vm.torch_call(torch.logical_not, (value,), None)
        vm.torch_call(torch.ops.aten._assert_async.msg, (held, text), None)
    elif error is not None and type(condition := as_bool(vm, value)) in SYMBOLIC:
        promise_number(vm, condition if wanted else torch.sym_not(condition), error, places_of(frame, error))
    return wanted


def _made_by_the_graph(vm: VM, value: object) -> bool:
    """The graph checks what it makes itself; a number that comes in unpinned is not checked by anybody."""
    node = getattr(value, "node", None)
    return node is not None and all(symbol in vm.recorder.symbols.definitions for symbol in node.expr.free_symbols
                                    if symbol not in vm.recorder.symbols.shape_env.backed_var_to_val)


def places_of(frame: Frame, error: BaseException) -> tuple[Place, ...]:
    """Where the program would raise, and from where it was called."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code is not frame.code:
        traceback = traceback.tb_next
    innermost = place_of(frame) if traceback is None else \
        Place(frame.code, frame.scope.namespace, traceback.tb_lasti, traceback.tb_lineno)
    return (innermost, *places_from(frame.caller()))


def _only_raises(frame: Frame, index: int) -> bool:
    """Whether straight code from an instruction on ends in a `raise`."""
    instructions = frame.unit.instructions
    for _ in range(_LIMIT):
        if index >= len(instructions):
            return False
        instruction = instructions[index]
        if instruction.opname == "RAISE_VARARGS":
            return instruction.arg in (1, 2)
        if instruction.opname not in _STRAIGHT:
            return False
        index = index + 1 if instruction.opname != "JUMP_FORWARD" or instruction.target is None else instruction.target
    return False


def _is_handled(frame: Frame) -> bool:
    """Whether some frame would catch the exception, or clean up after it, or is handling another."""
    return any(written_handler(each.unit, each.instruction.index) is not None for each in outward(frame))


def _exception_of(vm: VM, frame: Frame, index: int) -> BaseException | None:
    """The exception of a branch, made on a copy of the frame; None where it needs an unbacked value."""
    try:
        witness = MutationCheck(vm)
    except Unwatched:
        return None
    error = _made_on_a_copy(vm, frame, index)
    if witness.changed():
        raise Break("SB002", "the truth of a tensor, before a raise that changes something else",
                    turn_off=Strategy.EXCEPTIONS_BEFOREHAND)
    return error


def _made_on_a_copy(vm: VM, frame: Frame, index: int) -> BaseException | None:
    copy = Frame(frame.unit, frame.program, frame.func, list(frame.locals), frame.scope)
    copy.stack, copy.ip = frame.stack[:-1], index
    copy.names, copy.builtins = frame.names, frame.builtins
    state, current = vm.exc_state, vm.frame
    try:
        vm.run(copy)
    except Break:
        vm.pending = None
        return None
    except Exception as error:
        plain = all(type(argument) in CONSTANT_TYPES for argument in error.args) and not error.__suppress_context__
        return error if plain and type(error).__init__ in _PLAIN_INITS else None
    finally:
        vm.exc_state, vm.frame = state, current
    return None
