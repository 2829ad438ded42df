"""A call outside its contract raises, with a line to add that makes the same calls go through."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

import stator
from stator import events
from stator.contracts import miss_check, trial


def captures(log: list[events.Event]) -> int:
    return sum(isinstance(event, events.CaptureFinished) for event in log)


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.scale = 2.0
        self.steps = [1, 2]

    def forward(self, x, mask=None):
        y = self.linear(x) * self.scale + len(self.steps)
        return y if mask is None else y + mask


def plain(x, mask=None, n=3):
    y = x * n
    if mask is not None:
        y = y + mask
    return y.sum(1)


def items(x, xs, sizes=(2, 3)):
    return x * len(xs) + sizes[0]


def keyed(x, xs):
    return x if "bias" in xs else x + 1


def constant(x, n):
    return x * [1.0, 2.0, 3.0, 4.0, 5.0, 6.0][n]


ONES = torch.ones(3, 4)
# Program, arguments of two calls, the fact between them, whether one entry can serve both.
CHANGES: dict[str, tuple[Callable, tuple, tuple, str, bool]] = {
    "a size": (plain, (ONES,), (torch.ones(3, 6),), "x.size(1)", True),
    "a number": (plain, (ONES, None, 3), (ONES, None, 4), "n", True),
    "a float": (plain, (ONES, None, 2.5), (ONES, None, 4.5), "n", True),
    "a tensor or None": (plain, (ONES,), (ONES, ONES), "mask is None", False),
    "a dtype": (plain, (ONES,), (ONES.double(),), "x.dtype", False),
    "a rank": (plain, (ONES,), (torch.ones(3, 4, 5),), "x.dim()", False),
    "a gradient": (plain, (ONES,), (torch.ones(3, 4, requires_grad=True),), "x.requires_grad", False),
    "strides": (plain, (ONES,), (torch.ones(4, 3).t(),), "x.stride()", False),
    "a type": (plain, (ONES, None, 3), (ONES, None, 2.5), "type(n)", False),
    "a length": (items, (ONES, [1, 2]), (ONES, [1, 2, 3]), "len(xs)", True),
    "a key": (keyed, (ONES, {"a": 1}), (ONES, {"a": 1, "bias": 2}), "'bias' in xs", False),
    "a string": (lambda x, mode: x + 1 if mode == "up" else x - 1, (ONES, "up"), (ONES, "down"), "mode", False),
    "a constant of the code": (constant, (ONES, 1), (ONES, 2), "n", False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_kind_of_change_raises_with_a_line_that_works(name: str) -> None:
    fn, first, second, fact, shared = CHANGES[name]
    compiled = stator.contract(fn, backend="eager")
    torch.testing.assert_close(compiled(*first), fn(*first))
    with pytest.raises(stator.ContractViolation) as caught:
        compiled(*second)
    text = str(caught.value)
    assert fact in caught.value.facts and caught.value.add is not None and fact in caught.value.add
    assert f"outside its contract: {fact}" in text and f"{__file__}:" in text
    assert ("one entry then accepts" in text) is shared
    torch.testing.assert_close(compiled(*first), fn(*first))  # the entry is still there

    wider = stator.contract(fn, varies=caught.value.add, backend="eager", isolate_recompiles=True)
    with events.record() as log:
        for args in (first, second, first, second):
            torch.testing.assert_close(wider(*args), fn(*args))
    assert captures(log) == (1 if shared else 2)


def test_settings_of_torch_are_facts_too() -> None:
    compiled = stator.contract(plain, backend="eager")
    compiled(ONES)
    with torch.no_grad(), pytest.raises(stator.ContractViolation, match=r"torch.grad_enabled was True, is False"):
        compiled(ONES)


def test_names_of_a_module_are_those_of_forward() -> None:
    model = Scaled()
    compiled = stator.contract(model, varies=["x.size(0)", "model.steps"], backend="eager")
    compiled(ONES)
    compiled(torch.ones(7, 4))
    model.scale = 3.0
    with pytest.raises(stator.ContractViolation, match=r"Scaled.forward .* self\.scale was 2\.0, is 3\.0") as caught:
        compiled(ONES)
    assert caught.value.add == ("self.scale",) and "nothing is compiled again" in str(caught.value)
    assert "varies=['x.size(0)', 'model.steps', 'self.scale']" in str(caught.value)
    model.scale = 2.0
    model.steps.append(3)
    torch.testing.assert_close(compiled(ONES), model(ONES))  # varies: another entry
    with pytest.raises(stator.ContractViolation, match=r"'mask' in kwargs was False, is True"):
        compiled(ONES, mask=ONES)


def test_fixed_facts_have_no_line_to_add() -> None:
    compiled = stator.contract(plain, varies=["x.shape"], fixed=["x.dtype", "mask is not None"], backend="eager")
    compiled(ONES)
    compiled(torch.ones(5, 9))
    for args, entry in (((ONES.double(),), "'x.dtype'"), ((ONES, ONES), "'mask is not None'")):
        with pytest.raises(stator.ContractViolation, match=f"(?s)fixed by its contract.*fixed: {entry}") as caught:
            compiled(*args)
        assert caught.value.add is None


def test_two_changes_are_named_together() -> None:
    compiled = stator.contract(plain, backend="eager")
    compiled(ONES)
    with pytest.raises(stator.ContractViolation) as caught:
        compiled(torch.ones(2, 5))
    assert caught.value.add == ("x.size(0)", "x.size(1)")
    wider = stator.contract(plain, varies=caught.value.add, backend="eager", isolate_recompiles=True)
    with events.record() as log:
        wider(ONES), wider(torch.ones(2, 5))
    assert captures(log) == 1


def test_a_warning_lets_the_call_through() -> None:
    compiled = stator.contract(plain, on_violation="warn", backend="eager")
    compiled(ONES)
    with pytest.warns(RuntimeWarning, match=r"x\.size\(1\) was 4, is 6"):
        torch.testing.assert_close(compiled(torch.ones(3, 6)), plain(torch.ones(3, 6)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in (ONES, torch.ones(3, 6)):
            torch.testing.assert_close(compiled(x), plain(x))


# ---------------------------------------------------------------------- no false alarm


def branching(x):
    return x + 1 if x.size(0) > 8 else x - 1


def broken(x, n=2):
    y = x * n
    stator.graph_break()
    return y + y.size(0)


@pytest.mark.parametrize(("fn", "varies", "calls"), [
    (branching, ["x.size(0)"], [(torch.ones(size, 2),) for size in (3, 12, 5, 20)]),
    (plain, ["batch_sizes", "lengths"], [(torch.ones(3, 4),), (torch.ones(5, 4),), (torch.ones(5, 9),)]),
    (plain, ["x.shape[-1]"], [(torch.ones(3, 4),), (torch.ones(3, 5),), (torch.ones(3, 6),)]),
    (plain, ["x", "mask"], [(ONES,), (ONES.double(),), (torch.ones(2, 3), torch.ones(2, 3))]),
    (plain, ["x.*"], [(ONES,), (ONES.double(),), (torch.ones(2, 3),)]),
    (broken, ["x.size(0)"], [(torch.ones(size, 2),) for size in (3, 5, 7)]),
    (items, ["len(xs)", "sizes[0]"], [(ONES, [1, 2], (2, 3)), (ONES, [1, 2, 3], (4, 3)), (ONES, [1], (4, 3))]),
    (plain, ["x.size(1)"], [(torch.ones(3, 1),), (torch.ones(3, 5),)]),  # size 1 is an entry of its own
], ids=["relation", "presets", "negative", "whole values", "pattern", "break", "containers", "size 1"])
def test_calls_inside_the_contract_pass(fn: Callable, varies: list[str], calls: list[tuple]) -> None:
    compiled = stator.contract(fn, varies=varies, backend="eager")
    for args in [*calls, *calls]:
        torch.testing.assert_close(compiled(*args), fn(*args))


def test_a_break_hides_no_change_of_an_argument() -> None:
    compiled = stator.contract(broken, varies=["x.size(0)"], backend="eager")
    compiled(torch.ones(3, 2))
    with pytest.raises(stator.ContractViolation, match=r"x\.size\(1\)"):
        compiled(torch.ones(3, 7))


def test_weights_can_be_reloaded() -> None:
    model = Scaled()
    compiled = stator.contract(model, varies=["weight_reloads"], backend="eager")
    compiled(ONES)
    state = {name: value + 1 for name, value in model.state_dict().items()}
    for assign in (False, True):
        model.load_state_dict(state, assign=assign)
        torch.testing.assert_close(compiled(ONES), model(ONES))
    model.requires_grad_(False)
    torch.testing.assert_close(compiled(ONES), model(ONES))
    model.linear = torch.nn.Linear(4, 6)
    with pytest.raises(stator.ContractViolation, match=r"self\.linear"):
        compiled(ONES)


class LoraLinear(torch.nn.Module):
    """Adapters by name, as PEFT has them."""

    def __init__(self) -> None:
        super().__init__()
        self.base = torch.nn.Linear(4, 4)
        self.lora_A = torch.nn.ModuleDict({name: torch.nn.Linear(4, rank, False) for name, rank in ADAPTERS})
        self.lora_B = torch.nn.ModuleDict({name: torch.nn.Linear(rank, 4, False) for name, rank in ADAPTERS})
        self.scaling = {"first": 1.0, "second": 0.5}
        self.active_adapter = "first"
        self.bound = 1.0

    def forward(self, x):
        name = self.active_adapter
        return self.base(x) + self.lora_B[name](self.lora_A[name](x)) * self.scaling[name] + self.bound


ADAPTERS = (("first", 2), ("second", 3))


def test_adapters_can_be_swapped() -> None:
    model = LoraLinear()
    compiled = stator.contract(model, varies=["lora_swaps"], backend="eager")
    with events.record() as log:
        for name in ("first", "second", "first", "second"):
            model.active_adapter = name
            torch.testing.assert_close(compiled(ONES), model(ONES))
        model.lora_A["first"] = torch.nn.Linear(4, 5, False)
        model.lora_B["first"] = torch.nn.Linear(5, 4, False)
        model.active_adapter = "first"
        torch.testing.assert_close(compiled(ONES), model(ONES))
    assert captures(log) == 2  # one for each name; another rank is a symbol
    model.bound = 2.0
    with pytest.raises(stator.ContractViolation, match=r"self\.bound"):
        compiled(ONES)


# ---------------------------------------------------------------------- from calls


def test_a_contract_from_calls_covers_them() -> None:
    calls = [(ONES,), (torch.ones(5, 4),), ((torch.ones(5, 6),), {"n": 4})]
    assert stator.contract.varying(plain, calls) == ["x.size(0)", "x.size(1)", "n"]
    compiled = stator.contract.from_calls(plain, calls, backend="eager", isolate_recompiles=True)
    with events.record() as log:
        compiled(ONES), compiled(torch.ones(5, 4)), compiled(torch.ones(5, 6), n=4)
    assert captures(log) == 1
    with pytest.raises(stator.ContractViolation, match="mask is None"):
        compiled(ONES, ONES)


def test_calls_of_a_contract_are_not_run() -> None:
    ran = []

    def noted(x):
        ran.append(x.size(0))
        return x + 1

    assert stator.contract.varying(noted, [(ONES,), (torch.ones(5, 4),)]) == ["x.size(0)"]
    assert not ran
    compiled = stator.contract(noted, backend="eager")
    compiled(ONES)
    with pytest.raises(stator.ContractViolation):
        compiled(torch.ones(5, 4))
    assert ran == [3]  # neither the refused call nor its trial


def test_equal_calls_vary_in_nothing() -> None:
    assert stator.contract.varying(Scaled(), [(ONES,), (torch.zeros(3, 4),)]) == []


# ---------------------------------------------------------------------- forms, states and faults


def test_compiled_callables_keep_their_entries_and_settings() -> None:
    compiled = stator.compile(plain, backend="eager")
    compiled(ONES)
    assert stator.contract(compiled) is compiled
    with pytest.raises(stator.ContractViolation):
        compiled(torch.ones(3, 9))
    model = Scaled()
    stator.compile_in_place(model, backend="eager")
    stator.contract(model)
    model(ONES)
    with pytest.raises(stator.ContractViolation):
        model(torch.ones(5, 4))
    bound = stator.contract(Scaled().forward, varies=["self.scale"], backend="eager")
    bound(ONES)
    with pytest.raises(stator.ContractViolation, match=r"x\.size\(0\)"):
        bound(torch.ones(5, 4))


def test_a_contract_outlives_reset_and_respects_stances() -> None:
    compiled = stator.contract(plain, varies=["x.size(0)"], backend="eager")
    compiled(ONES)
    stator.reset()
    with events.record() as log:
        compiled(ONES), compiled(torch.ones(5, 4))
    assert captures(log) == 1
    with stator.set_stance("force_eager"):
        compiled(torch.ones(5, 9))
    with pytest.raises(stator.ContractViolation):
        compiled(torch.ones(5, 9))


def test_a_trial_leaves_no_event() -> None:
    compiled = stator.contract(plain, backend="eager")
    compiled(ONES)
    with events.record() as log, pytest.raises(stator.ContractViolation):
        compiled(torch.ones(3, 9))
    assert not log


def test_a_line_is_not_claimed_without_its_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a wider contract does not open sizes, the trial finds the guard that tells the calls apart."""
    compiled = stator.contract(plain, backend="eager")
    compiled(ONES)
    nothing = {"numbers": [], "tuples": [], "sizes": {}, "strides": {}, "lengths": {}}
    monkeypatch.setattr(miss_check, "foreseen", lambda *_: nothing)
    with pytest.raises(stator.ContractViolation, match="each value is then compiled once, because .* x.size"):
        compiled(torch.ones(3, 9))


