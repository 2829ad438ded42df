"""Programs with effects, impure reads and values that change."""

from __future__ import annotations

import logging
import os
import tempfile
import time

import torch
from torch import nn

import stator
from tests.remedies.programs import Programs

programs = Programs()
log = logging.getLogger("remedies.effects")
FILE = os.path.join(tempfile.gettempdir(), "stator-remedies-log.txt")
STEP = 0


def timed(x):
    begin = time.time()
    y = torch.relu(x) + 1
    log.debug("took %.3f", time.time() - begin)
    return y


@programs
def timing():
    return timed, [(torch.ones(3),)]


def stamped(x):
    y = x * 2
    return y, time.time()


@programs
def time_returned():
    return stamped, [(torch.ones(3),)]


def logged_to_file(x):
    y = torch.exp(x)
    with open(FILE, "a") as stream:
        stream.write(f"{y.mean().item():.2f}\n")
    return y.log()


@programs
def file_log():
    return logged_to_file, [(torch.ones(3),)]


@stator.disable
def probe(x):
    return x.mean().item()


def probed(x):
    y = x * 3
    probe(y)
    return y + 1


@programs
def disabled_probe():
    return probed, [(torch.ones(3),)]


def broken_by_hand(x):
    x = x + 1
    stator.graph_break()
    return x * 2


@programs
def graph_break_by_hand():
    return broken_by_hand, [(torch.ones(3),)]


class Scheduled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rate = 0.1
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(x) * self.rate


def scheduled_step(model, x, rate):
    model.rate = rate
    return model(x)


@programs
def float_attribute():
    torch.manual_seed(0)
    model = Scheduled()
    return scheduled_step, [(model, torch.ones(2, 3), 0.1 * n) for n in range(1, 5)]


def batch_sizes(x):
    return x - x.mean(0)


@programs
def varying_batch():
    return batch_sizes, [(torch.ones(n, 3),) for n in (2, 3, 4, 5)]


def named(x, name):
    return x * (1.0 if name.startswith("train") else 0.5)


@programs
def names_of_calls():
    return named, [(torch.ones(3), f"train-{n}") for n in range(12)]


def warn_when_large(x):
    if x.abs().max() > 100:
        print("large value", x.abs().max().item())
    return x * 2


@programs
def conditional_print():
    return warn_when_large, [(torch.ones(3),), (torch.ones(3) * 1000,)]


def counted(x):
    global STEP
    STEP += 1
    return x * STEP


@programs
def global_counter():
    return counted, [(torch.ones(3),) for _ in range(4)]


def address(x, seen):
    if x.data_ptr() in seen:
        return x
    return x + 1


@programs
def pointer_set():
    return address, [(torch.ones(3), set())]


def environment(x):
    y = x + 1
    os.environ["STATOR_REMEDY"] = "1"
    return y * 2


@programs
def environment_write():
    return environment, [(torch.ones(3),)]
