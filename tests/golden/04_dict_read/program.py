"""A read of an outside dict: the entries that were read are guarded, the others are not."""

import torch

CONFIG = {"scale": 3.0, "shift": 1, "unused": "anything"}


def program(x):
    if "missing" in CONFIG:
        return x
    return x * CONFIG["scale"] + CONFIG["shift"]


def calls():
    return [(torch.ones(2),)]
