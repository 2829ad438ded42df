"""An error that only the graph meets: what the program did before it has happened, as in eager."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stator
from stator import events
from stator.emit.residual import kept_inputs


def test_effects_before_the_error_happen() -> None:
    def program(x: Any, index: Any, log: list[Any]) -> Any:
        log.append("before")
        return x[index]

    compiled = stator.compile(program, backend="eager")
    log: list[Any] = []
    good = torch.tensor([0, 1])
    assert torch.equal(compiled(torch.arange(3.0), good, log), torch.tensor([0.0, 1.0]))
    with events.record() as seen, pytest.raises(IndexError, match="out of bounds|out of range"):
        compiled(torch.arange(3.0), torch.tensor([0, 9]), log)
    assert log == ["before", "before"]
    assert any(isinstance(event, events.EagerFallback) for event in seen)
    assert torch.equal(compiled(torch.arange(3.0), good, log), torch.tensor([0.0, 1.0]))
    assert log == ["before"] * 3


def test_an_error_before_the_first_write() -> None:
    """The graph writes in place, and fails before it has: the program runs as it is, and raises at its own line."""
    def program(x: Any, index: Any, log: list[Any]) -> Any:
        log.append("before")
        y = x[index]
        x.add_(1)
        return y

    compiled = stator.compile(program, backend="eager")
    log: list[Any] = []
    x = torch.arange(3.0)
    compiled(x, torch.tensor([0, 1]), log)
    with pytest.raises(IndexError) as caught:
        compiled(x, torch.tensor([0, 9]), log)
    assert log == ["before", "before"]
    assert x.tolist() == [1, 2, 3]
    assert caught.traceback[-1].name == "program"
    compiled(x, torch.tensor([0, 1]), log)
    assert (x.tolist(), len(log)) == ([2, 3, 4], 3)


@pytest.mark.parametrize("way", ["plainly", "through data", "through a view"])
def test_an_error_after_a_write_is_not_made_again(way: str) -> None:
    def program(x: Any, index: Any) -> Any:
        (x if way == "plainly" else x.data if way == "through data" else x[1:]).add_(1)
        return x[index]

    compiled = stator.compile(program, backend="eager")
    x = torch.zeros(3)
    compiled(x, torch.tensor([0, 1]))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([0, 9]))
    assert x.tolist()[1:] == [2, 2]
    compiled(x, torch.tensor([0, 1]))
    assert x.tolist()[1:] == [3, 3]


def test_writes_to_what_the_graph_made_are_nobody_elses() -> None:
    def program(x: Any, index: Any, log: list[Any]) -> Any:
        log.append("before")
        return x.clone().add_(1)[index]

    compiled = stator.compile(program, backend="eager")
    log: list[Any] = []
    compiled(torch.zeros(3), torch.tensor([0, 1]), log)
    with pytest.raises(IndexError):
        compiled(torch.zeros(3), torch.tensor([0, 9]), log)
    assert len(log) == 2


def failing_graph(module: Any, inputs: Any) -> Any:
    """A backend whose code raises where the program does not."""
    def run(*values: Any) -> Any:
        raise RuntimeError(f"a kernel for {values[0].shape[0]} elements is missing")
    return run


def test_a_graph_that_fails_alone_is_named_once() -> None:
    compiled = stator.compile(lambda x, log: log.append(1) or x + 1, backend=failing_graph)
    x, log = torch.ones(17), []
    with pytest.warns(RuntimeWarning, match="a kernel for 17 elements is missing.*the program itself does not") as told:
        assert torch.equal(compiled(x, log), x + 1)
        assert torch.equal(compiled(x, log), x + 1)
    assert len(told) == 1 and told[0].filename == __file__
    assert len(log) == 2


def test_a_graph_that_fails_with_the_program_is_not_told(recwarn: pytest.WarningsRecorder) -> None:
    compiled = stator.compile(lambda x, index: x[index], backend="eager")
    compiled(torch.arange(3.0), torch.tensor([0, 1]))
    with pytest.raises(IndexError):
        compiled(torch.arange(3.0), torch.tensor([0, 19]))
    assert not [warning for warning in recwarn if "stator" in str(warning.message)]


def test_a_warning_that_raises_is_raised() -> None:
    compiled = stator.compile(lambda x: x + 1, backend=failing_graph)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="a kernel for 23"):
            compiled(torch.ones(23))


def test_a_lock_that_is_taken_is_waited_for(recwarn: pytest.WarningsRecorder) -> None:
    """The segment hands the call back; that is no failure of a graph."""
    gate, log = threading.Lock(), []

    def program(x: Any) -> Any:
        log.append("called")
        with gate:
            return x + 1

    compiled = stator.compile(program, backend="eager")
    compiled(torch.ones(2))
    gate.acquire()
    timer = threading.Timer(0.05, gate.release)
    timer.start()
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    timer.join()
    assert len(log) == 2 and not gate.locked()
    assert not [warning for warning in recwarn if "stator" in str(warning.message)]


def writes_and_fails(x: Any, index: Any, log: list[Any]) -> Any:
    log.append("before")
    x.add_(1)
    log.append(x.sum().item())
    found = torch.arange(3.0)[index]  # where the error is
    log.append("after")
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_error_after_a_write_is_raised_by_the_program(backend: str) -> None:
    compiled = stator.compile(writes_and_fails, backend=backend)
    x, log = torch.zeros(3), []
    compiled(x, torch.tensor([0, 1]), log)
    version = x._version
    with pytest.raises(IndexError) as caught:
        compiled(x, torch.tensor([0, 9]), log)
    assert log == ["before", 3.0, "after", "before", 6.0]
    assert (x.tolist(), x._version) == ([2, 2, 2], version + 1)
    assert str(caught.traceback[-1].statement).endswith("# where the error is")


def test_an_error_after_a_write_to_much_memory_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_inputs, "KEPT_BYTES", 4)
    compiled = stator.compile(writes_and_fails, backend="eager")
    x, log = torch.zeros(3), []
    compiled(x, torch.tensor([0, 1]), log)
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([0, 9]), log)
    assert x.tolist() == [2, 2, 2]
    assert len(log) == 3  # what is short


def test_a_check_after_a_write_to_much_memory_speaks_in_the_programs_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Any, n: Any) -> Any:
        x.add_(1)
        size = n.item()
        torch._check(size <= 4, lambda: "too many")
        torch._check(size >= 1, lambda: "none at all")
        return x[:size]

    monkeypatch.setattr(kept_inputs, "KEPT_BYTES", 4)
    compiled = stator.compile(program, backend="eager", fullgraph=True)
    for number, said in ((2, None), (7, "too many"), (0, "none at all"), (3, None)):
        x = torch.zeros(5)
        if said is None:
            assert compiled(x, torch.tensor(number)).tolist() == [1.0] * number
        else:
            own_words = torch.__version__ >= "2.13"  # torch 2.11 has words of its own
            with pytest.raises(RuntimeError, match=f"^{said}$" if own_words else "^Runtime assertion failed"):
                compiled(x, torch.tensor(number))
        assert x.tolist() == [1.0] * 5


def test_an_error_after_a_write_that_autograd_has_seen() -> None:
    """The history that the graph gave to the input cannot be undone; it is not made twice either."""
    def program(x: Any, index: Any) -> Any:
        x.mul_(2)
        return x[index]

    compiled = stator.compile(program, backend="eager")
    leaf = torch.ones(3, requires_grad=True)
    compiled(leaf + 0, torch.tensor([0, 1]))
    x = leaf + 0
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([0, 9]))
    x.sum().backward()
    assert (x.tolist(), leaf.grad.tolist()) == ([2, 2, 2], [2, 2, 2])


def test_only_graphs_that_may_fail_keep_their_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    def surely(x: Any, y: Any) -> Any:
        x[1:].add_(1)
        x.copy_(torch.relu(x) @ y)
        torch._foreach_mul_([x, y], 2.0)
        return torch.nn.functional.batch_norm(x, y[0], y[1].abs(), training=True)

    kept, copy = [], kept_inputs.copy_contents
    monkeypatch.setattr(kept_inputs, "copy_contents", lambda tensors: kept.append(len(tensors)) or copy(tensors))
    stator.compile(surely, backend="eager")(torch.ones(4, 4), torch.ones(4, 4))
    assert not kept
    stator.compile(writes_and_fails, backend="eager")(torch.zeros(3), torch.tensor([0, 1]), [])
    assert kept == [1]


def test_memory_that_overlaps_in_some_calls() -> None:
    def program(target: torch.Tensor, source: torch.Tensor, log: list[int]) -> torch.Tensor:
        log.append(1)
        target.mul_(2)
        target.copy_(source)
        log.append(2)
        return target

    compiled = stator.compile(program, backend="eager")
    seen = []
    for function in (compiled, program):
        matrix = torch.ones(3, 4)
        function(matrix, torch.full((4,), 3.0), [])
        log: list[int] = []
        with pytest.raises(RuntimeError) as caught:
            function(matrix, matrix[1], log)
        seen.append((str(caught.value), log, matrix.tolist(), caught.traceback[-1].lineno))
    assert seen[0] == seen[1]


def residual_of(program: Any, *args: Any) -> str:
    with events.record() as log:
        stator.compile(program, backend="eager", fullgraph=True)(*args)
    return "".join(event.residual_source for event in log if isinstance(event, events.CaptureFinished))


def test_integers_fail_where_floats_do_not() -> None:
    def program(x: Any, a: Any, b: Any, log: list[Any]) -> Any:
        x.add_(1)
        log.append("before")
        return a // b

    x, log, whole = torch.zeros(2), [], torch.tensor([4, 6])
    compiled = stator.compile(program, backend="eager")
    compiled(x, whole, whole, log)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x, whole, torch.tensor([2, 0]), log)
    assert log == ["before"] * 2 and x.tolist() == [2.0, 2.0]
    source = residual_of(program, x, whole, whole, log)
    assert "kept = " in source and "rng_state" not in source  # nothing is drawn
    assert "kept = " not in residual_of(program, x, torch.ones(2), torch.ones(2), log)


def test_a_normalisation_keeps_its_statistics_and_not_its_input() -> None:
    def program(x: Any, mean: Any, var: Any, whole: Any) -> Any:
        return F.instance_norm(x, mean, var, use_input_stats=True), whole // whole

    source = residual_of(program, torch.rand(4, 2, 3), torch.zeros(2), torch.ones(2), torch.tensor([3]))
    assert "copy_contents((mean, var,))" in source


def draws_in_a_map(x: torch.Tensor) -> torch.Tensor:
    try:
        return torch.vmap(lambda row: row + torch.randn(2))(x)
    except RuntimeError:
        return x * 2


def index_out_of_bounds(x: torch.Tensor) -> torch.Tensor:
    try:
        return x[torch.tensor([7])] * 2
    except IndexError:
        return x * 3


@pytest.mark.parametrize("fn", [draws_in_a_map, index_out_of_bounds])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", lambda gm, inputs: gm], ids=["eager", "aot_eager", "its own"])
def test_an_error_that_the_program_handles_prints_nothing(fn: Any, backend: Any, capsys: Any) -> None:
    """fx's graph modules describe errors on stderr."""
    compiled, x = stator.compile(fn, backend=backend), torch.ones(3, 2)
    for _ in range(2):
        assert torch.equal(compiled(x), fn(x))
    assert capsys.readouterr().err == ""
