"""torch.distributions with validation: the checks are assertions of the graph, and what they raise is eager's."""

from __future__ import annotations

import pytest
import torch
from torch import distributions

import stator
from tests.torch_api.beside_eager import BACKENDS, check, values


@pytest.fixture(autouse=True)
def validating(monkeypatch):
    """torch.cond, run eagerly, starts torch's own compiler, which turns validation off for the whole process."""
    monkeypatch.setattr(distributions.Distribution, "_validate_args", True)


def normal(log):
    def program(mean, scale):
        made = distributions.Normal(mean, scale.abs() + 1)
        drawn = made.rsample()
        return made.log_prob(drawn).sum() + made.entropy().sum() + made.sample().sum()
    return program, values(7, (3,), (3,))


def divergence(log):
    def program(mean, scale):
        return distributions.kl_divergence(distributions.Normal(mean, scale.abs() + 1),
                                           distributions.Normal(mean * 0, 1.0)).sum()
    return program, values(7, (3,), (3,))


def categorical(log):
    def program(logits):
        made = distributions.Categorical(logits=logits)
        other = distributions.Categorical(probs=logits.softmax(-1))
        return made.log_prob(other.sample()).sum() + made.entropy().sum() + other.probs.sum()
    return program, values()


def bernoulli(log):
    def program(logits):
        made = distributions.Independent(distributions.Bernoulli(logits=logits), 1)
        return made.log_prob(made.sample()).sum()
    return program, values()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [normal, divergence, categorical, bernoulli])
def test_captured(make, backend):
    check(make, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_invalid_parameters_raise_what_eager_raises(backend):
    def program(scale):
        noise = torch.randn(3)
        return distributions.Normal(noise, scale).log_prob(noise).sum()

    compiled = stator.compile(program, backend=backend, fullgraph=True)
    assert torch.isfinite(compiled(torch.ones(3)))
    told = []
    for function in (program, compiled):
        torch.manual_seed(3)
        with pytest.raises(ValueError) as caught:
            function(torch.tensor([1.0, -1.0, 2.0]))
        told.append((str(caught.value), torch.rand(())))
    assert told[0] == told[1]
    assert "invalid values:\ntensor([ 1., -1.,  2.])" in told[0][0]


def test_a_check_after_a_write():
    """Writes of the graph are undone before the program itself finds out which error to raise."""
    def program(x, kept):
        kept.add_(1)
        if not (x > 0).all():
            raise ValueError(f"not positive: {x}")
        return x * 2

    def outcome(function, x):
        kept = torch.zeros(3)
        try:
            return function(x, kept).tolist(), kept.tolist()
        except ValueError as error:
            return str(error), kept.tolist()

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        assert outcome(compiled, x) == outcome(program, x)
