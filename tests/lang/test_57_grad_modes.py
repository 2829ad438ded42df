"""Grad mode, requires_grad, detach, gradients of captured programs, autocast."""

import torch

from curriculum import call, case, ramp


def leaf(*shape, start=-1.0):
    return ramp(*shape, start=start).requires_grad_()


def leaves(n=1):
    return lambda: call(*(leaf(2, 3, start=-1.0 + i) for i in range(n)))


def frozen_and_leaf():
    return call(ramp(2, 3), leaf(2, 3))


@torch.no_grad()
def frozen_helper(x):
    return x * 2


@case(leaves(), lambda: call(leaf(4, 3)))
def gradient_flows(x):
    return (x * x).sum() + x.exp().mean()


@case(leaves(2), frozen_and_leaf)
def several_leaves(x, y):
    return x * y, (x + y).relu()


@case(leaves())
def no_grad_block(x):
    with torch.no_grad():
        y = x * 2
        inside = torch.is_grad_enabled()
    return y, x + y, inside, torch.is_grad_enabled()


@case(leaves())
def enable_grad_inside_no_grad(x):
    with torch.no_grad():
        with torch.enable_grad():
            y = x * 2
        z = x * 3
    return y, z, y.requires_grad, z.requires_grad


@case(leaves())
def decorators(x):
    @torch.enable_grad()
    def live(v):
        return v + 1

    return frozen_helper(x), live(x), frozen_helper(x).requires_grad


@case(leaves())
def set_grad_enabled(x):
    with torch.set_grad_enabled(False):
        y = x + 1
    with torch.set_grad_enabled(True):
        z = x + 2
    return y.requires_grad, z


@case(leaves())
def grad_mode_is_left_changed(x):
    y = x * 2
    torch.set_grad_enabled(False)
    return y, x * 3


@case(leaves())
def detach(x):
    y = x.detach() * x
    return y, x.detach(), y.requires_grad


@case(leaves(), lambda: call(ramp(2, 3)))
def branch_on_requires_grad(x):
    if x.requires_grad and torch.is_grad_enabled():
        return x * 2
    return x * 3


@case(leaves())
def exception_inside_no_grad(x):
    y = x + 1
    with torch.no_grad():
        raise ValueError("inside")


@case(leaves())
def non_leaf_properties(x):
    y = x * 2
    return x.is_leaf, y.is_leaf, y.requires_grad, y.grad_fn is not None, y.detach().is_leaf, y


@case(leaves())
def in_place_under_no_grad(x):
    with torch.no_grad():
        x.mul_(2)
    return x + 1


@case(leaves())
def view_keeps_the_graph(x):
    y = x.view(-1)[1:4]
    return y * 2, y.sum()


@case(call(ramp(2, 3)))
def no_grad_with_early_return(x):
    for i in range(3):
        with torch.no_grad():
            if i == 1:
                return x * i, torch.is_grad_enabled()


@case(call(ramp(2, 3), ramp(3, 2)))
def autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y
        inside = torch.is_autocast_enabled("cpu")
    return z, z.dtype, inside, torch.is_autocast_enabled("cpu")


@case(call(ramp(2, 3)))
def inference_mode_query(x):
    return x + 1, torch.is_inference_mode_enabled(), torch.is_grad_enabled()
