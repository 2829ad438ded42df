"""fully_shard in one process: its hooks are nodes, not breaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = """
import sys
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState
import stator
from stator import events
from tests.ranks.training import CONTEXT, GPT, WORDS

begin_forward = FSDPState._root_pre_forward

def begin_as_on_a_gpu(state, module, args, kwargs):
    assert args or kwargs, "torch 2.11 takes the first of them where it moves them to the device"
    return begin_forward(state, module, args, kwargs)

FSDPState._root_pre_forward = begin_as_on_a_gpu
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

def losses(compile):
    torch.manual_seed(0)
    model = GPT()
    for block in model.blocks:
        fully_shard(block)
    model = compile(fully_shard(model))
    optimiser, found = torch.optim.SGD(model.parameters(), lr=0.1), []
    for step in range(3):
        ids = torch.randint(WORDS, (2, CONTEXT + 1), generator=torch.Generator().manual_seed(step))
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        with torch.no_grad():
            found += [loss.item(), model(ids[:, :-1]).sum().item()]
    return found

eager = losses(lambda model: model)
with events.record() as log:
    compiled = losses(lambda model: stator.compile(model, backend=sys.argv[1], fullgraph=True))
assert eager == compiled, (eager, compiled)
graphs = [event.graph for event in log if isinstance(event, events.CaptureFinished)]
names = [getattr(node.target, "__name__", "") for node in graphs[0].graph.nodes]
assert len(graphs) == 2 and names.count("unshard") == names.count("reshard") == 3, names
"""


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_blocks_in_one_graph(backend: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, str(script), backend], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True,
                   timeout=300)
