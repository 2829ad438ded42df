"""Inner graphs: what the outer graph knows is handed in; a tensor that nobody recorded is no more known than outside."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from stator.breaks import Break
from stator.graph.record.recorder import Recorder
from stator.graph.record.subgraph import Subgraph
from stator.source import Local


def test_only_what_the_outer_graph_knows_is_handed_in() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    recorder = Recorder(mode)
    known = recorder.add_input(torch.ones(2), Local("x", 0))
    stranger = mode.from_tensor(torch.ones(2))
    recorder.kept.append(stranger)
    with Subgraph(recorder) as part:
        assert recorder.node_of(known).graph is part.graph
        with pytest.raises(Break, match="SB005"):
            recorder.node_of(stranger)
    assert part.lifted == [known]
    with pytest.raises(Break, match="SB005"):
        recorder.node_of(stranger)
