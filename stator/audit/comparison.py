"""Outcomes of calls, compared.   run(fn)  ->  Outcome;  differences(a, b)  ->  lines

An Outcome holds the value or the exception, the printed text, the random streams, and the state of everything
reachable: types, contents, aliasing.  Tensors are compared by their numbers, exactly or as their dtype allows.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
import re
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

from stator.audit.reach import Reached, parts
from stator.graph.state.quiet_logging import Heard
from stator.heap.raw_access import CONSTANT_TYPES
from stator.host.value_kinds import is_a

_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_NAMED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)


@dataclass
class Outcome:
    """One run."""

    value: Any = None
    error: BaseException | None = None
    printed: tuple[str, str] = ("", "")
    warned: list[warnings.WarningMessage] = field(default_factory=list)  # warnings that were held back
    texts: dict[str, str] = field(default_factory=dict)  # path -> what is there
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)


def run(call: Callable[[], Any], reached: dict[int, Reached], quiet: bool) -> Outcome:
    """Make the call and look at what it did; with `quiet`, its output and warnings go nowhere."""
    found = Outcome()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        if quiet:
            found.warned = stack.enter_context(Heard())
        try:
            found.value = call()
        except Exception as error:
            found.error = error
    found.printed = (out.getvalue(), err.getvalue())
    Describer(found).whole(reached)
    return found


class Describer:
    """Writes down what everything looks like after a run."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.met: dict[int, str] = {}
        self.kept: list[Any] = []
        self.storages: dict[int, str] = {}

    def whole(self, reached: dict[int, Reached]) -> None:
        for each in reached.values():  # aliases follow from the places before the call
            self.met[id(each.value)] = each.path
        for each in list(reached.values()):
            self.contents(each.value, each.path)
        outcome = self.outcome
        if outcome.error is not None:
            outcome.texts["the exception"] = f"{type(outcome.error).__qualname__}: {_portable(str(outcome.error))}"
        else:
            self.describe(outcome.value, "the result")
        outcome.texts.update({
            "the printed text": repr(_portable(outcome.printed[0])),
            "the text on stderr": repr(_portable(outcome.printed[1])),
            "torch's random stream": _digest(torch.get_rng_state().numpy().tobytes()),
            "Python's random stream": _digest(repr(random.getstate()).encode()),
            "numpy's random stream": _digest(repr(numpy.random.get_state()).encode()),
            "grad mode": str(torch.is_grad_enabled())})

    def describe(self, value: Any, path: str) -> None:
        """Describe the value at a path: a constant, an object met before, or a new one."""
        if type(value) in CONSTANT_TYPES:
            self.outcome.texts[path] = f"{type(value).__name__} {value!r}"
        elif id(value) in self.met:
            self.outcome.texts[path] = f"the object {self.met[id(value)]}"
        elif is_a(value, (type, types.ModuleType)):
            self.outcome.texts[path] = f"{type(value).__name__} {value.__name__}"
        else:
            self.met[id(value)] = path
            self.kept.append(value)
            self.outcome.texts[path] = f"a new {type(value).__qualname__}"
            self.contents(value, path)

    def contents(self, value: Any, path: str) -> None:
        if is_a(value, torch.Tensor):
            return self.tensor(value, path)
        if is_a(value, numpy.ndarray):
            self.outcome.texts[f"{path} (array)"] = f"{value.dtype} {value.tolist()}"
            return
        if is_a(value, _NAMED) and type(value) is not types.FunctionType and not is_a(value, type):
            return
        for name, part in parts(value):
            if not name.endswith(".__class__") and not (is_a(value, type) and is_a(part, types.FunctionType)):
                self.describe(part, f"{path}{name}")

    def tensor(self, tensor: torch.Tensor, path: str) -> None:
        storage = tensor.untyped_storage()._cdata if tensor.layout is torch.strided else 0
        owner = self.storages.setdefault(storage, path)
        shared = f", in the storage of {owner}" if owner != path else ""
        self.outcome.texts[f"{path} (tensor)"] = (
            f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)} {tensor.device} "
            f"requires_grad={tensor.requires_grad}{shared}")
        if tensor.device.type != "meta":
            self.outcome.tensors[path] = tensor.detach().clone()
        for name, part in parts(tensor):
            self.describe(part, f"{path}{name}")


def _portable(text: str) -> str:
    return _ADDRESS.sub("0x...", text)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def differences(eager: Outcome, compiled: Outcome, exact: bool) -> Iterator[tuple[str, str]]:
    """(path, what differs), the result and the exception first."""
    found: list[tuple[str, str]] = []
    for path in {**eager.texts, **compiled.texts}:
        left, right = eager.texts.get(path, "nothing"), compiled.texts.get(path, "nothing")
        if left != right:
            found.append((path, f"eager has {left}, compiled has {right}"))
    for path in eager.tensors.keys() & compiled.tensors.keys():
        why = unlike(eager.tensors[path], compiled.tensors[path], exact)
        if why:
            found.append((path, why))
    return iter(sorted(found, key=lambda pair: not pair[0].startswith("the ")))


def unlike(eager: torch.Tensor, compiled: torch.Tensor, exact: bool) -> str:
    """How two tensors' numbers differ; empty where they do not."""
    if eager.shape != compiled.shape or eager.dtype != compiled.dtype or torch.equal(eager, compiled):
        return ""  # texts show differences of shape and dtype
    tolerance = {"rtol": 0, "atol": 0} if exact or not eager.is_floating_point() and not eager.is_complex() else {}
    try:
        torch.testing.assert_close(compiled, eager, equal_nan=True, **tolerance)
    except AssertionError:
        return f"eager has {_shown(eager)}, compiled has {_shown(compiled)}"
    return ""


def _shown(tensor: torch.Tensor) -> str:
    flat = tensor.reshape(-1)
    return str(flat[:6].tolist())[:-1] + (", ...]" if flat.numel() > 6 else "]")
