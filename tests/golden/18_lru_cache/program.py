"""A function under lru_cache: traced, and its cache is filled as a call would fill it."""

import functools

import torch


@functools.lru_cache
def scale(size):
    return size * 10


def program(x):
    return x + scale(x.dim()) + scale(x.dim())


def calls():
    return [(torch.ones(2),), (torch.ones(2),)]
