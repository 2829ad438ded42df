"""A closure cell that is read and rebound: the residual writes to the cell."""

import torch


def make():
    total = 0

    def add(x):
        nonlocal total
        total += 1
        return x + total

    return add


program = make()


def calls():
    return [(torch.ones(2),)]
