"""Autocast: entered and left in the graph."""

import torch


def program(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
    return y.float() + 1


def calls():
    return [(torch.ones(2, 3), torch.ones(3, 2))]
