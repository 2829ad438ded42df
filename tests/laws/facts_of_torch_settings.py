"""Probes: torch's global state: grad mode, autocast, defaults and modes, changed between calls and inside."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from probing import Scene, probe, ramp
from scenery import linear, one
from torch.overrides import TorchFunctionMode


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


@probe()
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


@probe()
def anomaly_mode_around_the_call():
    return Scene(lambda x: x * 2 if torch.is_anomaly_enabled() else x * 3, one(ramp()),
                 lambda: torch.set_anomaly_enabled(True), undo=lambda: torch.set_anomaly_enabled(False))


@probe()
def anomaly_mode_set_inside_and_read():
    def fn(x):
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            inside = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        return x * 2, inside, torch.is_anomaly_enabled()

    return Scene(fn, one(ramp()), lambda: torch.set_anomaly_enabled(True), undo=lambda: torch.set_anomaly_enabled(False))
