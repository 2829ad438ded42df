"""Decoding token by token around a compiled forward: a growing cache, a static cache, and `generate()` itself."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from families import FAMILIES, llama_of, tokens
from results import same

import stator

STEPS = 8
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    return llama_of(transformers)


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    stator.reset()


def decode(forward: Any, prompt: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
    """Greedy decoding, written out."""
    ids, step = prompt, prompt
    for _ in range(STEPS):
        out = forward(input_ids=step, past_key_values=cache, use_cache=True)
        step = out.logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, step], dim=1)
        cache = out.past_key_values
    return ids, cache


@torch.no_grad()
def test_dynamic_cache(model: Any) -> None:
    prompt = tokens(5)
    compiled = stator.compile(model, backend="eager", fullgraph=True)
    expected, cache = decode(model, prompt, transformers.DynamicCache(config=model.config))
    found, other = decode(compiled, prompt, transformers.DynamicCache(config=model.config))
    assert torch.equal(found, expected)
    same(cache, other, "cache")


@torch.no_grad()
def test_static_cache(model: Any) -> None:
    prompt = tokens(5)
    compiled = stator.compile(model, backend="eager", fullgraph=True)
    caches = [transformers.StaticCache(config=model.config, max_cache_len=16) for _ in range(2)]
    expected, cache = decode(model, prompt, caches[0])
    found, other = decode(compiled, prompt, caches[1])
    assert torch.equal(found, expected)
    same(cache, other, "cache")


@torch.no_grad()
def test_cache_of_two_calls_is_not_shared(model: Any) -> None:
    """The compiled forward writes to the cache it was given, and to no other."""
    prompt = tokens(5)
    compiled = stator.compile(model, backend="eager", fullgraph=True)
    for _ in range(2):
        mine, theirs = (transformers.DynamicCache(config=model.config) for _ in range(2))
        expected = model(input_ids=prompt, past_key_values=theirs)
        found = compiled(input_ids=prompt, past_key_values=mine)
        same(expected.logits, found.logits)
        assert found.past_key_values is mine
        same(theirs, mine, "cache")


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "t5", "qwen2", "bart", "mamba"])
def test_generate(name: str, cache: str) -> None:
    """transformers' own loop, with the forward compiled in place."""
    built = FAMILIES[name].make()
    model, again = built.model, copy.deepcopy(built.model)
    again.forward = stator.compile(again.forward, backend="eager", fullgraph=True)
    prompt = tokens(5)
    options: dict[str, Any] = dict(max_new_tokens=STEPS, do_sample=False, pad_token_id=0)
    if cache == "static":
        options["cache_implementation"] = "static"
    assert torch.equal(again.generate(prompt, **options), model.generate(prompt, **options))
