"""A change of a setting that changes nothing leaves no node; one that does leaves one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator


def settings_in(function: Callable[..., Any], *args: Any) -> tuple[Any, list[Any]]:
    found: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found.extend(node.args for node in graph.graph.nodes if "set_" in str(node.target))
        return graph.forward

    return stator.compile(function, backend=backend)(*args), found


def off(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    with torch.no_grad():
        x = x + 2
    return x + 3


def on(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    with torch.enable_grad():
        x = x * 2
    return x + 3


@pytest.mark.parametrize(("function", "mode", "wanted"), [
    (off, False, []), (on, True, []), (off, True, [(False,), (True,)]), (on, False, [(True,), (False,)])])
def test_nodes(function: Callable[..., Any], mode: bool, wanted: list[Any]) -> None:
    with torch.set_grad_enabled(mode):
        x = torch.ones(2, requires_grad=True)
        result, found = settings_in(function, x)
        expected = function(x)
    assert found == wanted
    assert torch.equal(result, expected) and result.requires_grad == expected.requires_grad


def test_what_a_program_leaves_is_set_without_a_graph() -> None:
    def leaves(x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(False)
        return x

    try:
        log: list[Any] = []
        stator.compile(leaves, backend=lambda graph, inputs: log.append(graph) or graph.forward)(torch.ones(2))
        assert not torch.is_grad_enabled() and log == []
    finally:
        torch.set_grad_enabled(True)


def test_the_last_of_several() -> None:
    def several(x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(False)
        torch.set_grad_enabled(True)
        torch.set_grad_enabled(False)
        x = x * 2
        torch.set_grad_enabled(True)
        return x

    result, found = settings_in(several, torch.ones(2, requires_grad=True))
    assert found == [(False,), (True,)] and not result.requires_grad


def test_autocast_twice() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            with torch.autocast("cpu", dtype=torch.bfloat16):
                z = y @ x
        return z + x @ x

    x = torch.randn(3, 3)
    result, found = settings_in(twice, x)
    expected = twice(x)
    assert torch.equal(result, expected) and result.dtype == expected.dtype
    assert found.count(("cpu", True)) == 1 and found.count(("cpu", False)) == 1


def test_inference_mode_between() -> None:
    def between(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            with torch.inference_mode(False):
                y = x + 1
            z = x * 2
        return y.detach() + z + x

    x = torch.ones(2, requires_grad=True)
    result, _ = settings_in(between, x)
    expected = between(x)
    assert torch.equal(result, expected) and result.requires_grad == expected.requires_grad


def test_a_write_alone_is_no_setting() -> None:
    def writes(x: torch.Tensor) -> None:
        x.mul_(2)

    x = torch.ones(2)
    stator.compile(writes, backend="eager", fullgraph=True)(x)
    assert x.tolist() == [2.0, 2.0]
