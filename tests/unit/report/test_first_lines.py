"""The first line printed for a break or a recompile names the user's line and the true cause.

Each program marks its line with `# here`; `expected` are the words that name the cause.
"""

from __future__ import annotations

import inspect
import io
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import stator
from stator import events, report

PROGRAMS: list[tuple[Callable[[], None], str]] = []
X = torch.ones(3)
SCALE = 1


def first_line(expected: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(program: Callable[[], None]) -> Callable[[], None]:
        PROGRAMS.append((program, expected))
        return program
    return add


def compiled(fn):
    return stator.compile(fn, backend="eager", dynamic=False, isolate_recompiles=True)


class Layer(nn.Module):
    def __init__(self, scale: float = 1.5) -> None:
        super().__init__()
        self.lin, self.scale = nn.Linear(3, 3), scale


class Layers(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:  # each layer
            x = layer(x)
        return x


class Branching(Layer):
    def forward(self, x):
        return self.lin(x) if x.sum() > -1e6 else x  # Branching


class Scaled(Layer):
    def forward(self, x):
        return self.lin(x) * self.scale  # Scaled


@first_line("SB002 data-dependent branch: the truth of a tensor")
def branch_on_data():
    def f(x):
        if x.sum() > 0:  # here
            return x * 2
        return x
    compiled(f)(X)


@first_line("in model.layers[1].forward")
def branch_in_a_layer():
    compiled(Layers(nn.Linear(3, 3), Branching()))(X)  # at Branching


@first_line("SB013 impure read: time.time")
def reads_the_clock():
    compiled(lambda x: x + time.time())(X)  # here


@first_line("SB015 input or output: builtins.open")
def opens_a_file():
    def f(x):
        with open("/dev/null", "a") as file:  # here
            return x + len(file.name)
    compiled(f)(X)


@first_line("SB008 frame inspection: sys._getframe")
def inspects_frames():
    def who():
        return inspect.stack()[1].function  # here
    compiled(lambda x: x + len(who()))(X)


@first_line("SB010 disabled function called")
def calls_a_disabled_function():
    helper = stator.disable(lambda x: x + 1)
    compiled(lambda x: helper(x.sin()).cos())(X)  # here


@first_line("SB009 explicit graph break")
def breaks_by_hand():
    def f(x):
        stator.graph_break()  # here
        return x + 1
    compiled(f)(X)


@first_line("SB003 data-dependent scalar")
def writes_a_number_as_text():
    def f(x):
        return x * len(str(x.max().item()))  # here
    compiled(f)(X)


@first_line("SB002 data-dependent branch")
def hook_that_branches():
    def hook(module, args, out):
        return out * 2 if out.sum() > 0 else out  # here
    model = Layers(nn.Linear(3, 3))
    model.layers[0].register_forward_hook(hook)
    compiled(model)(X)


@first_line("recompile f: x was float32[3], is float32[4]")
def size_changes():
    def f(x):
        return x * 2  # here
    c = compiled(f)
    c(X), c(torch.ones(4))


@first_line("recompile f: x was float32[3], is float64[3]")
def dtype_changes():
    def f(x):
        return x * 2  # here
    c = compiled(f)
    c(X), c(X.double())


@first_line("recompile Layers.forward: model.layers[1].scale was 1.5, is 2.5")
def attribute_of_a_layer_changes():
    model = Layers(Scaled(), Scaled())  # at Scaled
    c = compiled(model)
    c(X)
    model.layers[1].scale = 2.5
    c(X)


@first_line("recompile f: len(stack) was 1, is 2")
def length_changes():
    def f(x, stack):
        return x * len(stack)  # here
    c = compiled(f)
    c(X, [1]), c(X, [1, 2])


@first_line("recompile f: mode was 'b', is 'c'")
def nearest_of_two_entries():
    def f(x, mode, number):
        return x * number if mode == "a" else x - number  # here
    c = compiled(f)
    c(X, "a", 2), c(X, "b", 3)
    if FIRST.pop("nearest", None) is None:  # only the second recompile is looked at
        FIRST["stream"].truncate(0), FIRST["stream"].seek(0)
    c(X, "c", 3)


@first_line("recompile f: SCALE was 1, is 2")
def global_changes():
    global SCALE

    def f(x):
        return x * SCALE  # here
    c = compiled(f)
    c(X)
    SCALE = 2
    c(X)
    SCALE = 1


@first_line("recompile f: number was 3, is 4")
def closure_changes():
    number = 3

    def f(x):
        return x * number  # here
    c = compiled(f)
    c(X)
    number = 4
    c(X)


@first_line("recompile f: torch.is_grad_enabled() was True, is False")
def grad_mode_changes():
    def f(x):  # here
        return x * 2
    c = compiled(f)
    c(X)
    with torch.no_grad():
        c(X)


@first_line("recompile f: options['n'] was 1, is 2")
def value_in_a_dict_changes():
    def f(x, options):
        return x * options["n"]  # here
    c = compiled(f)
    c(X, {"n": 1}), c(X, {"n": 2})


@first_line("recompile Layers.forward: len(model.layers[0]._forward_hooks) was 0, is 1")
def hook_is_added():
    model = Layers(nn.Linear(3, 3))  # at each layer
    c = compiled(model)
    c(X)
    model.layers[0].register_forward_hook(lambda module, args, out: out)
    c(X)


@first_line("recompile Masked.forward: mask was float32[3], is float32[1]")
def keyword_of_a_module_changes():
    c = compiled(Masked())  # at Masked
    c(X, mask=X), c(X, mask=torch.ones(1))


class Masked(nn.Module):
    def forward(self, x, mask=None):  # Masked
        return x * mask


FIRST: dict[str, io.StringIO] = {}


def place_in(program: Callable[[], None], file: str = __file__) -> int:
    """The line marked in a program, or the line of its file that ends with the mark it names."""
    lines, start = inspect.getsourcelines(program)
    for number, line in enumerate(lines):
        if line.rstrip().endswith("# here"):
            return start + number
    mark = next(line.partition("# at ")[2].strip() for line in lines if "# at " in line)
    whole = Path(file).read_text().splitlines()
    return next(n for n, line in enumerate(whole, 1) if line.endswith((f"# {mark}", f" = {mark}")) and "# at" not in line)


def require_first_line(program: Callable[[], None], expected: str, file: str) -> None:
    """Run a program; the first line of its logs names the cause and the marked line."""
    stream = FIRST["stream"] = io.StringIO()
    stop = report.follow(("graph_breaks", "recompiles"), stream)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program()
    finally:
        stop()
    first = stream.getvalue().partition("\n")[0]
    assert expected in first
    assert f"{file}:{place_in(program, file)}" in first, first


@pytest.mark.parametrize(("program", "expected"), PROGRAMS, ids=[program.__name__ for program, _ in PROGRAMS])
def test_the_first_line_names_place_and_cause(program: Callable[[], None], expected: str) -> None:
    require_first_line(program, expected, __file__)


def test_a_cascade_shows_its_root_once_with_a_count() -> None:
    stream = io.StringIO()
    stop = report.follow(("graph_breaks", "recompiles"), stream)
    model = compiled(Layers(*(Branching() for _ in range(6))))
    with torch.no_grad():
        model(X), model(X)
    stop()
    text = stream.getvalue()
    assert text.count("graph break: SB002") == 1 and "[graph_breaks] 5 more there, after SB002" in text
    assert text.count("recompile Layers.forward after line") == 2 and "iter(model.layers) had" in text
    assert "module.py" not in text and "_wrapped_call_impl" not in text


def test_full_stacks_on_request() -> None:
    with events.record() as log:
        compiled(Layers(Branching()))(X)
    found = next(event for event in log if isinstance(event, events.GraphBreak))
    text = report.break_text(found, full=True)
    assert "module.py" in text and "module.py" not in report.break_text(found)


def test_a_miss_names_every_entry() -> None:
    def f(x, mode, number):
        return x * number if mode == "a" else x - number
    c = compiled(f)
    c(X, "a", 2), c(X, "b", 3)
    with events.record() as log:
        c(X, "c", 3)
    found = next(event for event in log if isinstance(event, events.Recompile))
    assert (found.guard_text, found.old, found.new) == ("mode == 'b'", "'b'", "'c'")
    assert [(other.guard_text, other.more) for other in found.others] == [("mode == 'a'", 1)]


def test_a_value_that_is_gone_is_not_the_cause() -> None:
    def f(x, options):
        return x * options["inner"]["n"]
    c = compiled(f)
    c(X, {"inner": {"n": 1}})
    with events.record() as log:
        with pytest.raises(TypeError):
            c(X, {"inner": 5})
    found = next(event for event in log if isinstance(event, events.Recompile))
    assert "is gone" not in found.new and "type(options['inner']) is dict" in found.guard_text


def test_all_means_all() -> None:
    stream = io.StringIO()
    stop = report.follow(("all",), stream)
    items: list[int] = []

    def f(x):
        items.append(1)
        return x + 1
    compiled(f)(X)
    stop()
    text = stream.getvalue()
    assert all(f"[{name}]" in text for name in ("captures", "guards", "graph_code", "trace", "bytecode", "effects"))
    assert "v_list.append(items, 1)" in text.partition("effects of f")[2]
