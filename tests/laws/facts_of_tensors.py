"""Probes: facts about tensors outside: shape, memory, gradient and attributes, each changed between calls."""

from __future__ import annotations

from typing import Any

import torch
from probing import Scene, probe, ramp
from scenery import linear, one
from torch import nn


@probe()
def shape_changed():
    xs = [ramp()]
    return Scene(lambda x: x * x.shape[0], lambda: (xs[0],), lambda: xs.__setitem__(0, ramp(6)))


@probe()
def branch_on_an_open_size():
    sizes = [4, 4, 6, 3]
    return Scene(lambda x: x * 2 if x.shape[0] > 5 else x * 3, lambda: (ramp(sizes.pop(0)),))


@probe()
def dtype_changed():
    xs = [ramp()]
    return Scene(lambda x: x * 2 if x.dtype is torch.float32 else x * 3, lambda: (xs[0],),
                 lambda: xs.__setitem__(0, ramp().double()))


@probe()
def stride_changed():
    xs = [ramp(6).reshape(2, 3)]
    return Scene(lambda x: x.stride()[0] * x, lambda: (xs[0],), lambda: xs.__setitem__(0, ramp(6).reshape(3, 2).t()))


@probe()
def storage_offset_changed():
    xs = [ramp(8)[:4]]
    return Scene(lambda x: x * x.storage_offset(), lambda: (xs[0],), lambda: xs.__setitem__(0, ramp(8)[4:]))


@probe()
def contiguity_asked():
    xs = [torch.ones(2, 2)]
    return Scene(lambda x: x * 2 if x.is_contiguous() else x * 3, lambda: (xs[0],),
                 lambda: xs.__setitem__(0, torch.ones(2, 2).t()[:, :1]))


@probe()
def parameter_or_tensor():
    xs = [ramp()]
    return Scene(lambda x: x * 2 if isinstance(x, nn.Parameter) else x * 3, lambda: (xs[0],),
                 lambda: xs.__setitem__(0, nn.Parameter(ramp())))


@probe()
def tensor_or_number():
    xs: list[Any] = [ramp()]
    return Scene(lambda x: x * 2, lambda: (xs[0],), lambda: xs.__setitem__(0, 3))


@probe()
def leaf_or_not():
    xs = [ramp(grad=True)]
    return Scene(lambda x: x * 2 if x.is_leaf else x * 3, lambda: (xs[0],), lambda: xs.__setitem__(0, ramp(grad=True) * 1))


@probe("SB005 SB016")
def grad_fn_asked():
    xs = [ramp(grad=True)]
    return Scene(lambda x: x * 2 if x.grad_fn is None else x * 3, lambda: (xs[0],), lambda: xs.__setitem__(0, ramp(grad=True) * 1))


@probe()
def one_tensor_passed_twice():
    first, second = ramp(), ramp()
    pair = [first, second]

    def fn(a, b):
        a.add_(1)
        return b * 2, a is b

    return Scene(fn, lambda: tuple(pair), lambda: pair.__setitem__(1, first))


@probe()
def two_tensors_after_one_twice():
    first, second = ramp(), ramp()
    pair = [first, first]

    def fn(a, b):
        a.add_(1)
        return b * 2, a is b

    return Scene(fn, lambda: tuple(pair), lambda: pair.__setitem__(1, second))


@probe()
def overlapping_views():
    base = ramp(6)
    pair = [ramp(4), ramp(4)]

    def change():
        pair[0], pair[1] = base[:4], base[2:]

    def fn(a, b):
        a.mul_(2)
        return a + b

    return Scene(fn, lambda: tuple(pair), change, lambda: base)


@probe()
def view_of_an_input_changed_in_place():
    x = ramp(6)

    def fn(x):
        view = x[2:]
        view.add_(1)
        x.mul_(2)
        return view, x, view.sum()

    return Scene(fn, one(x), lambda: x.zero_())


@probe()
def views_returned():
    x = ramp(6)
    return Scene(lambda x: (x, x[1:], x.view(2, 3), x.t()), one(x))


@probe()
def in_place_on_a_leaf_under_no_grad():
    model = linear()

    def fn(x):
        with torch.no_grad():
            model.weight.mul_(2)
        return model(x)

    return Scene(fn, one(ramp()), lambda: model.weight.data.zero_(), lambda: list(model.parameters()))


@probe("raises")
def in_place_on_a_leaf_that_requires_grad():
    return Scene(lambda x: x.mul_(2), one(ramp(grad=True)))


@probe()
def detached_shares_memory():
    x = ramp(grad=True)

    def fn(x):
        y = x.detach()
        y.add_(1)
        return y, x * 2

    return Scene(fn, one(x))


