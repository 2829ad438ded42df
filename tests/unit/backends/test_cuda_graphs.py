"""Backends that record CUDA graphs are told where each call begins; on the CPU they run what they compiled as it is."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.mutation_guard import GenerationTracker
from torch._inductor import compile_fx

import stator
from stator.backends.cuda_graphs import records_cuda_graphs
from stator.settings.options import build_settings


def program(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    stator.graph_break()
    return y + 1


@pytest.mark.parametrize(("backend", "counted"), [("cudagraphs", 1), ("aot_eager", 0)])
def test_each_call_begins_a_generation(backend: str, counted: int) -> None:
    compiled = stator.compile(program, backend=backend)
    x = torch.ones(3)
    compiled(x)
    before = GenerationTracker.generation
    for _ in range(4):
        assert torch.equal(compiled(x), program(x))
    assert GenerationTracker.generation - before == 4 * counted, "once a call, whatever breaks in it"


@pytest.mark.parametrize(("settings", "records"), [
    ({"backend": "cudagraphs"}, True), ({"backend": "eager"}, False), ({"backend": "inductor"}, False),
    ({"backend": "inductor", "mode": "reduce-overhead"}, True), ({"backend": "inductor", "mode": "max-autotune"}, True),
    ({"backend": "inductor", "mode": "max-autotune-no-cudagraphs"}, False),
    ({"backend": "inductor", "options": {"triton.cudagraphs": True}}, True), ({"backend": lambda gm, inputs: gm}, False),
])
def test_which_settings_record(settings: dict[str, object], records: bool) -> None:
    assert records_cuda_graphs(build_settings(**settings)) is records


@pytest.mark.shares_entries
def test_places_that_record_share_nothing() -> None:
    """A recording is for the addresses of one module."""
    made = []
    for _ in range(2):
        compiled = stator.compile(program, backend="cudagraphs")
        compiled(torch.ones(3))
        made.append(compiled.entries())
    assert all(len(entries) == 1 for entries in made) and made[0][0][1] is not made[1][0][1]


@pytest.mark.parametrize(("settings", "patches"), [
    ({}, {}), ({"mode": "default"}, {}),
    ({"mode": "max-autotune-no-cudagraphs"}, {"max_autotune": True, "coordinate_descent_tuning": True}),
    ({"options": {"max-fusion-size": 3, "trace.enabled": False}}, {"max_fusion_size": 3, "trace.enabled": False}),
])
def test_inductor_is_given_the_mode_and_the_options(settings: dict[str, object], patches: dict[str, object],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def compile(gm, inputs, config_patches):
        given.append(config_patches)
        return gm.forward

    monkeypatch.setattr(compile_fx, "compile_fx", compile)
    assert torch.equal(stator.compile(torch.sin, backend="inductor", **settings)(torch.ones(2)), torch.ones(2).sin())
    assert given == [patches]
