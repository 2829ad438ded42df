"""Programs that take numbers out of tensors."""

from __future__ import annotations

import copy
import math
import random

import numpy as np
import torch

from tests.remedies.programs import Programs

programs = Programs()


def root_of_item(x):
    value = float(x.sum())
    return x * math.sqrt(abs(value))


@programs
def math_sqrt():
    return root_of_item, [(torch.ones(3),), (torch.ones(3) * 3,)]


def exponent(x):
    return x * math.exp(-x.mean().item())


@programs
def math_exp():
    return exponent, [(torch.ones(3),), (torch.ones(3) * 3,)]


def clamp_number(x):
    top = math.log(max(1e-6, x.max().item()))
    return x.clamp(max=top)


@programs
def min_of_item():
    return clamp_number, [(torch.ones(3) * 3,), (torch.ones(3) * 0.3,)]


def rounded(x):
    return x - round(x.mean().item(), 1)


@programs
def round_of_item():
    torch.manual_seed(0)
    return rounded, [(torch.randn(4),), (torch.randn(4),)]


def exponent_added(x):
    bucket = math.frexp(x.max().item())[1]
    return x + bucket


@programs
def frexp_of_item():
    return exponent_added, [(torch.tensor([1.0, 5.5]),), (torch.tensor([1.0, 9.5]),)]


def as_numpy(x):
    edges = np.histogram_bin_edges(x.numpy(), bins=3)
    return x / float(edges[1])


@programs
def numpy_edges():
    torch.manual_seed(1)
    return as_numpy, [(torch.rand(10),)]


def random_scale(x):
    if random.random() > 0.5:
        return x * 2
    return x


@programs
def coin():
    random.seed(1)
    return random_scale, [(torch.ones(3),), (torch.ones(3),)]


def noise_scale(x):
    level = random.gauss(0.0, 1.0)
    if level > 0:
        x = x * 2
    return x


@programs
def random_gauss():
    random.seed(2)
    return noise_scale, [(torch.ones(3),), (torch.ones(3),)]


def sorted_values(x):
    values = sorted(x.tolist())
    return torch.tensor(values) + x


@programs
def sort_of_list():
    torch.manual_seed(2)
    return sorted_values, [(torch.randn(4),)]


def count_positive(x):
    count = 0
    for value in x:
        if value > 0:
            count += 1
    return x * count


@programs
def counting_loop():
    torch.manual_seed(3)
    return count_positive, [(torch.randn(4),), (torch.randn(4),)]


def stateful_best(state, x):
    value = x.mean().item()
    if value > state["best"]:
        state["best"] = value
    return x - value


@programs
def best_in_dict():
    torch.manual_seed(4)
    return stateful_best, [({"best": -1.0}, torch.randn(4)), ({"best": 5.0}, torch.randn(4))]


def smooth_rate(x, step):
    progress = step.sum().item() / 100
    rate = 0.5 * (1 + math.tanh(progress) * math.erf(progress))
    return x * rate


@programs
def smooth_schedule():
    return smooth_rate, [(torch.ones(3), torch.tensor([3.0])), (torch.ones(3), torch.tensor([50.0]))]


def is_close_number(x, y):
    if math.isclose(x.sum().item(), y.sum().item(), rel_tol=1e-3):
        return x
    return x + y


@programs
def isclose():
    return is_close_number, [(torch.ones(3), torch.ones(3)), (torch.ones(3), torch.zeros(3))]


def deep(x, table):
    table = copy.deepcopy(table)
    peak = table["scale"].max()
    if peak > 1:
        table["scale"] = table["scale"] / peak
    return x * table["scale"]


@programs
def copied_table():
    return deep, [(torch.ones(3), {"scale": torch.tensor([1.0, 2.0, 4.0])})]
