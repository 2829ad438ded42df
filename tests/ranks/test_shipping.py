"""One rank compiles, the others load: two processes with folders of Inductor of their own."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import stator
from stator import events
from stator.ranks import shipping
from tests.own_process import in_new_interpreters

MODULE = "tests.ranks.test_shipping"


def test_files_survive_packing() -> None:
    files = [("", b"bundle"), ("ab/kernel.so", b"\0" * 5), ("cd/é.so", b"")]
    assert shipping.unpacked(shipping.packed(files)) == files


def test_a_path_outside_the_folder_is_refused() -> None:
    for name in ("../a.so", "/a.so"):
        with pytest.raises(ValueError, match="another rank"):
            shipping.unpacked(shipping.packed([(name, b"")]))


def test_the_digest_is_that_of_the_content() -> None:
    def digest(fn: Any, *inputs: torch.Tensor) -> str:
        return shipping.digest_of(torch.fx.symbolic_trace(fn), inputs, "")
    one = digest(lambda x: x + 1, torch.ones(3))
    assert one == digest(lambda x: x + 1, torch.zeros(3))
    assert len({one, digest(lambda x: x + 2, torch.ones(3)), digest(lambda x: x + 1, torch.ones(4))}) == 3


def step(x: torch.Tensor) -> torch.Tensor:
    y = (x.sin() + x.cos()).softmax(-1)
    dist.all_reduce(y)
    return (y.exp() * x).sum()


def on_a_rank(rank: int, folder: str, shipped: bool) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor{rank}"
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    x = torch.arange(64.0).reshape(8, 8).div(64).requires_grad_()
    dist.barrier()
    begun = time.process_time()
    with stator.config.patch(compile_on_one_rank=shipped), events.record() as log:
        loss = stator.compile(step)(x)
        loss.backward()
    seconds = time.process_time() - begun + sum(os.times()[2:4])  # with those of g++
    wanted = torch.arange(64.0).reshape(8, 8).div(64).requires_grad_()
    step(wanted).backward()
    dist.barrier()
    libraries = [path.stat().st_mtime for path in Path(folder, f"inductor{rank}").glob("*/*.so")]
    result = {"equal": bool(torch.allclose(x.grad, wanted.grad)), "shipped": sum(  # type: ignore[arg-type]
        type(each) is shipping.GraphShipped for each in log), "seconds": seconds, "libraries": len(libraries),
        "compiled": sum(os.times()[2:4])}
    dist.destroy_process_group()
    return result


@pytest.mark.slow
def test_one_rank_compiles(tmp_path: Path) -> None:
    outputs = in_new_interpreters(*(["-m", MODULE, str(rank), str(tmp_path), "1"] for rank in range(2)))
    ranks = [json.loads(output.splitlines()[-1]) for output in outputs]
    assert all(rank["equal"] for rank in ranks)
    assert sorted(rank["shipped"] for rank in ranks)[0] == 0 < sorted(rank["shipped"] for rank in ranks)[1]
    assert ranks[0]["libraries"] == ranks[1]["libraries"] > 0


if __name__ == "__main__":
    print(json.dumps(on_a_rank(int(sys.argv[1]), sys.argv[2], sys.argv[3] == "1")))
