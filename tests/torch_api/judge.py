"""Judge one program: run it eagerly and compiled, on equal inputs and equal random streams.

In: a factory that gives a function and its inputs afresh.  Out: a `Verdict`: captured, broken (with a code),
wrong, or an internal error.  Compared: the values, their dtype, strides and requires_grad, what became of the
inputs, the state of modules, the gradients, and the exception where the program raises.
"""

from __future__ import annotations

import dataclasses
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

import stator
from stator import events
from stator.guards.global_state import global_state

CAPTURED, BROKEN, RAISES, WRONG, INTERNAL, UNFIT = "captured", "broken", "raises", "wrong", "internal", "unfit"
BAD = (WRONG, INTERNAL)


@dataclasses.dataclass(frozen=True)
class Program:
    """A function, its arguments, and the module (if any) whose state and gradients count."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    module: torch.nn.Module | None = None
    backward: bool = True


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of one program."""

    kind: str
    code: str = ""
    detail: str = ""

    @property
    def bad(self) -> bool:
        return self.kind in BAD


@dataclasses.dataclass
class Outcome:
    """What running a program left behind."""

    error: Exception | None = None
    value: Any = None
    inputs: Any = None
    state: Any = None
    gradients: Any = None
    stream: Any = None
    settings: Any = None


def judge(make: Callable[[], Program], backend: str = "eager", arbitrary: bool = False) -> Verdict:
    """Compile with breaks allowed: a break is a verdict, not a fault. Arbitrary values (torch.empty) are not compared."""
    expected = outcome_of(make(), None)
    log: list[events.Event] = []
    try:
        with events.record() as log:
            found = outcome_of(make(), backend)
    except stator.InternalError as error:
        return Verdict(INTERNAL, "", _reason(error))
    except stator.BackendError as error:
        return Verdict(WRONG, "", f"backend: {error}"[:300])
    difference = compare(expected, found, backend, arbitrary)
    if difference:
        return Verdict(WRONG, "", difference)
    stops = [event for event in log if isinstance(event, events.GraphBreak)]
    if stops:
        return Verdict(BROKEN, stops[0].code, stops[0].cause.splitlines()[0][:160])
    if expected.error is not None:
        return Verdict(RAISES, "", f"{type(expected.error).__name__}: {expected.error}".splitlines()[0][:120])
    return Verdict(CAPTURED)


def outcome_of(program: Program, backend: str | None) -> Outcome:
    function = program.function
    if backend is not None:
        function = stator.compile(function, backend=backend)
    result = Outcome()
    torch.manual_seed(20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result.value = function(*program.args, **program.kwargs)
        except (stator.InternalError, stator.BackendError):
            raise
        except Exception as error:
            result.error = error
    result.stream = torch.get_rng_state()
    result.settings = global_state()
    result.inputs = tensors_of((program.args, program.kwargs))
    if program.backward and result.error is None:
        result.gradients = gradients(program, result)
    if program.module is not None:
        result.state = dict(program.module.state_dict())
    return result


def gradients(program: Program, result: Outcome) -> list[Any]:
    """Gradients of a weighted sum of the outputs, with respect to every leaf that wants one."""
    outputs = [t for t in tensors_of(result.value) if t.requires_grad and t.layout is torch.strided]
    leaves = [t for t in result.inputs if t.requires_grad and t.is_leaf]
    if program.module is not None:
        leaves += [p for p in program.module.parameters() if p.requires_grad]
    if not outputs or not leaves:
        return []
    total = sum((t.abs() if t.is_complex() else t).double().sum() * (i + 1) for i, t in enumerate(outputs))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(torch.autograd.grad(total, leaves, allow_unused=True))
    except RuntimeError as error:  # an operator without a derivative: both sides must say so
        return [f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"]


def tensors_of(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


# ---------------------------------------------------------------------- comparing


def compare(expected: Outcome, found: Outcome, backend: str, arbitrary: bool) -> str:
    if (expected.error is None) != (found.error is None):
        return f"raised {found.error!r}, eager {expected.error!r}"[:400]
    changed = expected.settings.differences(found.settings)
    if changed:
        return f"torch's settings are left as {changed}"[:300]
    if expected.error is not None:
        if type(expected.error) is not type(found.error) or str(expected.error) != str(found.error):
            return f"raised {found.error!r}, eager {expected.error!r}"[:400]
        return ""
    for name in ("value", "inputs", "state", "gradients"):
        # AOTAutograd lays gradients out as its backward graph does: with torch.compile they have the same strides.
        exact_layout = name != "gradients" or backend == "eager"
        said = differs(getattr(expected, name), getattr(found, name), name, arbitrary, exact_layout)
        if said:
            return said
    if backend in ("eager", "aot_eager") and not torch.equal(expected.stream, found.stream):
        return "the random stream differs"
    return ""


def differs(expected: Any, found: Any, where: str, arbitrary: bool, exact_layout: bool = True) -> str:
    left, left_shape = tree_flatten(expected)
    right, right_shape = tree_flatten(found)
    if left_shape != right_shape or type(expected) is not type(found):
        return f"{where}: structure {type(found).__name__} {right_shape}, eager {type(expected).__name__} {left_shape}"[:300]
    for i, (a, b) in enumerate(zip(left, right, strict=True)):
        said = leaf_differs(a, b, arbitrary, exact_layout)
        if said:
            return f"{where}[{i}]: {said}"
    return ""


def leaf_differs(a: Any, b: Any, arbitrary: bool, exact_layout: bool) -> str:
    if type(a) is not type(b):
        return f"type {type(b).__name__}, eager {type(a).__name__}"
    if not isinstance(a, torch.Tensor):
        same = a == b or (a != a and b != b)
        return "" if same is True or isinstance(a, torch.Generator) else f"{b!r}, eager {a!r}"[:200]
    for attribute in ("dtype", "device", "layout", "shape", "requires_grad", "is_leaf"):
        if getattr(a, attribute) != getattr(b, attribute):
            return f"{attribute} {getattr(b, attribute)}, eager {getattr(a, attribute)}"
    if exact_layout and a.layout is torch.strided and not a.is_nested and a.stride() != b.stride():
        return f"strides {b.stride()}, eager {a.stride()}"
    if arbitrary:
        return ""
    try:
        torch.testing.assert_close(b.detach(), a.detach(), equal_nan=True)
    except AssertionError as error:
        return str(error).replace("\n", " ")[:200]
    return ""


def _reason(error: BaseException) -> str:
    cause = error.__cause__ or error
    tail = traceback.extract_tb(cause.__traceback__)[-3:]
    return f"{str(error)[:260]} @ " + " | ".join(f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}" for f in tail)
