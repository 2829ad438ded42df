"""Deliberate defects of a compiled function, one for each comparison, which prove that the comparison can fail.

In: a compiled function and the name of a fault (STATOR_TEST_FAULT).
Out: a function that behaves like it but for that fault. `FAULTS` names the part of the outcome that must show it.
"""

from __future__ import annotations

import copy
import random
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch


def nothing() -> None:
    return None


@dataclass(frozen=True)
class Fault:
    """`before` the call; `returned` changes its result, `raised` its exception, `after` the arguments or the program."""

    part: str  # of the outcome, where the difference must stand
    before: Callable[[], Any] = nothing
    returned: Callable[[Any], Any] | None = None
    raised: Callable[[BaseException], BaseException] | None = None
    after: Callable[[tuple[Any, ...], Callable[..., Any]], Any] | None = None


def each_tensor(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    def changed(result: Any) -> Any:
        if isinstance(result, torch.Tensor):
            return change(result)
        return type(result)(map(changed, result)) if isinstance(result, (list, tuple)) else result
    return changed


def any_value(result: Any) -> Any:
    return result + 1 if isinstance(result, torch.Tensor) and not result.requires_grad else (result, "extra")


def other_class(exception: BaseException) -> BaseException:
    return type("Other", (Exception,), {})(*exception.args)


def other_text(exception: BaseException) -> BaseException:
    return type(exception)("another text").with_traceback(exception.__traceback__)


def with_attribute(name: str, value: Any) -> Callable[[BaseException], BaseException]:
    def changed(exception: BaseException) -> BaseException:
        setattr(exception, name, value)
        return exception
    return changed


def with_note(exception: BaseException) -> BaseException:
    exception.add_note("an invented note")
    return exception


def unexpected(result: Any) -> Any:
    raise RuntimeError("an exception that eager does not raise")


def spoil_argument(args: tuple[Any, ...], program: Callable[..., Any]) -> None:
    """Change the first thing that the program did not: a tensor, a container, or the function."""
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


def spoil_global(args: tuple[Any, ...], program: Any) -> None:
    program.__globals__["COUNTS"].append("spoilt")


def spoil_cell(args: tuple[Any, ...], program: Any) -> None:
    program.__closure__[0].cell_contents = "spoilt"


def take_an_item(args: tuple[Any, ...], program: Any) -> None:
    next(args[0])


def spoil_grad(args: tuple[Any, ...], program: Any) -> None:
    args[0].grad = torch.ones_like(args[0])


def warn_in_the_file(args: tuple[Any, ...], program: Any) -> None:
    warnings.warn_explicit("an extra warning", UserWarning, program.__code__.co_filename, 1)


FAULTS: dict[str, Fault] = {
    "value": Fault("result", returned=any_value, raised=other_class),
    "type": Fault("result", returned=lambda result: tuple(result) if isinstance(result, list) else result),
    "dtype": Fault("result", returned=each_tensor(lambda t: t.double())),
    "strides": Fault("result", returned=each_tensor(lambda t: torch.stack([t, t], -1)[..., 0])),
    "sign of a zero": Fault("result", returned=each_tensor(lambda t: t * -1 * 0)),
    "requires_grad": Fault("result", returned=each_tensor(lambda t: t.detach().requires_grad_(not t.requires_grad))),
    "alias": Fault("result", returned=copy.deepcopy),
    "shared storage": Fault("result", returned=each_tensor(lambda t: t.clone())),
    "mutation": Fault("args", after=spoil_argument, raised=other_class),
    "global": Fault("state", after=spoil_global),
    "cell": Fault("state", after=spoil_cell),
    "iterator": Fault("left", after=take_an_item),
    "accumulated gradient": Fault("args", after=spoil_grad),
    "gradient": Fault("gradients", returned=each_tensor(lambda t: t + (t - t.detach()))),
    "exception": Fault("raised", returned=unexpected, raised=other_class),
    "text": Fault("raised", raised=other_text),
    "context": Fault("raised", raised=with_attribute("__context__", LookupError("an invented context"))),
    "cause": Fault("raised", raised=with_attribute("__cause__", LookupError("an invented cause"))),
    "note": Fault("raised", raised=with_note),
    "attribute": Fault("raised", raised=with_attribute("code", 3)),
    "line": Fault("line", raised=lambda exception: exception.with_traceback(None)),
    "print": Fault("printed", before=lambda: print("an extra line")),
    "stderr": Fault("printed", before=lambda: print("an extra line", file=sys.stderr)),
    "warning": Fault("printed", before=lambda: warnings.warn("an extra warning")),  # interleaved
    "own warning": Fault("warnings", after=warn_in_the_file),
    "rng": Fault("random streams", before=lambda: torch.rand(1)),
    "random": Fault("random streams", before=random.random),
    "numpy": Fault("random streams", before=numpy.random.rand),
    "grad_mode": Fault("modes", before=lambda: torch.set_grad_enabled(not torch.is_grad_enabled())),
    "default dtype": Fault("modes", before=lambda: torch.set_default_dtype(torch.float64)),
    "autocast": Fault("modes", before=lambda: torch.set_autocast_enabled("cpu", True)),
    "autocast dtype": Fault("modes", before=lambda: torch.set_autocast_dtype("cpu", torch.float16)),
    "deterministic": Fault("modes", before=lambda: torch.use_deterministic_algorithms(True)),
}


def corrupt(subject: Callable[..., Any], name: str, program: Callable[..., Any],
            let_through: tuple[type[BaseException], ...]) -> Callable[..., Any]:
    """`subject` with one deliberate fault; `let_through` are no exceptions of the program."""
    if name not in FAULTS:
        raise ValueError(f"STATOR_TEST_FAULT={name}: expected one of {', '.join(FAULTS)}")
    fault = FAULTS[name]

    def faulty(*args: Any, **kwargs: Any) -> Any:
        fault.before()
        try:
            result = subject(*args, **kwargs)
        except let_through:
            raise
        except BaseException as exception:
            changed = exception if fault.raised is None else fault.raised(exception)
        else:
            if fault.after is not None:
                fault.after(args, program)
            return result if fault.returned is None else fault.returned(result)
        raise changed

    return faulty
