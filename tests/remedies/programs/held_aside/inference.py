"""Broken programs around inference: sampling, beam search, early exits, caches, routing."""

from __future__ import annotations

import math
import random
import time

import torch
from torch import nn
from torch.nn import functional as F

from tests.remedies.programs import Programs

programs = Programs()


def sample_token(logits, temperature):
    """Greedy at temperature 0, as servers do it."""
    if temperature == 0:
        scores = logits * 100.0
    else:
        scores = logits / temperature
    return scores.softmax(-1)


@programs
def temperature_sampling():
    torch.manual_seed(0)
    return sample_token, [(torch.randn(2, 8), torch.tensor(0.7)), (torch.randn(2, 8), torch.tensor(0.0))]


def repetition_penalty(logits, history, penalty=1.2):
    for row in range(logits.shape[0]):
        score = logits[row, history[row]]
        if score < 0:
            logits[row, history[row]] = score * penalty
        else:
            logits[row, history[row]] = score / penalty
    return logits.log_softmax(-1)


@programs
def penalised_logits():
    torch.manual_seed(1)
    return repetition_penalty, [(torch.randn(3, 6), torch.tensor([1, 2, 5]))]


class EarlyExit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.second = nn.Linear(5, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        confidence = self.head(hidden).softmax(-1).max()
        if confidence > 0.6:
            return self.head(hidden)
        hidden = torch.tanh(self.second(hidden))
        return self.head(hidden)


@programs
def early_exit():
    torch.manual_seed(2)
    return EarlyExit().eval(), [(torch.randn(2, 5),), (torch.randn(2, 5) * 20,)]


def beam_step(scores, logits, eos=0):
    total = scores[:, None] + logits.log_softmax(-1)
    best, index = total.view(-1).topk(scores.shape[0])
    tokens = index % logits.shape[-1]
    finished = tokens == eos
    if finished.all():
        best = best + 1000.0
    return best, tokens, finished


@programs
def beam_search_step():
    torch.manual_seed(3)
    sure = torch.full((3, 7), -9.0)
    sure[:, 0] = 9.0
    return beam_step, [(torch.zeros(3), torch.randn(3, 7)), (torch.zeros(3), sure)]


class TopOneRouter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 2)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        choice = self.gate(x.mean(0)).argmax()
        if choice == 0:
            return self.experts[0](x)
        return self.experts[1](x)


@programs
def top_one_router():
    torch.manual_seed(4)
    return TopOneRouter().eval(), [(torch.randn(3, 4),), (torch.randn(3, 4) * 5,), (-torch.randn(3, 4) * 5,)]


class LengthBucket(nn.Module):
    """Scales attention by the length of the longest row of a mask."""

    def forward(self, scores, mask):
        longest = int(mask.sum(1).max())
        scaled = scores / math.sqrt(longest)
        return scaled.masked_fill(mask == 0, -1e4).softmax(-1)


@programs
def length_bucket():
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    torch.manual_seed(5)
    return LengthBucket(), [(torch.randn(2, 4), mask), (torch.randn(2, 4), torch.ones(2, 4, dtype=torch.long))]


class LayerDrop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            if random.random() < 0.3:
                continue
            x = x + torch.relu(layer(x))
        return x


@programs
def layer_drop():
    torch.manual_seed(6)
    random.seed(6)
    return LayerDrop(), [(torch.randn(2, 4),), (torch.randn(2, 4),)]


def speculative_accept(draft, target):
    ratio = (target / draft).clamp(max=1.0)
    accepted = ratio > 0.5
    kept = accepted.long().cumprod(0).sum()
    return draft * 0.5 + target if kept > 1 else target - draft


@programs
def speculative():
    torch.manual_seed(7)
    return speculative_accept, [(torch.rand(5) + 0.1, torch.rand(5)), (torch.rand(5) + 0.1, torch.rand(5) * 5 + 2)]


def stamp_request(x):
    y = F.layer_norm(x, x.shape[-1:])
    stamp = time.time()
    return {"output": y * 2, "at": stamp}


@programs
def stamped_request():
    torch.manual_seed(8)
    return stamp_request, [(torch.randn(2, 4),)]


class CachePruner(nn.Module):
    def __init__(self, limit: float = 4.0) -> None:
        super().__init__()
        self.limit = limit
        self.register_buffer("used", torch.zeros(()))

    def forward(self, keys):
        self.used += keys.abs().mean()
        if self.used > self.limit:
            self.used.zero_()
            keys = keys * 0.5
        return keys + self.used


@programs
def cache_pruner():
    torch.manual_seed(9)
    return CachePruner(), [(torch.randn(3, 4),), (torch.randn(3, 4) * 9,), (torch.randn(3, 4),)]
