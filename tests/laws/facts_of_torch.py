"""Probes: facts about tensors, modules and torch's global state, each changed between calls."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from probing import Scene, probe, ramp
from torch import nn
from torch.overrides import TorchFunctionMode


def one(x: torch.Tensor) -> Any:
    return lambda: (x,)


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 4)


# ---------------------------------------------------------------------- modules


@probe()
def parameter_replaced():
    model = linear()
    return Scene(lambda x: model(x), one(ramp()), lambda: setattr(model, "weight", nn.Parameter(torch.ones(4, 4))))


@probe()
def parameter_of_another_shape():
    model = linear()
    def change():
        model.weight, model.bias = nn.Parameter(torch.ones(2, 4)), nn.Parameter(torch.ones(2))
    return Scene(lambda x: model(x), one(ramp()), change)


@probe()
def requires_grad_flipped():
    model = linear()
    return Scene(lambda x: model(x), one(ramp()), lambda: model.requires_grad_(False))


@probe()
def branch_on_requires_grad():
    x = ramp()
    return Scene(lambda x: x * 2 if x.requires_grad else x * 3, one(x), lambda: x.requires_grad_(True))


@probe()
def data_swapped():
    model = linear()
    return Scene(lambda x: model(x), one(ramp()), lambda: setattr(model.weight, "data", torch.ones(4, 4)))


@probe()
def data_swapped_for_another_shape():
    model = linear()
    def change():
        model.weight.data, model.bias.data = torch.ones(3, 4), torch.ones(3)
    return Scene(lambda x: model(x), one(ramp()), change)


@probe()
def buffer_resized():
    model = nn.Module()
    model.register_buffer("scale", torch.ones(4))
    return Scene(lambda x: x * model.scale, one(ramp()), lambda: setattr(model, "scale", torch.full((2, 4), 3.0)))


@probe()
def buffer_that_decides():
    model = nn.Module()
    model.register_buffer("ready", torch.tensor(0))
    return Scene(lambda x: x * 2 if model.ready else x * 3, one(ramp()), lambda: model.ready.fill_(1))


@probe()
def grid_that_decides():
    grid = torch.tensor([[2, 4], [4, 2]])
    def reshape(x):
        return [x.flatten()[: h * w].view(h, w) + 1 if h > 2 else x * w for h, w in grid.tolist()]
    return Scene(reshape, one(torch.arange(16.0)), lambda: grid.t_())


@probe()
def buffer_resized_in_place():
    model = nn.Module()
    model.register_buffer("scale", torch.ones(4))
    return Scene(lambda x: x * model.scale.sum(), one(ramp()), lambda: model.scale.resize_(2).fill_(3))


@probe()
def buffer_updated():
    model = nn.BatchNorm1d(4)
    x = ramp(8).reshape(2, 4)
    return Scene(lambda x: model(x), one(x), lambda: model.eval(), lambda: dict(model.named_buffers()))


@probe()
def forward_hook_added_later():
    model = linear()
    return Scene(lambda x: model(x), one(ramp()), lambda: model.register_forward_hook(lambda m, i, o: o * 10))


@probe()
def forward_pre_hook_added_later():
    model = nn.Sequential(linear())
    return Scene(lambda x: model(x), one(ramp()), lambda: model[0].register_forward_pre_hook(lambda m, i: (i[0] * 10,)))


@probe()
def hook_removed():
    model = linear()
    handle = model.register_forward_hook(lambda m, i, o: o * 10)
    return Scene(lambda x: model(x), one(ramp()), handle.remove)


@probe()
def global_forward_hook_added_later():
    model = linear()
    handles: list[Any] = []
    register = nn.modules.module.register_module_forward_hook
    return Scene(lambda x: model(x), one(ramp()), lambda: handles.append(register(lambda m, i, o: o * 10)),
                 undo=lambda: [handle.remove() for handle in handles])


@probe()
def global_forward_pre_hook_added_later():
    model = linear()
    handles: list[Any] = []
    register = nn.modules.module.register_module_forward_pre_hook
    return Scene(lambda x: model(x), one(ramp()), lambda: handles.append(register(lambda m, i: (i[0] * 10,))),
                 undo=lambda: [handle.remove() for handle in handles])


@probe()
def hook_that_notes():
    model = linear()
    seen: list[Any] = []
    model.register_forward_hook(lambda m, i, o: seen.append(tuple(o.shape)))
    return Scene(lambda x: model(x), one(ramp()), lambda: seen.append("changed"), lambda: seen)


# ---------------------------------------------------------------------- global state


@contextlib.contextmanager
def entered(contexts: list[Any]) -> Any:
    with contextlib.ExitStack() as stack:
        for make in contexts:
            stack.enter_context(make())
        yield


@probe()
def grad_mode():
    x = ramp(grad=True)
    modes: list[Any] = []
    return Scene(lambda x: x * 2, one(x), lambda: modes.append(torch.no_grad), around=lambda: entered(modes))


@probe()
def branch_on_grad_mode():
    modes: list[Any] = []
    return Scene(lambda x: x * (2 if torch.is_grad_enabled() else 3), one(ramp()), lambda: modes.append(torch.no_grad),
                 around=lambda: entered(modes))


@probe()
def inference_mode():
    modes: list[Any] = []
    return Scene(lambda x: (x * 2, torch.is_inference_mode_enabled()), one(ramp()),
                 lambda: modes.append(torch.inference_mode), around=lambda: entered(modes))


@probe()
def autocast():
    model = linear()
    modes: list[Any] = []
    return Scene(lambda x: model(x), one(ramp()), lambda: modes.append(lambda: torch.autocast("cpu", torch.bfloat16)),
                 around=lambda: entered(modes))


@probe()
def autocast_dtype():
    model = linear()
    modes = [lambda: torch.autocast("cpu", torch.bfloat16)]
    return Scene(lambda x: model(x), one(ramp()),
                 lambda: modes.__setitem__(0, lambda: torch.autocast("cpu", torch.float16)), around=lambda: entered(modes))


@probe()
def default_dtype():
    return Scene(lambda x: x.double() * torch.ones(4), one(ramp()), lambda: torch.set_default_dtype(torch.float64),
                 undo=lambda: torch.set_default_dtype(torch.float32))


@probe()
def default_device():
    return Scene(lambda x: (x * 2, torch.ones(4).device.type), one(ramp()), lambda: torch.set_default_device("meta"),
                 undo=lambda: torch.set_default_device(None))


@probe()
def deterministic_flag():
    return Scene(lambda x: x * (2 if torch.are_deterministic_algorithms_enabled() else 3), one(ramp()),
                 lambda: torch.use_deterministic_algorithms(True),
                 undo=lambda: torch.use_deterministic_algorithms(False))


class Doubling(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result + result if func is torch.Tensor.mul else result


@probe("SB005")
def torch_function_mode():
    modes: list[Any] = []
    return Scene(lambda x: x.mul(3), one(ramp()), lambda: modes.append(Doubling), around=lambda: entered(modes))


@probe()
def no_grad_inside():
    x = ramp(grad=True)

    def fn(x):
        with torch.no_grad():
            y = x * 2
        return y, x * 3

    return Scene(fn, one(x))


@probe()
def grad_mode_left_changed():
    x = ramp(grad=True)

    def fn(x):
        y = x * 2
        torch.set_grad_enabled(not torch.is_grad_enabled())
        return y, x * 3

    return Scene(fn, one(x), undo=lambda: torch.set_grad_enabled(True))


@probe()
def autocast_inside():
    model = linear()

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = model(x)
        return y, model(x), torch.is_autocast_enabled("cpu")

    return Scene(fn, one(ramp()))


@probe()
def autocast_turned_off_inside():
    model = linear()

    def fn(x):
        y = model(x)
        with torch.autocast("cpu", enabled=False):
            return y, model(x)

    return Scene(fn, one(ramp()), around=lambda: torch.autocast("cpu", torch.bfloat16))


@probe()
def inference_mode_inside():
    def fn(x):
        with torch.inference_mode():
            y = x * 2
            inside = torch.is_inference_mode_enabled()
        return y, x * 3, inside, y.is_inference()

    return Scene(fn, one(ramp(grad=True)))


@probe()
def default_dtype_set_inside():
    def fn(x):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(4)
        torch.set_default_dtype(torch.float32)
        return y, torch.ones(4), x + 1

    return Scene(fn, one(ramp()), undo=lambda: torch.set_default_dtype(torch.float32))


@probe()
def default_dtype_left_changed():
    def fn(x):
        y = torch.ones(4)
        torch.set_default_dtype(torch.float64)
        return y, torch.ones(4), x + 1

    return Scene(fn, one(ramp()), lambda: torch.set_default_dtype(torch.float32),
                 undo=lambda: torch.set_default_dtype(torch.float32))


@probe()
def device_context_inside():
    def fn(x):
        with torch.device("meta"):
            y = torch.ones(4)
        return y.device.type, torch.ones(4), x + 1

    return Scene(fn, one(ramp()))


@probe("SB001 SB005 SB006 SB013 SB016")
def deterministic_flag_set_inside():
    def fn(x):
        torch.use_deterministic_algorithms(True)
        flag = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(False)
        return x + 1, flag

    return Scene(fn, one(ramp()), undo=lambda: torch.use_deterministic_algorithms(False))


# ---------------------------------------------------------------------- random numbers


def seeded(*args: Any) -> Any:
    def make():
        torch.manual_seed(3)
        return args
    return make


@probe()
def random_stream():
    return Scene(lambda x: x + torch.rand(4), seeded(ramp()), look=lambda: torch.get_rng_state())


@probe()
def random_stream_in_place():
    return Scene(lambda x: x.clone().normal_() + torch.nn.functional.dropout(x), seeded(ramp()), look=lambda: torch.get_rng_state())


@probe("SB005 SB010 SB013")
def random_seed_set_inside():
    def fn(x):
        torch.manual_seed(5)
        return x + torch.rand(4)

    return Scene(fn, seeded(ramp()), look=lambda: torch.get_rng_state())


@probe("SB013 SB005")
def random_generator():
    generator = torch.Generator()
    generator.manual_seed(3)
    return Scene(lambda x: x + torch.rand(4, generator=generator), one(ramp()), lambda: generator.manual_seed(8),
                 lambda: generator.get_state())


@probe("SB001 SB005 SB013 SB014")
def random_state_forked():
    def fn(x):
        with torch.random.fork_rng(devices=[]):
            y = torch.rand(4)
        return x + y + torch.rand(4)

    return Scene(fn, seeded(ramp()), look=lambda: torch.get_rng_state())


# ---------------------------------------------------------------------- tensors


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
