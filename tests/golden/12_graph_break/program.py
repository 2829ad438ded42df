"""A call that cannot be captured: a graph before it, the call itself, and a resume function after it."""

import syslog

import torch


def program(x):
    y = x + 1
    mask = syslog.LOG_MASK(3)  # a C function without a row in the native table
    return y * mask


def calls():
    return [(torch.ones(2),)]
