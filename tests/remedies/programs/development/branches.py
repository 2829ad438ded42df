"""Programs that branch on tensors."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from tests.remedies.programs import Programs

programs = Programs()


def sign_step(x):
    if x.sum() > 0:
        return x + 1
    else:
        return x - 1


@programs
def two_returns():
    return sign_step, [(torch.ones(3),), (-torch.ones(3),)]


def assign_either(x):
    if x.mean() > 0:
        y = x * 2
        z = y + 1
    else:
        y = x / 2
        z = y - 1
    return y + z


@programs
def two_assignments():
    return assign_either, [(torch.ones(3),)]


def nested_choice(x):
    if x.sum() > 10:
        x = x * 0.1
    elif x.sum() < -10:
        x = x * 0.2
    else:
        x = x * 0.5
    return x + 1


@programs
def elif_chain():
    return nested_choice, [(torch.ones(3),), (torch.ones(3) * 9,)]


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3)

    def forward(self, x):
        if x.abs().max() > 2.0:
            h = self.a(x)
        else:
            h = self.b(x)
        return torch.relu(h)


@programs
def expert_gate():
    torch.manual_seed(0)
    return Gate(), [(torch.ones(2, 3),), (torch.ones(2, 3) * 5,)]


def both_conditions(x, y):
    if (x > 0).all() and (y > 0).any():
        x = x + y
    return x * 2


@programs
def and_of_tensors():
    return both_conditions, [(torch.ones(3), torch.ones(3)), (-torch.ones(3), torch.ones(3))]


def negated(x):
    flag = not (x.sum() > 0)
    return x + 1 if flag else x


@programs
def not_of_tensor():
    return negated, [(torch.ones(3),), (-torch.ones(3),)]


def item_branch(x):
    total = x.sum().item()
    if total > 0.5:
        x = x / total
    return x


@programs
def branch_on_item():
    return item_branch, [(torch.ones(3),), (torch.zeros(3),)]


def bigger(x, y):
    best = max(x.sum(), y.sum())
    return x + best


@programs
def max_of_tensors():
    return bigger, [(torch.ones(3), torch.zeros(3)), (torch.zeros(3), torch.ones(3))]


def guard_zero(x):
    total = x.sum()
    if total == 0:
        return torch.zeros_like(x)
    return x / total


@programs
def zero_guard():
    return guard_zero, [(torch.ones(3),)]


def scaled_choice(x):
    factor = 2.0 if x.norm() > 1 else 0.5
    return x * factor


@programs
def choice_of_numbers():
    return scaled_choice, [(torch.ones(3),), (torch.ones(3) * 0.1,)]


class Momentum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("running", torch.zeros(3))

    def forward(self, x):
        if self.training and x.var() > 0.5:
            self.running.mul_(0.9).add_(x.mean(0) * 0.1)
        return x - self.running


@programs
def buffer_update():
    torch.manual_seed(1)
    return Momentum(), [(torch.randn(4, 3) * 3,), (torch.randn(4, 3) * 0.1,)]


def list_of_rows(x):
    rows = []
    for i in range(x.shape[0]):
        row = x[i]
        if row.sum() < 0:
            row = -row
        rows.append(row)
    return torch.stack(rows)


@programs
def loop_of_branches():
    torch.manual_seed(2)
    return list_of_rows, [(torch.randn(4, 3),)]


def soft_or_hard(logits, hard):
    probability = F.softmax(logits, -1)
    if hard.any():
        index = probability.argmax(-1)
        probability = F.one_hot(index, logits.shape[-1]).float()
    return probability * 2


@programs
def hard_samples():
    torch.manual_seed(3)
    return soft_or_hard, [(torch.randn(2, 4), torch.tensor([False, True])),
                          (torch.randn(2, 4), torch.tensor([False, False]))]


def until_small(x):
    while x.abs().max() > 1:
        x = x / 2
    return x + 1


@programs
def while_loop():
    return until_small, [(torch.ones(3) * 7,), (torch.ones(3) * 0.5,)]
