"""Rules for unittest.   with self.assertWarns(UserWarning): f()  ->  registries are cleared by an effect

In: an assertion that reads every loaded module.  Out: the same assertion; the residual does what it does to modules.
"""

from __future__ import annotations

import sys
import types
import unittest.case
import warnings
from collections.abc import Callable

from stator.interp.frame import Continuation
from stator.interp.noted_effects import PlainCall, note
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM

_ASSERTS_WARNINGS = getattr(unittest.case, "_AssertWarnsContext").__enter__


def clear_registries() -> None:
    """Forget which warnings were shown, as unittest does before it records some."""
    for module in list(sys.modules.values()):
        if getattr(module, "__warningregistry__", None):
            module.__warningregistry__ = {}  # type: ignore[attr-defined]


def record_warnings(context: types.SimpleNamespace, clear: Callable[[], None],
                    recording: type[warnings.catch_warnings[list[warnings.WarningMessage]]],
                    filtered: Callable[[str, object], None]) -> object:
    """`_AssertWarnsContext.__enter__`, in which `clear` stands for the loop over modules."""
    clear()
    context.warnings_manager = recording(record=True)
    context.warnings = context.warnings_manager.__enter__()
    filtered("always", context.expected)
    return context


@rule(clear_registries)
def _clear(vm: VM) -> None:
    note(vm, PlainCall(clear_registries, (), {}), False)


@suspending_rule(_ASSERTS_WARNINGS)
def _enter(vm: VM, cont: Continuation, self: object) -> None:
    vm.call_own(record_warnings, (self, clear_registries, warnings.catch_warnings, warnings.simplefilter), cont)
