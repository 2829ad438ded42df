"""Broken programs around systems: settings that change, files, names, numbers for logs, disabled helpers."""

from __future__ import annotations

import math
import os
import tempfile
import time

import torch
from torch import nn

import stator
from tests.remedies.programs import Programs

programs = Programs()
METRICS = os.path.join(tempfile.gettempdir(), "stator-remedies-metrics.txt")


class Annealed(nn.Module):
    """A float attribute that a schedule changes between steps."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = 1.0
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        self.temperature *= 0.97
        return self.fc(x) / self.temperature


@programs
def annealed():
    torch.manual_seed(0)
    return Annealed(), [(torch.randn(2, 3),) for _ in range(4)]


def pooled(x, kind):
    """The way of pooling is read from a name of the request."""
    scale = len(kind)
    return x.mean(0) * scale


@programs
def request_names():
    return pooled, [(torch.ones(2, 3), f"request-{'x' * n}") for n in range(12)]


def varying_lengths(tokens):
    weights = torch.arange(tokens.shape[0], dtype=torch.float32)
    return (tokens * weights).sum()


@programs
def lengths():
    return varying_lengths, [(torch.ones(n),) for n in (5, 6, 7, 8)]


def write_metric(x):
    y = torch.relu(x) * 2
    with open(METRICS, "a") as stream:
        stream.write("step\n")
    return y + 1


@programs
def metric_file():
    torch.manual_seed(1)
    return write_metric, [(torch.randn(4),)]


@stator.disable
def debug_statistics(x):
    return float(x.abs().mean())


def block_with_debugging(x):
    y = torch.tanh(x) * 3
    debug_statistics(y)
    return y.sum(-1)


@programs
def disabled_debugging():
    torch.manual_seed(2)
    return block_with_debugging, [(torch.randn(2, 3),)]


def two_stage(x):
    y = x.softmax(-1)
    stator.graph_break()
    return y.cumsum(-1)


@programs
def explicit_break():
    torch.manual_seed(3)
    return two_stage, [(torch.randn(2, 3),)]


def rounded_scale(x):
    peak = round(x.abs().max().item(), 2)
    return x / (peak + 0.01)


@programs
def rounding():
    torch.manual_seed(4)
    return rounded_scale, [(torch.randn(4),), (torch.randn(4),)]


def power_of_two(x):
    exponent = math.ceil(math.log2(x.abs().max().item()))
    return x * 2.0 ** -exponent


@programs
def power_scale():
    torch.manual_seed(5)
    return power_of_two, [(torch.randn(4) * 5,), (torch.randn(4) * 50,)]


def ranked(scores):
    order = sorted(range(scores.shape[0]), key=lambda index: scores[index].item())
    return scores[order]


@programs
def ranking():
    torch.manual_seed(6)
    return ranked, [(torch.randn(5),), (torch.randn(5),)]


class Deadline(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.deadline = time.monotonic() + 10_000
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        y = self.fc(x)
        if time.monotonic() > self.deadline:
            return y
        return torch.relu(y) + y


@programs
def deadline():
    torch.manual_seed(7)
    return Deadline(), [(torch.randn(2, 3),)]
