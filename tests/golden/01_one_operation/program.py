"""One tensor operation: one node, guards on the tensor, a residual that calls the graph."""

import torch


def program(x):
    return x + 1


def calls():
    return [(torch.ones(2),)]
