"""The demo's model runs, and the demo says plainly what it does not find."""

from __future__ import annotations

import types

import pytest
import torch
from rich.console import Console

from stator.cli import demo
from stator.cli.demo_model import Output, build


def test_model_is_the_same_each_time():
    (first, tokens), (second, again) = build(), build()
    assert torch.equal(tokens, again)
    with torch.no_grad():
        one, two = first(tokens), second(tokens)
    assert isinstance(one, Output) and torch.equal(one.logits, two.logits)
    assert one.logits.shape == (2, 16, 64) and len(one.hidden) == 3
    assert first.last_shape == (2, 16)


def test_causal_mask_hides_the_future():
    model, tokens = build()
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 64
    with torch.no_grad():
        assert torch.equal(model(tokens).logits[:, :-1], model(changed).logits[:, :-1])
        assert not torch.equal(model(tokens, causal=False).logits[:, :-1], model(changed, causal=False).logits[:, :-1])


def test_missing_field_is_named():
    with pytest.raises(demo.DemoFailed, match="SimpleNamespace, which has no field 'guards'"):
        demo.field_of(types.SimpleNamespace(graphs=[]), "guards")


def test_graph_body_leaves_out_what_no_reader_needs():
    graph = torch.fx.symbolic_trace(lambda x, y: torch.relu(x + y) * 2)
    lines = [line.strip() for line in demo.body_of(graph).splitlines()]
    assert lines == ["add = x + y", "relu = torch.relu(add)", "mul = relu * 2", "return mul"]


def test_long_text_is_cut_and_says_so(capsys: pytest.CaptureFixture[str]):
    demo.show_text(Console(width=80), "guards", "\n".join("abc" for _ in range(9)), 4)
    printed = capsys.readouterr().out
    assert printed.count("abc") == 4 and "5 more lines" in printed


def test_cost_table_shows_what_each_adds():
    table = demo.cost_table(
        {"stator": 0.010, "torch._dynamo": 0.100},
        {demo.BARE_GRAPH: 10e-6, "stator": 11e-6, "torch._dynamo": 30e-6},
    )
    columns = [list(column.cells) for column in table.columns]
    assert columns[1][1:] == ["10.0 ms", "100.0 ms", "10.0x"]
    assert columns[3][1:] == ["1.0 us", "20.0 us", "20.0x"]
