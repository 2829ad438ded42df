"""Calls that an audit must not make twice, and state of the process that is no part of a call."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._logging._internal import LazyTraceHandler, trace_log

import stator
from stator import events
from tests.own_process import in_new_interpreters

RUNS: list[str] = []
_logger = logging.getLogger("stator_tests.audited")


@torch.library.custom_op("stator_audit::noted", mutates_args=())
def noted(x: torch.Tensor) -> torch.Tensor:
    RUNS.append("run")
    return x + 1


@noted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@stator.allow_in_graph
def whole(x: Any) -> Any:
    if not isinstance(x, torch._subclasses.FakeTensor):
        RUNS.append("run")
    return x * 3


def custom(x: Any) -> Any:
    return noted(x) * 2


def custom_behind_a_break(x: Any) -> Any:
    stator.graph_break()
    return noted(x * 2)


def allowed(x: Any) -> Any:
    return whole(x) + 1


def audited(fn: Any, every: int = 1) -> Any:
    return stator.compile(fn, backend="eager", options={"audit": every})


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("fn", [custom, custom_behind_a_break, allowed])
def test_python_effects_happen_once_a_call(fn: Any, every: int) -> None:
    expected = fn(torch.ones(2))
    RUNS.clear()
    compiled = audited(fn, every)
    with events.record() as log, pytest.warns(RuntimeWarning, match="are not audited: .* must not run twice") as said:
        results = [compiled(torch.ones(2)) for _ in range(4)]
    assert all(torch.equal(result, expected) for result in results)
    assert len(RUNS) == 4
    assert len([event for event in log if isinstance(event, events.AuditSkipped)]) == 1
    assert len([each for each in said if "audited" in str(each.message)]) == 1


def summed(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    dist.all_reduce(y)
    return y + 1


def rank(number: int, path: str) -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{path}/store", rank=number, world_size=2)
    compiled = audited(summed, 2 + number)  # audits would fall on different calls
    results = [compiled(torch.full((2,), number + turn)).tolist() for turn in range(4)]
    with open(os.path.join(path, f"result{number}"), "w") as file:
        file.write(repr(results))
    dist.destroy_process_group()


def test_collectives_are_not_audited() -> None:
    with tempfile.TemporaryDirectory() as path:
        in_new_interpreters(*([__file__, str(number), path] for number in range(2)))
        expected = repr([[1 + 2 * turn + 1] * 2 for turn in range(4)])
        for number in range(2):
            with open(os.path.join(path, f"result{number}")) as file:
                assert file.read() == expected


def of_a_constant(x: Any) -> Any:
    return x + noted(torch.tensor([1.0]))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_nothing_runs_on_constants_while_tracing(backend: str) -> None:
    RUNS.clear()
    assert torch.equal(stator.compile(of_a_constant, backend=backend)(torch.ones(2)), torch.full((2,), 3.0))
    assert len(RUNS) == 1


def test_bisect_refuses_what_must_not_run_twice() -> None:
    found = stator.bisect(stator.compile(custom, backend="eager"))(torch.ones(2))
    assert "must not run twice" in str(found)


# ---------------------------------------------------------------------- state of the process


class Logs(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        _logger.debug("called")
        return x.sum() + x.shape[0]


def marks_memory(x: Any) -> Any:
    cache = x * 2
    if not torch.compiler.is_compiling():
        torch._dynamo.mark_static_address(cache)
    return cache


@pytest.mark.parametrize("fn", [Logs(), marks_memory])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_registries_and_marks_for_compilers_are_no_difference(fn: Any, backend: str,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo  # noqa: F401  (its import is not part of the call)
    monkeypatch.setattr(trace_log, "handlers", [LazyTraceHandler(None)])  # as outside of pytest
    compiled = stator.compile(fn, backend=backend, dynamic=True, options={"audit": 1})
    with events.record() as log:
        for size in (3, 4):
            compiled(torch.ones(size))
    assert [event.differences for event in log if isinstance(event, events.Audited)] == [0, 0]


def test_other_attributes_of_tensors_are_compared() -> None:
    def tags(x: Any) -> Any:
        y = x + 1
        y.tag = not torch.compiler.is_compiling()
        return y

    with events.record() as log, pytest.warns(RuntimeWarning, match="differs from eager"):
        audited(tags)(torch.ones(2))
    assert any(isinstance(event, events.AuditDifference) for event in log)


def state_of_logging() -> dict[str, Any]:
    return {name: (dict(logger._cache), list(logger.handlers), logger.level)  # type: ignore[attr-defined]
            for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)}


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_capture_leaves_loggers_as_they_were(dynamic: bool) -> None:
    def reads(x: Any) -> Any:
        return x.sum().item() * x.reshape(-1)[: x.shape[0]]

    compiled = stator.compile(reads, backend="eager", dynamic=dynamic)
    stator.compile(lambda x: x.sum().item() + x, backend="eager", dynamic=dynamic)(torch.ones(2))  # lazy imports
    logging.root.manager._clear_cache()  # type: ignore[attr-defined]
    before = state_of_logging()
    compiled(torch.ones(5))
    assert state_of_logging() == before


def test_warnings_of_an_eager_run_that_was_the_call_are_issued() -> None:
    def warns(x: Any) -> Any:
        warnings.warn("once and for all", stacklevel=1)
        return noted(x)

    with pytest.warns() as said:
        audited(warns)(torch.ones(2))
    assert [str(each.message) for each in said].count("once and for all") == 1


if __name__ == "__main__":
    rank(int(sys.argv[1]), sys.argv[2])
