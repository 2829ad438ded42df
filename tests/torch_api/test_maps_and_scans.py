"""torch.vmap in chunks; scan, map and while_loop over dicts and nested tuples: captured whole, equal to eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan_op

import stator
from tests.own_process import in_own_process
from tests.torch_api.side_by_side import World, compare


def chunked(x: Any) -> Any:
    return torch.vmap(lambda row: (row.sin().sum(), row * 2), chunk_size=2)(x)


def chunked_dims(x: Any) -> Any:
    return torch.vmap(lambda a, b: {"sum": a + b}, in_dims=(1, None), out_dims=1, chunk_size=1)(x, torch.ones(5))


def chunked_random(x: Any) -> Any:
    return torch.vmap(lambda row: F.dropout(row, 0.5), randomness="different", chunk_size=3)(x), torch.rand(2)


def chunked_gradients(x: Any) -> Any:
    return torch.vmap(torch.func.grad(lambda row: (row ** 3).sum()), chunk_size=4)(x)


def scanned_dicts(x: Any) -> Any:
    return scan(lambda h, t: ({"h": h["h"] + t["x"]}, {"o": h["h"] * 2}), {"h": torch.zeros(3)}, {"x": x})


def scanned_tuples(x: Any) -> Any:
    return scan(lambda h, t: ((h[0] + t, h[1] * 2), [h[0] * 2, {"k": t + h[1]}]), (torch.zeros(3), torch.ones(3)), x,
                reverse=True)


def mapped_dicts(x: Any) -> Any:
    return map_rows(lambda row: {"k": row * 2, "l": (row - 1, row + 1)}, x)


def looped_dicts(x: Any) -> Any:
    return while_loop(lambda s: s["i"] < 3, lambda s: ({"i": s["i"] + 1, "a": s["a"] * 2},),
                      ({"i": torch.tensor(0), "a": x},))


def effects_of_chunks(x: Any) -> Any:
    seen: list[int] = []
    y = torch.vmap(lambda row: (seen.append(1), row * 2)[1], chunk_size=2)(x)
    return y, len(seen)


def world(function: Any) -> World:
    return World(function, lambda i: (torch.arange(15.0).reshape(5, 3) + i,))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [chunked, chunked_dims, chunked_random, chunked_gradients, scanned_dicts,
                                      scanned_tuples, mapped_dicts, looped_dicts], ids=lambda f: f.__name__)
def test_captured_whole(function: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    seen = compare(lambda: world(function), calls=3, backend=backend, tolerance=0.0 if backend == "eager" else 1e-6)
    assert not seen.breaks and seen.captures == [1, 0, 0], seen


def test_a_function_that_counts_its_chunks() -> None:
    seen = compare(lambda: world(effects_of_chunks), calls=2)
    assert set(seen.breaks) == {"SB016"}


# ---------------------------------------------------------------------- loops that carry numbers


def counted(x: Any, n: int) -> Any:
    return while_loop(lambda i, x: 2 * i < x.shape[0], lambda i, x: (i + 1, x + i), (0, x))


def up_to_a_number(x: Any, n: int) -> Any:
    i, y = while_loop(lambda i, x: i < n, lambda i, x: (i + 2, x * 2 + i), (1, x))
    return y * i, i


def by_a_tensor(x: Any, n: int) -> Any:
    return while_loop(lambda i, x: x.sum() < 500, lambda i, x: (i + 1, x * 2 + 1), (0, x))


def nested_numbers(x: Any, n: int) -> Any:
    return while_loop(lambda c, x: c["i"] < 4, lambda c, x: ({"i": c["i"] + 1, "j": [c["j"][0] * 2]}, x + c["j"][0]),
                      ({"i": 0, "j": [n]}, x))


def without_a_turn(x: Any, n: int) -> Any:
    return while_loop(lambda i, x: i < 0, lambda i, x: (i + 1, x * 2), (n, x))


def of_one_number(x: Any, n: int) -> Any:
    return while_loop(lambda i, x: i < 3, lambda i, x: (7, x * 2), (0, x))


def used_as_a_size(x: Any, n: int) -> Any:
    i, y = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x))
    return torch.zeros(i), y[:i], i * 2


def from_a_size(x: Any, n: int) -> Any:
    return while_loop(lambda i, x: i < 10, lambda i, x: (i + 1, x * 2), (x.shape[0], x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("function", [counted, up_to_a_number, by_a_tensor, nested_numbers, without_a_turn, of_one_number,
                                      used_as_a_size, from_a_size], ids=lambda function: function.__name__)
def test_numbers_that_a_loop_carries(function: Any, backend: str) -> None:
    """Another number outside the loop is no new capture once it has changed; nor is another size."""
    seen = compare(lambda: World(function, lambda i: (torch.arange(15.0)[:5 + i] + i, 3 + i)), calls=5, backend=backend,
                   tolerance=1e-6)
    if backend == "inductor":  # which fails on such loops, and gets the code around them
        assert set(seen.breaks) == {"SB016"} and not any(seen.captures[3:])
    else:
        assert not seen.breaks, seen.causes
        assert sum(seen.captures) <= 2


def test_a_number_becomes_a_tensor() -> None:
    """torch refuses it; so does the capture, and torch says why."""
    def function(x: Any) -> Any:
        return while_loop(lambda i, x: i < 3, lambda i, x: (x.sum(), x * 2), (0, x))

    def check() -> None:
        seen = compare(lambda: world(function), calls=1)
        assert seen.breaks == ["SB016"], seen.causes

    in_own_process(check)  # torch's loop compiles itself, and its hook stays behind when that fails


def scanned_to_another_type(x: Any) -> Any:
    return scan(lambda h, t: ((h + t).double(), h * 2), torch.zeros(3), x)


def scanned_to_another_size(x: Any) -> Any:
    return scan(lambda h, t: (torch.cat([h, t]), h * 2), torch.zeros(3), x)


def looped_to_another_type(x: Any) -> Any:
    return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, (a * 2).double()), (torch.tensor(0), x))


@pytest.mark.parametrize("program", [scanned_to_another_type, scanned_to_another_size, looped_to_another_type],
                         ids=lambda each: each.__name__)
def test_what_is_carried_may_not_change_its_kind(program: Any) -> None:
    def told(x: Any) -> Any:
        try:
            return program(x)
        except Exception as error:
            return type(error).__name__

    def work() -> None:  # torch's own tracer does it eagerly
        compare(lambda: World(told, lambda i: (torch.full((4, 3), i + 1.0),)), calls=2)

    in_own_process(work)
    with pytest.raises(stator.Unsupported, match="SB016.*what it carries"):
        stator.compile(program, backend="eager", fullgraph=True)(torch.ones(4, 3))


def added_up(x: Any) -> Any:
    """As a scan by points calls it, which only GPUs have in eager."""
    return associative_scan_op(lambda s, p, t, q: [s + t, p * q], [x, x + 1], ())


def test_an_associative_scan_is_one_node() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    compiled = stator.compile(added_up, backend=backend, fullgraph=True)
    for scale in (1.0, 2.0):
        x = torch.arange(12.0).reshape(4, 3) * scale
        torch.testing.assert_close(compiled(x), added_up(x))
        torch.testing.assert_close(compiled(x)[1], (x + 1).cumprod(0))
    assert len(graphs) == 1
    assert len(graphs[0].graph.find_nodes(op="call_function", target=associative_scan_op)) == 1
