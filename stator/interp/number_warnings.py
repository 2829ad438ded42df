"""Numbers that C code gets from Python code.   int(obj), `__index__` gives a bool  ->  True, and the warning of CPython

In: the answer of a conversion that the interpreter has run for C code.  Out: the same number; a warning that C code
gives of it is noted for replay.  The limit of digits in texts of numbers is guarded; where the program sets
it, it holds from there to the end of the trace, and the residual sets it.
"""

from __future__ import annotations

import sys

from stator.breaks import Break
from stator.graph.state.quiet_logging import Heard, warnings_can_raise
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.mechanisms import Mechanism
from stator.interp.noted_effects import PlainCall, note, note_warning
from stator.interp.rule_registry import rule
from stator.interp.services import VM
from stator.shapes import symbolic_values

# Methods that C code asks for numbers, and the type that it wants.
CONVERSIONS = {"__float__": float, "__int__": int, "__index__": int, "__complex__": complex, "__trunc__": None,
               "__len__": None, "__hash__": None, "__length_hint__": None}


def number_for_c(vm: VM, method: str, value: object) -> object:
    """The answer of a conversion that C code asks for; where CPython warns of it, the warning is recorded and noted."""
    if type(value) in symbolic_values.SYMBOLIC:
        return symbolic_values.specialise(value, f"the answer of {method}")
    wanted = CONVERSIONS[method]
    if method == "__trunc__" or wanted is not None and type(value) is not wanted and is_a(value, wanted):
        if method == "__trunc__" or warnings_can_raise():
            raise Break("SB013", f"{method} gives a {name_in_errors(type(value))}: CPython may warn", asks_caller=True)
        if vm.warnings.heard is None:
            vm.warnings.heard = Heard()
            vm.warnings.heard.__enter__()
    return value


def end_hearing(vm: VM) -> None:
    """Note the warnings of C code that asked for a number."""
    heard, vm.warnings.heard = vm.warnings.heard, None
    heard.__exit__()
    for each in heard.said:
        note_warning(vm, str(each.message), each.category)


class DigitLimit(Mechanism):
    """`sys.set_int_max_str_digits`, called by the program."""

    def __init__(self) -> None:
        self.start = sys.get_int_max_str_digits()

    def fingerprint(self) -> int:
        return sys.get_int_max_str_digits()

    def has_changes(self) -> bool:
        return sys.get_int_max_str_digits() != self.start

    def allows_replay(self) -> bool:
        return False

    def undo(self) -> None:
        sys.set_int_max_str_digits(self.start)


def guard_digits(vm: VM) -> None:
    """How long the text of a number may be decides."""
    if not any(type(each) is DigitLimit for each in vm.mechanisms):
        vm.heap.guard_call(sys.get_int_max_str_digits, sys.get_int_max_str_digits())


@rule(sys.get_int_max_str_digits)
def _digit_limit(vm: VM) -> int:
    guard_digits(vm)
    return sys.get_int_max_str_digits()


@rule(sys.set_int_max_str_digits)
def _set_digit_limit(vm: VM, maxdigits: object) -> None:
    guard_digits(vm)
    if not any(type(each) is DigitLimit for each in vm.mechanisms):
        vm.mechanisms.append(DigitLimit())
    vm.native_unhooked(sys.set_int_max_str_digits, (maxdigits,))
    note(vm, PlainCall(sys.set_int_max_str_digits, (sys.get_int_max_str_digits(),), {}), False)
