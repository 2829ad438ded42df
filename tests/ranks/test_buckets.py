"""Graphs of modules in DDP are cut where buckets of the reducer end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

import stator

LAYER = 4 * (8 * 8 + 8)  # bytes of its parameters


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    stator.reset()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def alone(state, bucket):  # type: ignore[no-untyped-def]  # DDP reads annotations, which are texts here
    """A hook that reduces nothing."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def in_buckets(model: nn.Module, count: int) -> DistributedDataParallel:
    """DDP with buckets of so many layers."""
    wrapped = DistributedDataParallel(model, bucket_cap_mb=count * LAYER / 2 ** 20)  # type: ignore[arg-type]
    wrapped.register_comm_hook(None, alone)  # type: ignore[no-untyped-call]
    return wrapped


def layers(count: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[each for _ in range(count) for each in (nn.Linear(8, 8), nn.Tanh())])


def backward_passes(result: torch.Tensor) -> int:
    """Compiled nodes behind a result."""
    found, pending = set(), [result.grad_fn]
    while pending:
        node: Any = pending.pop()
        if node is not None and node not in found:
            found.add(node)
            pending += [each for each, _ in node.next_functions]
    return sum("CompiledFunction" in node.name() for node in found)


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("a_bucket", [1, 2, 6])
def test_one_backward_pass_for_each_bucket(outside: bool, a_bucket: int) -> None:
    model, wanted = layers(6), layers(6)
    if outside:
        compiled = stator.compile(in_buckets(model, a_bucket), backend="aot_eager")
    else:
        compiled = in_buckets(stator.compile(model, backend="aot_eager"), a_bucket)
    for x in torch.randn(3, 4, 8):
        result, expected = compiled(x), wanted(x)
        assert torch.equal(result, expected)
        assert backward_passes(result) == 6 // a_bucket
        result.sum().backward()
        expected.sum().backward()
    for mine, other in zip(model.parameters(), wanted.parameters(), strict=True):
        assert torch.equal(mine.grad, other.grad)  # type: ignore[arg-type]


def test_a_tied_weight_belongs_to_its_first_use() -> None:
    model = layers(4)
    model[6].weight = model[0].weight
    compiled = stator.compile(in_buckets(model, 1), backend="aot_eager")
    result = compiled(torch.randn(4, 8))
    assert backward_passes(result) == 3  # the last bias alone fills no bucket
    result.sum().backward()
    assert all(each.grad is not None for each in model.parameters())


def test_the_setting_turns_it_off() -> None:
    with stator.config.patch(optimize_ddp=False):
        compiled = stator.compile(in_buckets(layers(6), 1), backend="aot_eager")
        assert backward_passes(compiled(torch.randn(4, 8))) == 1
