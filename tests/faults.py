"""Deliberate defects, which prove that the comparison with eager can fail.

In:  a compiled function and the kind of defect (STATOR_TEST_FAULT).
Out: a function that behaves like it but for that defect.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

FAULTS = (
    "value", "type", "alias", "print", "mutation", "exception", "line", "context", "note", "rng", "grad_mode",
)  # fmt: skip


def corrupt(
    subject: Callable[..., Any], fault: str, program: Callable[..., Any], let_through: type[BaseException]
) -> Callable[..., Any]:
    """`subject` with one deliberate defect; `let_through` is not an exception of the program."""
    if fault not in FAULTS:
        raise ValueError(f"STATOR_TEST_FAULT={fault}: expected one of {', '.join(FAULTS)}")

    def faulty(*args: Any, **kwargs: Any) -> Any:
        if fault == "print":
            print("an extra line")
        if fault == "rng":
            torch.rand(1)
        if fault == "grad_mode":
            torch.set_grad_enabled(not torch.is_grad_enabled())
        try:
            result = subject(*args, **kwargs)
        except let_through:
            raise
        except BaseException as exception:
            raise corrupt_exception(exception, fault) from None
        if fault == "exception":
            raise RuntimeError("an exception that eager does not raise")
        if fault == "mutation":
            spoil(args, program)
        return corrupt_value(result, fault)

    return faulty


def corrupt_exception(exception: BaseException, fault: str) -> BaseException:
    if fault == "line":
        return exception.with_traceback(None)
    if fault == "context":
        exception.__context__ = LookupError("an invented context")
    if fault == "note":
        exception.add_note("an invented note")
    if fault in ("exception", "value", "mutation"):
        return type("Other", (Exception,), {})(*exception.args)
    return exception


def corrupt_value(result: Any, fault: str) -> Any:
    if fault == "value":
        return result + 1 if isinstance(result, torch.Tensor) and not result.requires_grad else (result, "extra")
    if fault == "type" and isinstance(result, list):
        return tuple(result)
    if fault == "alias":
        return copy.deepcopy(result)
    return result


def spoil(args: tuple[Any, ...], program: Callable[..., Any]) -> None:
    """Change the first thing that the program did not: a tensor, a container, or a global."""
    for value in args:
        if isinstance(value, torch.Tensor):
            with torch.no_grad():
                value.copy_(torch.logical_not(value) if value.dtype is torch.bool else value + 1)
            return
        if isinstance(value, list):
            value.append("spoilt")
            return
        if isinstance(value, dict):
            value["spoilt"] = True
            return
    program.__dict__["spoilt"] = True
