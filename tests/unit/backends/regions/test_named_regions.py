"""Calls that the user names are pieces: options={"regions": [...]} and torch.compiler.nested_compile_region."""

from __future__ import annotations

import copy
import functools
import io
import itertools
import pickle
import sys

import pytest
import torch
from torch import nn

import stator
from stator import events
from stator.backends.regions import compilation
from tests.comparison import call, same_as_eager
from tests.unit.backends.regions.test_regions import LAYERS, Block, Stack, build_stack, inputs
from tests.unit.backends.regions.three_sides import on_three_sides, require_equal


def cut(log: list[events.Event]) -> events.GraphCut:
    [found] = [event for event in log if isinstance(event, events.GraphCut)]
    return found


@pytest.mark.parametrize("around", [None, torch.no_grad])
def test_a_class_names_its_calls(around):
    sides = require_equal(on_three_sides(functools.partial(build_stack, layers=3), around=around, regions=[Block]))
    assert sides.uses == [1, 3, 1]
    assert cut(sides.log).names == ("", "Block", "")


def test_modules_are_named_one_by_one():
    model = Stack([Block() for _ in range(LAYERS)])
    compiled = stator.compile(model, backend="aot_eager", options={"regions": [model.blocks[1], model.blocks[4]]})
    x = inputs(grad=True)
    with events.record() as log:
        found = compiled(x)
    torch.testing.assert_close(found, model(x), rtol=0, atol=0)
    assert cut(log).names.count("Block") == 1
    assert dict(zip(cut(log).names, [uses for _, uses in cut(log).pieces], strict=True))["Block"] == 2


def test_named_modules_of_a_copy_are_its_own():
    model = Stack([Block() for _ in range(4)])
    compiled = stator.compile(model, backend="aot_eager", options={"regions": [model.blocks[1], model.blocks[2]]})
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        with events.record() as log:
            other(inputs())
        assert "Block" in cut(log).names


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for each in self.inner:
            x = each(x).tanh()
        return x


def test_calls_inside_calls():
    def build():
        return Stack([Outer() for _ in range(3)]), [(inputs(),), (inputs(),)]

    sides = require_equal(on_three_sides(build, regions=[Outer, Block]))
    assert {name for name in cut(sides.log).names if name} == {"Outer", "Block"}
    assert cut(sides.log).pieces[cut(sides.log).names.index("Block")][1] == 6


@torch.compiler.nested_compile_region
def gated(x, weight):
    y = (x @ weight).relu()
    return y * x, y.chunk(2, -1)


def gates(x, weights):
    for weight in weights:
        x, (a, b) = gated(x, weight)
        x = x + (a * b).sum()
    return x


def gate_arguments():
    return inputs(4, 4, grad=True), [inputs(4, 4, grad=True) for _ in range(3)]


def test_marked_functions_are_pieces():
    def build():
        return gates, [gate_arguments(), gate_arguments()]

    sides = require_equal(on_three_sides(build))
    assert dict(zip(cut(sides.log).names, cut(sides.log).pieces, strict=True))["gated"][1] == 3


class Marked(Block):
    @torch.compiler.nested_compile_region
    def forward(self, x):
        return super().forward(x)


@pytest.mark.parametrize("around", [None, torch.no_grad])
def test_marked_forwards_are_pieces(around):
    sides = require_equal(on_three_sides(functools.partial(build_stack, Marked, 3), around=around))
    assert cut(sides.log).names == ("", "Marked.forward", "")
    assert sides.uses == [1, 3, 1]


def test_marked_functions_are_compiled_once_for_each_content():
    def program(x, weights):
        for number, weight in enumerate(weights):
            x, _ = gated(x[:4 - number], weight)
        return x

    sides = require_equal(on_three_sides(lambda: (program, [gate_arguments()])))
    assert len([name for name in cut(sides.log).names if name == "gated"]) == 3


def test_marks_under_inductor():
    same_as_eager(gates, call(*gate_arguments()), call(*gate_arguments()), backend="inductor")


def test_marks_are_not_followed_where_regions_are_off():
    with events.record() as log:
        stator.compile(gates, backend="aot_eager", options={"regions": "off"})(*gate_arguments())
    assert not [event for event in log if isinstance(event, (events.GraphCut, events.GraphKeptWhole))]


class Writing(nn.Module):
    def forward(self, x):
        return x.add_(1)


def test_a_call_that_cannot_be_cut_is_no_piece():
    def build():
        model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), Writing())
        return model, [(inputs(),), (inputs(),)]

    sides = require_equal(on_three_sides(build, around=torch.no_grad, regions=[Writing]))
    [why] = sides.whole_because
    assert "Writing: the memory of" in why and "is written to" in why


def test_some_calls_that_cannot_be_cut_are_listed():
    def build():
        model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), Writing(), nn.Tanh(), nn.Linear(16, 16))
        return model, [(inputs(),)]

    sides = require_equal(on_three_sides(build, around=torch.no_grad, regions=[Writing, nn.Linear]))
    assert any(why.startswith("Writing: ") for why in cut(sides.log).refused)
    assert "Linear" in cut(sides.log).names


def test_a_graph_without_named_calls_says_so():
    sides = on_three_sides(functools.partial(build_stack, layers=2), regions=[nn.Conv2d])
    assert sides.whole_because == ["it calls no module that options['regions'] names"]


def test_explain_shows_names_uses_and_savings():
    model, [args] = build_stack(layers=3)
    text = str(stator.explain(model, backend="aot_eager", options={"regions": [Block]})(*args))
    assert "Block: 23 nodes x3" in text and "s saved" in text


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("patched", "lines"), [({}, 0), ({"capture_progress_seconds": 1}, 3),
                                                ({"capture_progress_seconds": 1, "show_progress": False}, 0)])
def test_pieces_done_and_to_go_are_shown_on_a_terminal(monkeypatch, patched, lines):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(compilation, "perf_counter", itertools.count().__next__)  # each piece takes a second
    model, [args] = build_stack(layers=2)
    with events.record() as log, stator.config.patch(**patched):
        stator.compile(model, backend="aot_eager", options={"regions": [Block]})(*args)
    assert [event.done for event in log if isinstance(event, events.PiecesCompiled)] == [0, 1, 2, 3]
    shown = [line for line in sys.stderr.getvalue().splitlines() if "[progress]" in line]
    assert len(shown) == lines
    assert not shown or "pieces: 2 of 3 compiled, 1 to go" in shown[1]


@pytest.mark.parametrize(("value", "found"), [
    (3, "options['regions']=3 is"), ("yes", "options['regions']='yes' is"), ([], "options['regions']=() is"),
    ([nn.Linear, int], "options['regions'] holds <class 'int'>, which is"), (None, "options['regions']=None is"),
])
def test_other_values_are_refused(value, found):
    with pytest.raises(stator.OptionError) as refused:
        stator.compile(gates, options={"regions": value})
    assert str(refused.value) == f"{found} not accepted; use 'auto', 'off' or a list of nn.Modules and classes of them"
