"""Broken programs around training: losses, clipping, guards against bad batches, schedules."""

from __future__ import annotations

import math
import time

import torch
from torch import nn
from torch.nn import functional as F

from tests.remedies.programs import Programs

programs = Programs()


class SkipBadBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 3)

    def forward(self, x, target):
        loss = F.cross_entropy(self.net(x), target)
        if not torch.isfinite(loss):
            loss = torch.zeros_like(loss)
        return loss * 2


@programs
def skip_bad_batch():
    torch.manual_seed(0)
    return SkipBadBatch(), [(torch.randn(4, 6), torch.randint(0, 3, (4,))) for _ in range(2)]


def clip_by_norm(grad: torch.Tensor, max_norm: float = 1.0) -> torch.Tensor:
    norm = grad.norm()
    if norm > max_norm:
        grad = grad * (max_norm / (norm + 1e-6))
    return grad


def step_with_clipping(weight, grad):
    grad = clip_by_norm(grad)
    return weight - 0.1 * grad


@programs
def clipped_step():
    torch.manual_seed(1)
    return step_with_clipping, [(torch.randn(5), torch.randn(5)), (torch.randn(5), torch.randn(5) * 0.01)]


class DynamicLossScale:
    def __init__(self) -> None:
        self.scale = torch.tensor(1024.0)

    def unscale(self, grad):
        overflow = torch.isinf(grad).any() or torch.isnan(grad).any()
        if overflow:
            self.scale = self.scale * 0.5
        else:
            self.scale = self.scale + 1.0
        return grad / self.scale


@programs
def dynamic_loss_scale():
    torch.manual_seed(2)
    scaler = DynamicLossScale()
    return scaler.unscale, [(torch.randn(4),), (torch.randn(4),)]


def warmup_scaled(x, step, warmup=10):
    """The learning rate ramps with the step tensor of the optimizer."""
    if step < warmup:
        rate = step / warmup
    else:
        rate = torch.rsqrt(step.float())
    return x * rate


@programs
def warmup_schedule():
    return warmup_scaled, [(torch.ones(3), torch.tensor(4.0)), (torch.ones(3), torch.tensor(40.0))]


class TimedBlock(nn.Module):
    """Measures its own forward pass, as many people do."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.last_ms = 0.0

    def forward(self, x):
        started = time.perf_counter()
        y = torch.relu(self.fc(x))
        self.last_ms = (time.perf_counter() - started) * 1000
        return y + x


@programs
def timed_block():
    torch.manual_seed(3)
    return TimedBlock(), [(torch.randn(2, 4),)]


def focal_loss(logits, target, gamma=2.0):
    probability = torch.sigmoid(logits)
    picked = torch.where(target > 0, probability, 1 - probability)
    loss = -((1 - picked) ** gamma) * picked.clamp_min(1e-6).log()
    if loss.mean().item() > 1.0:
        loss = loss / loss.mean()
    return loss.mean()


@programs
def focal():
    torch.manual_seed(4)
    return focal_loss, [(torch.randn(8), torch.randint(0, 2, (8,))), (torch.randn(8) * 9, torch.randint(0, 2, (8,)))]


def perplexity(logits, target):
    loss = F.cross_entropy(logits, target)
    value = math.exp(loss.item())
    return logits.softmax(-1) * value


@programs
def perplexity_of_batch():
    torch.manual_seed(5)
    return perplexity, [(torch.randn(4, 5), torch.randint(0, 5, (4,)))]


class PlateauEarlyStop:
    """Keeps the best loss as a number."""

    def __init__(self) -> None:
        self.best = float("inf")
        self.bad = 0

    def __call__(self, losses):
        mean = losses.mean().item()
        if mean < self.best:
            self.best = mean
            self.bad = 0
        else:
            self.bad += 1
        return losses - losses.min()


@programs
def plateau():
    torch.manual_seed(6)
    return PlateauEarlyStop(), [(torch.rand(5),), (torch.rand(5),)]


class GradientPenaltyMix(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Linear(4, 1)

    def forward(self, real, fake):
        gap = self.critic(real).mean() - self.critic(fake).mean()
        penalty = (real - fake).norm(dim=1).mean()
        weight = 10.0 if gap > 0 else 1.0
        return gap + weight * penalty


@programs
def gradient_penalty():
    torch.manual_seed(7)
    return GradientPenaltyMix(), [(torch.randn(3, 4), torch.randn(3, 4)), (-torch.randn(3, 4), torch.randn(3, 4))]


def ema_update(average, value, decay=0.9):
    count = int((value != 0).sum())
    adjusted = min(decay, (1 + count) / (10 + count))
    return average * adjusted + value * (1 - adjusted)


@programs
def ema():
    return ema_update, [(torch.zeros(6), torch.tensor([1.0, 0.0, 2.0, 0.0, 1.0, 3.0])), (torch.ones(6), torch.zeros(6))]
