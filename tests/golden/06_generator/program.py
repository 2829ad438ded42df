"""A generator that the program makes and consumes: it is interpreted, and leaves nothing behind."""

import torch


def parts(x):
    for number in range(3):
        yield x * number


def program(x):
    return sum(parts(x))


def calls():
    return [(torch.ones(2),)]
