"""Proposals remove breaks and keep results; a rewrite that changes anything is never shown."""

from __future__ import annotations

import ast
import functools
import random
import sys
import types

import pytest
import torch
from torch import nn

import stator
from benchmarks.remedies import judge, programs, same_where_stable
from stator.remedies import registry
from stator.remedies.registry import Candidate, Site
from stator.remedies.rewrites.branches import choose_with_where
from stator.remedies.rewrites.tensor_forms import expression
from stator.remedies.trial import NotRepeatable
from stator.settings import marks

DEVELOPMENT = {each.name: each for each in programs("development")}
FAMILIES = ["loop_of_branches", "isclose", "sort_of_list", "names_of_calls", "file_log", "graph_break_by_hand",
            "varying_batch", "numpy_edges"]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_of_rewrites(name: str) -> None:
    verdict = judge(DEVELOPMENT[name])
    assert verdict.mended and not verdict.wrong, str(verdict.proposals)


def test_the_two_sets_are_disjoint() -> None:
    held = {each.name for each in programs("held_aside")}
    assert len(DEVELOPMENT) == 40 and len(held) == 40 and not held & DEVELOPMENT.keys()


# ---------------------------------------------------------------------- copies


def scaled(factor):
    def decorate(fn):
        @functools.wraps(fn)
        def call(x, *args, **kwargs):
            return fn(x, *args, **kwargs) * factor
        return call
    return decorate


def make_closure(offset):
    count = [0]

    @scaled(3.0)
    def inner(x, bias=1.0, *, power=2):
        count[0] += 1
        if x.sum() > 0:  # the sign decides
            x = x + offset
        return x ** power + bias
    return inner, count


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.lin = nn.Linear(3, 3)

    def forward(self, x):
        self.steps += 1
        return helper(self.lin(x))


def helper(y):
    if y.max() > 1:
        y = y / y.max()
    return y


def test_closures_defaults_and_decorators() -> None:
    fn, count = make_closure(0.5)
    found = stator.propose(fn, calls=[(-torch.ones(3),)])(torch.ones(3), power=3)
    assert found.after.breaks == 0 and found.before.breaks == 1 and count == [0]
    assert "# the sign decides" in found.proposals[0].diff
    assert found.proposals[0].filename == __file__ and "torch.where(taken, x_then, x)" in found.proposals[0].diff


def test_nothing_of_the_program_changes() -> None:
    model, x = Net(), torch.randn(2, 3)
    code, names, stream, text = helper.__code__, dict(globals()), random.getstate(), open(__file__).read()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    found = stator.propose(model)(x)
    assert found.after.breaks == 0 and found.proposals
    assert model.steps == 0 and helper.__code__ is code and random.getstate() == stream
    assert globals().keys() - names.keys() <= {"__warningregistry__"} and sys.modules[__name__].helper is helper
    assert marks.substitute(helper) is None and marks.substitute(Net.forward) is None
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert open(__file__).read() == text and all(value.grad is None for value in model.parameters())
    compiled = stator.compile(model, backend="eager", isolate_recompiles=True)
    torch.testing.assert_close(compiled(x), model(x))


# ---------------------------------------------------------------------- what must not be shown


def out_of_reach(x):
    if x.clamp(0, 1).sum() > 1e3:
        x = x * 2
    return x + 1


def test_a_way_that_no_input_takes_is_not_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_rewrites", {"SB002": [(0, choose_with_where)]})
    found = stator.propose(out_of_reach)(torch.ones(3))
    assert not found.proposals, str(found)
    reasons = [why for each in found.failures for _, why in each.tried]
    assert any("one way of the branch was not reached" in why for why in reasons)
    assert f"none of {len(reasons)} tried works" in str(found)


def guarded_ratio(x):
    total = x.sum()
    if total == 0:
        return torch.zeros_like(x)
    return x / total


def test_gradients_are_compared() -> None:
    """torch.where has NaN gradients where the way that is not taken divides by zero."""
    plain = stator.propose(guarded_ratio)(torch.tensor([1.0, -1.0]))
    assert [each.title for each in plain.proposals] == ["choose between values with torch.where"]
    found = stator.propose(guarded_ratio)(torch.tensor([1.0, -1.0], requires_grad=True))
    assert not any("torch.where" in each.diff for each in found.proposals), str(found)


def other_dtypes(x):
    if x.sum() > 0:
        return x.long()
    return x


def test_types_are_compared() -> None:
    found = stator.propose(other_dtypes)(torch.tensor([1.0, 2.0]))
    assert not found.proposals and found.failures


def sign_step(x):
    if x.sum() > 0:
        x = x + 1
    return x * 2


FAULTS = {"another value": "x + torch.where(x.sum() > 0, 1, 1e-6)", "another dtype": "(x + (x.sum() > 0)).double()",
          "a mutation": "x.add_(x.sum() > 0)", "output": "(print('now'), x + (x.sum() > 0))[1]",
          "a draw": "x + (x.sum() > 0) + 0 * torch.rand(())", "an error": "x.view(-1)[99] + x",
          "wrong on the other way": "x + 1"}


@pytest.mark.parametrize("fault", [*FAULTS, None])
def test_a_wrong_rewrite_is_rejected(fault: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "x + (x.sum() > 0)" if fault is None else FAULTS[fault]

    def wrong(site: Site):
        statement = site.places[0].statement
        assert isinstance(statement, ast.If)
        made = ast.Assign([ast.Name("x", ast.Store())], expression(text))
        yield Candidate("injected", (site.replace([statement], [made]),), branches=(statement,))

    monkeypatch.setattr(registry, "_rewrites", {"SB002": [(0, wrong)]})
    found = stator.propose(sign_step)(torch.ones(3))
    assert bool(found.proposals) == (fault is None), str(found)
    if fault is not None:
        [failure] = found.failures
        assert [title for title, _ in failure.tried] == ["injected"]


def test_a_program_without_breaks_and_one_without_source() -> None:
    assert str(stator.propose(torch.relu)(torch.ones(2))).endswith("no breaks, no recompiles")
    namespace: dict[str, object] = {}
    exec("def unseen(x):\n    if x.sum() > 0:\n        x = x.double()\n    return x", namespace)
    unseen = namespace["unseen"]
    assert isinstance(unseen, types.FunctionType)
    found = stator.propose(unseen)(torch.ones(2))
    assert not any(each.diff for each in found.proposals)


def test_every_code_with_rewrites_is_registered() -> None:
    codes = set(registry.covered_codes()) - {registry.RECOMPILE, registry.EAGER}
    assert codes >= {"SB001", "SB002", "SB003", "SB009", "SB010", "SB013", "SB015", "SB024"}
    with pytest.raises(stator.OptionError, match="use a callable"):
        stator.propose(3)


@torch.library.custom_op("remedies_test::send", mutates_args=())
def send(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def sends(x):
    if x.sum() > 0:
        x = x + 1
    return send(x)


def test_calls_that_must_not_run_twice_are_not_repeated() -> None:
    with pytest.raises(NotRepeatable, match="remedies_test"):
        stator.propose(sends)(torch.ones(3))


def test_the_evaluation_compares_what_is_stable() -> None:
    one, later = [torch.ones(2), {"at": 1.0}], [torch.ones(2), {"at": 2.0}]
    assert same_where_stable(one, later, [torch.ones(2), {"at": 3.0}])
    assert not same_where_stable(one, later, [torch.zeros(2), {"at": 3.0}])
    assert not same_where_stable(one, later, [torch.ones(2), {"at": "3"}]) and not same_where_stable(one, one, later)