def test_a_failed_trial_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = stator.contract(plain, backend="eager")
    compiled(ONES)

    def fails(*_: object) -> None:
        raise ValueError("no such capture")

    monkeypatch.setattr(trial.miss, "traced", fails)
    with pytest.raises(stator.ContractViolation, match="(?s)tried varies=.*the capture fails.*no such capture") as caught:
        compiled(torch.ones(3, 9))
    assert caught.value.add is None


@pytest.mark.parametrize(("arguments", "message"), [
    ({"varies": "x.size(0)"}, "use a list"), ({"varies": [3]}, "use expressions as text"),
    ({"varies": ["x."]}, "no expression"), ({"varies": ["z.size(0)"]}, "names nothing of plain"),
    ({"varies": ["x.size(0)"], "fixed": ["x.shape[0]"]}, "in varies and in fixed"),
    ({"varies": ["x.size(0)"], "dynamic": False}, "dynamic=False is not accepted"),
    ({"on_violation": "ignore"}, "use 'raise' or 'warn'"),
])
def test_wrong_contracts_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(stator.OptionError, match=message):
        stator.contract(plain, backend="eager", **arguments)


def test_wrong_calls_are_refused() -> None:
    for calls, message in (([], "at least one call"), ([ONES], "use a tuple"), ([(1, 2, 3, 4)], "does not fit plain")):
        with pytest.raises(stator.OptionError, match=message):
            stator.contract.varying(plain, calls)
