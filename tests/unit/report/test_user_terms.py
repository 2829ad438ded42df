"""Messages name values by expressions of the user: no node, no place of a stack, no symbol."""

from __future__ import annotations

import io
import math
import random
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

import stator
from stator import events, report
from stator.report.expressions import expression_at, line_at
from stator.report.misses import Tensor
from stator.report.names import translate

X = torch.arange(3.0)
MACHINE = re.compile(r"\b(?:u|s|zuf|zf)\d+\b|\w_\d+\.item|\bstack\b|\bresult\b|\bpeek\(|\bat_least\(|args\[|"
                     r"cannot be read|SymFloat|SymInt|FakeTensor|<locals>|___|0000000")


def told(fn: Callable[..., object], *calls: tuple[object, ...], **settings: object) -> str:
    """Texts of the breaks and recompiles of calls; no name of the machine is among them."""
    stream = io.StringIO()
    stop = report.follow(("graph_breaks", "recompiles"), stream)
    compiled = stator.compile(fn, backend="eager", isolate_recompiles=True, **settings)  # type: ignore[call-overload]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for args in calls:
                compiled(*args)
    finally:
        stop()
    assert MACHINE.search(stream.getvalue()) is None, stream.getvalue()
    return stream.getvalue()


def test_a_number_of_a_tensor() -> None:
    def f(x):
        if x.sum().item() > 0.5:
            return x + 1
        return x
    text = told(f, (X,))
    assert "a branch on a number that is unbacked (x.sum().item() > 0.5)" in text
    assert "here: torch._check(x.sum().item() > 0.5)" in text


def test_a_number_in_arithmetic_and_the_value_at_the_break() -> None:
    def f(x):
        scale = math.exp(-float(x.mean()))
        return x * scale
    text = told(f, (X,), (X + 1,), dynamic=False)
    assert "a number that is unbacked (-float(x.mean()))" in text
    assert "recompile f after line" in text and ": math.exp(-float(x.mean())) was 0.3678794411714" in text


def test_a_drawn_number() -> None:
    def f(x):
        return x + 1 if random.random() > 0.5 else x
    assert "(random() > 0.5)" in told(f, (X,))


def test_the_truth_of_a_tensor_that_c_code_asks_for() -> None:
    def f(x):
        return x + max(x.sum(), x.mean())
    assert "needs a number that is unbacked, at" in told(f, (X,))


def test_values_on_the_stack_over_a_break() -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3)] * 2)

        def forward(self, x, names):
            for name, layer in zip(names, self.layers):
                if x.sum() > -1e9:
                    x = layer(x) * len(name)
            for index in range(x.shape[0]):
                if x.sum() > -1e9:
                    x = x + index
            return x
    with torch.no_grad():
        text = told(Layers(), (X, ["a", "b"]), (X, ["a", "c"]))
    assert "next(iter(range(x.shape[0]))) was 0, is 1" in text or "index was 0, is 1" in text


def test_the_context_manager_over_a_break(tmp_path: Path) -> None:
    file = tmp_path / "log"

    def f(x):
        with open(file, "a") as stream:
            stream.write("step")
        return x + 1
    assert 'recompile f after line' in (text := told(f, (X,), (X,))) and 'open(file, "a") was <TextIOWrapper' in text


def test_a_key_that_is_gone_is_the_cause() -> None:
    def f(x, table):
        return x * table.get("a", 3)
    assert "recompile f: table['a'] was 1, is gone, at" in told(f, (X, {"a": 1}), (X, {"b": 1}))


def test_a_class_attribute_and_a_type() -> None:
    class Holder:
        count = 5

    def f(x, n):
        return x * Holder.count if n else x
    compiled = stator.compile(f, backend="eager", isolate_recompiles=True)
    compiled(X, [2])
    with events.record() as log:
        Holder.count = 6
        compiled(X, [2])
        compiled(X, (2,))
    texts = [report.render(event).partition("\n")[0] for event in log if isinstance(event, events.Recompile)]
    assert "recompile f: Holder.count was 5, is 6, at" in texts[0]
    assert "recompile f: type(n) was list, is tuple, at" in texts[1]


def test_a_break_inside_an_installed_package_is_at_the_line_that_calls_it() -> None:
    def f(x):
        return torch.from_numpy(numpy.histogram(x.numpy(), bins=2)[0])
    with events.record() as log:
        stator.compile(f, backend="eager", isolate_recompiles=True)(X)
    found = next(event for event in log if isinstance(event, events.GraphBreak))
    text = report.break_text(found)
    assert f"{__file__}:{f.__code__.co_firstlineno + 1} in f" in text.partition("\n")[0] and "inside it: " in text
    assert "packages/numpy" in report.break_text(found, full=True)


def test_library_frames_of_a_resumed_call_are_folded(tmp_path: Path) -> None:
    import os

    def f(x, folder):
        os.makedirs(folder, exist_ok=True)
        return x + 1
    with events.record() as log:
        stator.compile(f, backend="eager", isolate_recompiles=True)(X, str(tmp_path / "made" / "inside"))
    names = {event.name for event in log if isinstance(event, events.CaptureStarted) and " resumed at " in event.name}
    line = f.__code__.co_firstlineno + 1
    assert names and all(f" resumed at line {line} (" in name or f"resumed at line {line + 1}" in name for name in names)


def test_the_warning_at_the_limit_names_the_parameter_of_forward() -> None:
    class Masked(nn.Module):
        def forward(self, x, mode="a"):
            return x * len(mode)
    compiled = stator.compile(Masked(), backend="eager", recompile_limit=1, isolate_recompiles=True)
    compiled(X, "a")
    with pytest.warns(RuntimeWarning, match="Masked.forward was compiled 1 times .*: mode was 'a', is 'bb'") as caught:
        compiled(X, "bb")
    assert not any(MACHINE.search(str(each.message)) for each in caught)


def test_expressions_of_instructions() -> None:
    def f(x):
        return (time.time(),
                len(x
                    .shape))
    texts = {expression_at(f.__code__, 2 * number) for number, _ in enumerate(f.__code__.co_positions())}
    assert {"time.time()", "len(x .shape)"} <= texts
    assert line_at(f.__code__, 0) == f.__code__.co_firstlineno
    assert expression_at(compile("1 + x", "<nowhere>", "eval"), 4) == ""


def test_terms_are_put_in_once() -> None:
    terms = (("result", "f(stack)"), ("stack", "a + b"), ("self", "model"))
    assert translate("result == 3", terms) == "f(stack) == 3"
    assert translate("stack.shape[0] == self.n", terms) == "(a + b).shape[0] == model.n"
    assert translate("peek(stack, 1) == 3", terms) == "list(a + b)[1] == 3"


def test_only_what_differs_of_a_tensor() -> None:
    plain = Tensor.parse("float32[2, 3] cpu requires_grad=False")
    turned = Tensor.parse("float32[2, 3] cpu requires_grad=False strides (1, 2)")
    other = Tensor.parse("float64[2, 4] cpu requires_grad=True type a.Parameter keys inference")
    assert plain is not None and turned is not None and other is not None
    assert list(plain.differences("x", turned)) == [("x.stride()", "(3, 1)", "(1, 2)")]
    assert list(plain.differences("x in f", other)) == [
        ("type(x) in f", "Tensor", "Parameter"), ("x in f", "float32[2, 3]", "float64[2, 4]"),
        ("x.requires_grad in f", "False", "True"), ("x.is_inference() in f", "False", "True")]