@probe()
def data_read():
    x = ramp(grad=True)
    return Scene(lambda x: (x.data * 2, x.data.requires_grad), one(x), lambda: setattr(x, "data", torch.ones(4)))


@probe()
def data_read_and_changed():
    x = ramp(grad=True)

    def fn(x):
        x.data.mul_(2)
        return x * 3

    return Scene(fn, one(x), look=lambda: x)


@probe("SB005 SB006")
def data_assigned():
    x = ramp()

    def fn(x):
        y = x * 2
        x.data = x.data * 5
        return y, x + 1

    return Scene(fn, one(x), look=lambda: x)


@probe()
def grad_read():
    x = ramp(grad=True)

    def change():
        x.grad = torch.ones(4)

    return Scene(lambda x: x * 2 if x.grad is None else x.grad * 3, one(x), change, lambda: x.grad)


@probe()
def grad_assigned():
    x = ramp(grad=True)

    def fn(x):
        y = x * 2 if x.grad is None else x.grad * 3
        x.grad = torch.ones(4)
        return y, x.grad

    return Scene(fn, one(x), lambda: setattr(x, "grad", None), lambda: x.grad)


@probe()
def grad_changed_in_place():
    x = ramp(grad=True)
    x.grad = torch.ones(4)

    def fn(x):
        x.grad.zero_()
        return x * 2

    return Scene(fn, one(x), lambda: x.grad.fill_(4), lambda: x.grad)


@probe("SB005 SB006 SB016")
def requires_grad_set_inside():
    x = ramp()

    def fn(x):
        y = x * 2
        x.requires_grad_(True)
        return y, x * 3

    return Scene(fn, one(x), lambda: x.requires_grad_(False), lambda: x)


@probe("SB005 SB006 SB016")
def requires_grad_assigned_inside():
    x = ramp()

    def fn(x):
        x.requires_grad = not x.requires_grad
        return x * 3

    return Scene(fn, one(x), look=lambda: x)


@probe("SB005 SB006 SB016")
def requires_grad_of_a_fresh_tensor():
    def fn(x):
        y = torch.ones(4, requires_grad=True)
        z = torch.zeros(4).requires_grad_()
        return y * x, z, z * 2

    return Scene(fn, one(ramp()))


@probe()
def attribute_of_a_tensor():
    x = ramp()
    x.k = 2
    return Scene(lambda x: x * x.k, one(x), lambda: setattr(x, "k", 3))


@probe()
def attribute_of_a_tensor_that_appears():
    x = ramp()
    return Scene(lambda x: x * getattr(x, "k", 5), one(x), lambda: setattr(x, "k", 3))


@probe("SB006")
def attribute_set_on_a_tensor():
    x = ramp()

    def fn(x):
        before = getattr(x, "k", 0)
        x.k = before + 1
        return x * x.k

    return Scene(fn, one(x), lambda: setattr(x, "k", 30), lambda: x.__dict__)


@probe()
def attribute_set_on_a_fresh_tensor():
    def fn(x):
        y = x * 2
        y.tag = ["made", x.shape[0]]
        return y, y.tag

    return Scene(fn, one(ramp()))


@probe("SB016 SB001 SB005")
def hook_registered_on_a_tensor():
    x = ramp(grad=True)
    seen: list[Any] = []

    def fn(x):
        y = x * 2
        y.register_hook(lambda g: seen.append(1))
        return y

    return Scene(fn, one(x), look=lambda: list(seen))


@probe()
def inference_tensor_or_not():
    xs = [ramp()]

    def change():
        with torch.inference_mode():
            xs[0] = ramp() * 1

    return Scene(lambda x: x * 2 if x.is_inference() else x * 3, lambda: (xs[0],), change)


@probe("SB005 SB001 SB013")
def version_counter_read():
    x = ramp()
    return Scene(lambda x: x * x._version, one(x), lambda: x.add_(1))


@probe("SB005 SB001 SB013")
def data_pointer_read():
    xs = [ramp()]
    keep = list(xs)
    return Scene(lambda x: x * (x.data_ptr() == xs[0].data_ptr()), lambda: (keep[0],), lambda: xs.__setitem__(0, ramp()))


@probe("SB003 SB005 SB017")
def tensor_subclass():
    class Tagged(torch.Tensor):
        pass

    xs = [ramp()]
    seen: list[Any] = []

    def fn(x):
        y = x * 2
        seen.append((type(y).__name__, y.tolist()))
        return y.sum().item()

    return Scene(lambda _: fn(xs[0]), one(ramp()), lambda: xs.__setitem__(0, ramp().as_subclass(Tagged)), lambda: list(seen))
