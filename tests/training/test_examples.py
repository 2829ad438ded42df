"""Train steps of well-known examples beside eager; `python -m tests.training.examples` runs all of them over 20 steps."""

from __future__ import annotations

import pytest

from tests.torch_api.side_by_side import Make, compare
from tests.training.example_methods import (
    actor_critic,
    boltzmann_machine,
    domain_adaptation,
    maml,
    wgan_with_penalty,
    word2vec_with_sparse_gradients,
)
from tests.training.example_networks import dcgan, word_language_model
from tests.training.examples import EXAMPLES, TOLERANCE
from tests.training.fuzz import run_seed

QUICK = [dcgan, word_language_model, actor_critic, maml, wgan_with_penalty, domain_adaptation]


@pytest.mark.parametrize("make", QUICK, ids=lambda make: make.__name__)
def test_whole_steps(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    assert compare(make, 2).causes == []


@pytest.mark.parametrize("make", [boltzmann_machine, word2vec_with_sparse_gradients], ids=lambda make: make.__name__)
def test_graphs_without_a_content_key(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view that a write has spoilt, a sparse tensor: such graphs are compiled for themselves."""
    monkeypatch.setenv("STATOR_STRICT", "1")
    compare(make, 1, "aot_eager", TOLERANCE["aot_eager"])


@pytest.mark.slow  # a minute for each backend
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", EXAMPLES, ids=lambda make: make.__name__)
def test_equal_to_eager(make: Make, backend: str) -> None:
    compare(make, 5, backend, TOLERANCE[backend])


@pytest.mark.parametrize("seed", range(2))
def test_random_steps(seed: int) -> None:
    verdict, details = run_seed(seed, "eager", calls=3)
    assert verdict in ("whole", "broken"), details
