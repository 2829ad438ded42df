"""torch's operators that take functions: cond, while_loop, scan, map, associative_scan and wrap, as the program calls them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.map import map as graph_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch._higher_order_ops.wrap import wrap

import stator
from stator import events
from tests.breaks.capture import compare

UP, DOWN = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0])
WEIGHT = nn.Parameter(torch.tensor([0.5, 0.25, 2.0]))


def user_cond(x):
    def up(a):
        return {"r": a + WEIGHT, "s": (a * 2,)}

    return torch.cond(x.sum() > 0, up, lambda a: {"r": a - 1, "s": (a * 3,)}, (x,))


def user_cond_on_a_size(x):
    return torch.cond(x.shape[0] > 2, lambda a: a.sin(), lambda a: a.cos(), (x,))


def user_while_loop(x):
    return while_loop(lambda i, a: i.sum() < 5, lambda i, a: (i + 1, a * 2 + 1), (torch.zeros(()), x))


def user_scan(x):
    return scan(lambda c, y: (c + y, c * y), torch.zeros(3), x.expand(4, 3).contiguous())


def user_map(x):
    return graph_map(lambda row, w: (row.sin() * w, row + 1), x.expand(4, 3).contiguous(), UP)


def user_associative_scan(x):
    return associative_scan(lambda a, b: a + b, x.expand(4, 3).contiguous(), 0, combine_mode="generic")


def user_cond_by_name(x):
    return cond_op(pred=x.sum() > 0, true_fn=lambda a: (a + 1,), false_fn=lambda a: (a - 1,), operands=(x,))


def user_wrap(x):
    def body(a, *, twice=False):
        told = [a.shape]
        told.append(a.dtype)
        return {"r": a * 2 if twice else a, "told": told, "w": WEIGHT, "view": a[1:], "size": a.size(0)}

    return wrap(lambda a: wrap(body, a, twice=True), x), wrap(body, a=x)


@pytest.mark.parametrize("program", [user_cond_by_name, user_wrap, user_cond, user_cond_on_a_size, user_while_loop, user_scan, user_map,
                                     user_associative_scan], ids=lambda each: each.__name__)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_operators_that_take_functions(program: Any, backend: str) -> None:
    seen = compare(program, [(UP,), (DOWN,), (UP,)], backend=backend, fullgraph=True)
    assert len(seen.graph_modules) == 1 and not seen.breaks


def test_the_body_of_wrap_is_a_graph_of_its_own() -> None:
    def program(x, n):
        y = wrap(lambda a: (a.sin() + WEIGHT, a[:n]), x)
        y[1].mul_(2.0)
        return y, x

    seen = compare(program, [(UP.clone(), 2), (DOWN.clone(), 1)], fullgraph=True)
    [node] = [node for node in seen.graph_modules[0].graph.nodes if node.target is wrap]
    body = getattr(seen.graph_modules[0], node.args[0].target)
    assert len(node.args) == 3 and [each.op for each in body.graph.nodes].count("placeholder") == 2


def test_inner_graphs_are_named_by_their_roles_and_say_where_they_are() -> None:
    def program(x):
        return torch.cond(x.sum() > 0, lambda a: wrap(torch.sin, a), lambda a: a.cos(), (x,))

    graph = compare(program, [(UP,), (DOWN,)], fullgraph=True).graph_modules[0]
    names = {name for name, _ in graph.named_modules()}
    assert names == {"", "cond_true_0", "cond_true_0.wrap_body_0", "cond_false_0"}
    [sine] = [node for node in graph.cond_true_0.wrap_body_0.graph.nodes if "call" in node.op]
    assert [target for _, target in sine.meta["source_fn_stack"]] == [cond_op, wrap, torch.sin]


def test_wrap_of_a_function_with_effects_is_interpreted() -> None:
    told: list[Any] = []

    def program(x):
        told.clear()

        def body(a):
            told.append(2)
            return a + len(told)

        return wrap(body, x), told

    seen = compare(program, [(UP,), (UP,)])
    assert not seen.of(events.GraphBreak)
    assert not any(node.target is wrap for graph in seen.graph_modules for node in graph.graph.nodes)


def test_an_operator_called_wrongly_says_what_eager_says() -> None:
    def program(x, wrong):
        if wrong:
            return cond_op(x.sum() > 0, lambda a: a, lambda a: a, (x,), other=1)
        return wrap(x)

    compare(program, [(UP, True), (UP, False)])


def test_a_way_of_cond_that_raises_breaks_before_the_operator() -> None:
    def program(x):
        def never(a):
            raise ValueError("not taken")

        return cond_op(x.sum() > 0, lambda a: a + 1, never, (x,)) * 2

    seen = compare(program, [(UP,), (UP,)])
    assert any("torch.cond: a way raises ValueError" in each.cause for each in seen.of(events.GraphBreak))


def test_an_operator_whose_function_has_effects_runs_whole_and_native() -> None:
    told: list[str] = []

    def program(x):
        def up(a):
            told.append("up")
            return a + 1

        return torch.cond(x.sum() > 0, up, lambda a: a - 1, (x,)) * 2

    with pytest.raises(stator.Unsupported, match="SB016.*effects"):
        stator.compile(program, backend="eager", fullgraph=True)(UP)
    assert told == []
