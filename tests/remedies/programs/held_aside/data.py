"""Broken programs around data: masks, metrics, augmentation, normalisation, post-processing."""

from __future__ import annotations

import logging
import math
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.remedies.programs import Programs

programs = Programs()
log = logging.getLogger("remedies.data")


def normalise_image(image):
    if image.max() > 1.5:
        image = image / 255.0
    mean = image.mean((1, 2), keepdim=True)
    return (image - mean) / (image.std((1, 2), keepdim=True) + 1e-5)


@programs
def image_normalisation():
    torch.manual_seed(0)
    return normalise_image, [(torch.rand(3, 4, 4),), (torch.rand(3, 4, 4) * 255,)]


def random_flip(image):
    if random.random() < 0.5:
        image = image.flip(-1)
    return image * 2 - 1


@programs
def flip_augmentation():
    torch.manual_seed(1)
    random.seed(3)
    return random_flip, [(torch.rand(3, 4, 4),), (torch.rand(3, 4, 4),), (torch.rand(3, 4, 4),)]


def f1_score(predicted, target):
    hit = ((predicted == 1) & (target == 1)).sum().item()
    wrong = ((predicted == 1) & (target == 0)).sum().item()
    missed = ((predicted == 0) & (target == 1)).sum().item()
    if hit == 0:
        return torch.zeros(())
    return torch.tensor(2 * hit / (2 * hit + wrong + missed))


@programs
def f1_metric():
    return f1_score, [(torch.tensor([1, 0, 1, 1]), torch.tensor([1, 1, 0, 1])),
                      (torch.tensor([0, 0, 0, 0]), torch.tensor([1, 1, 0, 1]))]


def pad_or_trim(tokens, lengths):
    width = lengths.max()
    if width > tokens.shape[1] // 2:
        tokens = tokens + 1
    return tokens.float().mean(1)


@programs
def padding_choice():
    return pad_or_trim, [(torch.arange(12).view(2, 6), torch.tensor([2, 3])),
                         (torch.arange(12).view(2, 6), torch.tensor([2, 6]))]


def mel_to_db(power, floor=1e-10):
    reference = power.max().item()
    decibel = 10.0 * torch.log10(power.clamp_min(floor))
    return decibel - 10.0 * math.log10(max(floor, reference))


@programs
def decibels():
    torch.manual_seed(2)
    return mel_to_db, [(torch.rand(4, 6),), (torch.rand(4, 6) * 30,)]


class BoxDecoder(nn.Module):
    def forward(self, boxes, size):
        boxes = boxes.sigmoid()
        if (boxes[:, 2:] < boxes[:, :2]).any():
            boxes = torch.cat([torch.minimum(boxes[:, :2], boxes[:, 2:]), torch.maximum(boxes[:, :2], boxes[:, 2:])], 1)
        return boxes * size


@programs
def box_decoder():
    torch.manual_seed(3)
    ordered = torch.randn(4, 4).sort(1).values
    return BoxDecoder(), [(torch.randn(4, 4), torch.tensor(640.0)), (ordered, torch.tensor(640.0))]


def standardise_columns(table):
    columns = []
    for index in range(table.shape[1]):
        column = table[:, index]
        deviation = column.std()
        if deviation > 1e-6:
            column = (column - column.mean()) / deviation
        columns.append(column)
    return torch.stack(columns, 1)


@programs
def column_scaler():
    torch.manual_seed(4)
    table = torch.randn(5, 3)
    table[:, 1] = 2.0
    return standardise_columns, [(torch.randn(5, 3),), (table,)]


def log_histogram(activations):
    counts = np.histogram(activations.numpy(), bins=4)[0]
    return activations / float(counts.max())


@programs
def histogram():
    torch.manual_seed(5)
    return log_histogram, [(torch.randn(20),)]


def checked_ratio(numerator, denominator):
    total = denominator.sum()
    try:
        ratio = numerator.sum().item() / total.item()
    except ZeroDivisionError:
        ratio = 0.0
    return numerator * ratio


@programs
def ratio_with_fallback():
    torch.manual_seed(6)
    return checked_ratio, [(torch.rand(4), torch.rand(4)), (torch.rand(4), torch.zeros(4))]


class LoggedNorm(nn.Module):
    """Warns about large activations, and goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        peak = x.abs().max()
        if peak > 50:
            log.warning("large activation: %s", peak.item())
        return F.gelu(self.norm(x))


@programs
def logged_norm():
    torch.manual_seed(7)
    return LoggedNorm(), [(torch.randn(2, 4),), (torch.randn(2, 4) * 400,)]
