"""A context of grad mode: its switches are nodes of the graph."""

import torch


def program(x):
    with torch.no_grad():
        frozen = x * 2
    return frozen + x


def calls():
    return [(torch.ones(2, requires_grad=True),)]
