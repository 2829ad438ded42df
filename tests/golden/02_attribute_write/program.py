"""A write to an attribute of an outside object: traced on a stand-in, written back by the residual."""

import torch


class Counter:
    def __init__(self):
        self.calls = 0


COUNTER = Counter()


def program(x):
    COUNTER.calls += 1
    COUNTER.last = x * 2
    return COUNTER.last + COUNTER.calls


def calls():
    return [(torch.ones(2),)]
