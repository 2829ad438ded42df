"""First lines of further causes: settings of torch, properties of tensors, objects, containers, libraries."""

from __future__ import annotations

import contextlib
import enum
import functools
import io
import os
import sys
import time
import types
from collections.abc import Callable

import pytest
import torch
from torch import nn

from stator import report
from tests.unit.report.test_first_lines import X, compiled, require_first_line

MORE: list[tuple[Callable[[], None], str]] = []
OTHER = types.ModuleType("other")
exec(compile("FLAG = 1\n\ndef scaled(x):\n    return x * FLAG\n", __file__, "exec"), OTHER.__dict__)


def first_line(expected: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(program: Callable[[], None]) -> Callable[[], None]:
        MORE.append((program, expected))
        return program
    return add


class Mode(enum.Enum):
    FAST = 1
    EXACT = 2


class Config:
    scale = 1


class Heads(nn.Module):
    heads = 2

    def forward(self, x):
        return x * self.heads  # Heads


@first_line("recompile f: Config.scale was 1, is 3")
def attribute_of_a_class_changes():
    def f(x):
        return x * Config.scale  # here
    c = compiled(f)
    c(X)
    Config.scale = 3
    c(X)
    Config.scale = 1


@first_line("recompile Heads.forward: model.heads was not set on model itself, is now")
def attribute_hides_that_of_the_class():
    model = Heads()  # at Heads
    c = compiled(model)
    c(X)
    model.heads = 4
    c(X)


@first_line("recompile f: list(d) was ['a', 'b'], is ['b', 'a']")
def order_of_keys_changes():
    def f(x, d):
        for key in d:  # here
            x = x * 2 + d[key]
        return x
    c = compiled(f)
    c(X, {"a": 1, "b": 2}), c(X, {"b": 2, "a": 1})


@first_line("recompile f: act was relu, is gelu")
def function_in_a_closure_changes():
    act = nn.functional.relu

    def f(x):
        return act(x)  # here
    c = compiled(f)
    c(X)
    act = nn.functional.gelu
    c(X)


@first_line("recompile f: x.requires_grad was False, is True")
def gradient_is_required():
    def f(x):
        return x * 2  # here
    c = compiled(f)
    c(X), c(X.clone().requires_grad_())


@first_line("recompile f: x.stride() was (4, 1), is (1, 3)")
def strides_change():
    def f(x):
        return x * 2  # here
    c = compiled(f)
    c(torch.ones(3, 4)), c(torch.ones(4, 3).t())


@first_line("recompile Conv2d.forward: input.stride() was (192, 64, 8, 1), is (192, 1, 24, 3) (channels_last)")
def memory_format_changes():
    c, x = compiled(nn.Conv2d(3, 4, 3)), torch.ones(2, 3, 8, 8)
    for each in (x, x.to(memory_format=torch.channels_last)):
        c(each)  # here


@first_line("recompile f: torch.get_default_dtype() was torch.float32, is torch.float64")
def default_dtype_changes():
    def f(x):  # here
        return x * 2
    c = compiled(f)
    c(X)
    torch.set_default_dtype(torch.float64)
    try:
        c(X)
    finally:
        torch.set_default_dtype(torch.float32)


@first_line("recompile f: the torch function modes (torch.device, ...) were none, are torch.device('cpu')")
def default_device_changes():
    def f(x):  # here
        return x * 2
    c = compiled(f)
    c(X)
    with torch.device("cpu"):
        c(X)


@first_line("recompile Linear.forward: torch.autocast('cpu') was off, is bfloat16")
def autocast_changes():
    c = compiled(nn.Linear(3, 3))
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            c(X)  # here


@first_line("recompile Sequential.forward: model[1].training was True, is False")
def mode_of_a_model_of_torch_changes():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    c = compiled(model)
    for _ in range(2):
        c(X)  # here
        model.eval()


@first_line("recompile Sequential.forward: model[0].weight.requires_grad was True, is False")
def weight_is_frozen():
    model = nn.Sequential(nn.Linear(3, 3))
    c = compiled(model)
    for _ in range(2):
        c(X)  # here
        model[0].weight.requires_grad_(False)


@first_line("recompile Sequential.forward: type(model[1]) was ReLU, is GELU")
def layer_is_replaced():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    c = compiled(model)
    for _ in range(2):
        c(X)  # here
        model[1] = nn.GELU()


@first_line("recompile f: mask was None, is a tensor float32[3]")
def argument_is_given():
    def f(x, mask=None):
        return x if mask is None else x * mask  # here
    c = compiled(f)
    c(X), c(X, X.clone())


@first_line("recompile f: type(x) was Tensor, is Parameter, x.requires_grad was False, is True")
def class_of_a_tensor_changes():
    def f(x):
        return x * 2  # here
    c = compiled(f)
    c(X), c(nn.Parameter(X.clone()))


@first_line("recompile f: x.is_inference() was False, is True")
def tensor_of_inference_mode():
    def f(x):
        return x * 2  # here
    with torch.inference_mode():
        made = torch.ones(3)
    c = compiled(f)
    c(X), c(made)


@first_line("recompile f: mode was Mode.FAST, is Mode.EXACT")
def member_of_an_enumeration_changes():
    def f(x, mode):
        return x + 1 if mode is Mode.FAST else x - 1  # here
    c = compiled(f)
    c(X, Mode.FAST), c(X, Mode.EXACT)


@first_line("recompile f: g.keywords['other'] was 2, is 3")
def argument_of_a_partial_changes():
    def f(x, g):
        return g(x)  # here
    c = compiled(f)
    for number in (2, 3):
        c(X, functools.partial(torch.mul, other=number))


@first_line("recompile f: a and b share memory now")
def arguments_share_memory():
    def f(a, b):  # here
        a.add_(1)
        return a * b
    c, y = compiled(f), X.clone()
    c(X.clone(), X.clone()), c(y, y)


@first_line("recompile f: 'STATOR_TEST_FAST' was not in os.environ, is now")
def variable_of_the_environment_is_set():
    def f(x):
        return x * 2 if os.environ.get("STATOR_TEST_FAST") else x  # here
    c = compiled(f)
    c(X)
    os.environ["STATOR_TEST_FAST"] = "1"
    try:
        c(X)
    finally:
        del os.environ["STATOR_TEST_FAST"]


@first_line("recompile f: len(cache) was 0, is 1")
def cache_grows():
    def f(x, cache):
        cache.append(x)
        return torch.cat(cache)  # here
    c, kept = compiled(f), []
    c(X, kept), c(X, kept)


@first_line("SB013 impure read: time.perf_counter")
def context_manager_reads_the_clock():
    @contextlib.contextmanager
    def timed():
        began = time.perf_counter()  # here
        yield
        sys.modules[__name__].__dict__["TOOK"] = time.perf_counter() - began

    def f(x):
        with timed():
            return x + 1
    compiled(f)(X)


@first_line("SB002 data-dependent branch: the truth of a tensor")
def generator_filters():
    def positive(xs):
        for x in xs:
            if x.sum() > 0:  # here
                yield x
    compiled(lambda a, b: sum(positive([a, b])))(X, X + 1)


@first_line("SB003 data-dependent scalar: builtins.sorted needs a number that is unbacked, at")
def sorts_by_values():
    def f(x):
        return sorted(x, key=lambda item: float(item))  # here
    compiled(f)(X)


@first_line("the operator first_lines.twice has no rule for fake tensors")
def operator_without_a_fake():
    @torch.library.custom_op("first_lines::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def f(x):
        return twice(x) + 1  # here
    compiled(f)(X)


@first_line("in f")
def function_of_numpy_in_a_library():
    import numpy

    def f(x):
        return x + torch.from_numpy(numpy.linalg.svd(x[None].numpy())[1])  # here
    compiled(f)(X)


@pytest.mark.parametrize(("program", "expected"), MORE, ids=[program.__name__ for program, _ in MORE])
def test_the_first_line_names_place_and_cause(program: Callable[[], None], expected: str) -> None:
    require_first_line(program, expected, __file__)


def test_breaks_behind_a_break_have_the_way_to_their_module() -> None:
    class Gate(nn.Module):
        def forward(self, x):
            return x.tanh() if x.abs().max() > 0.5 else x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gates = nn.ModuleList(Gate() for _ in range(3))

        def forward(self, x):
            for gate in self.gates:
                x = gate(x)
            return x
    from stator import events
    with events.record() as log:
        compiled(Net())(X)
    owners = [event.stack[-1].owner for event in log if isinstance(event, events.GraphBreak)]
    assert owners == ["model.gates[0]", "model.gates[1]", "model.gates[2]"]


def test_a_global_of_another_module() -> None:
    stream = io.StringIO()
    stop = report.follow(("recompiles",), stream)
    c = compiled(lambda x: OTHER.scaled(x) + 1)
    c(X)
    OTHER.FLAG = 2
    c(X)
    OTHER.FLAG = 1
    stop()
    assert f"FLAG was 1, is 2, at {__file__}:4" in stream.getvalue().partition("\n")[0]
