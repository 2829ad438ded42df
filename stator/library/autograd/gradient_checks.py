"""Checks of a captured backward pass.   with save_on_cpu(): loss = f(x);  with detect_anomaly(): loss.backward()

In: anomaly mode; the hooks on saved tensors that the trace has pushed and popped.  Out: a pass that checks for nan; a
Break where `unpack` has effects, or gives back a tensor of another layout than the saved one, which the pass on the
fakes reads itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.analysis.step_functions import gradients_in_anomaly_mode, without_anomaly_mode
from stator.graph.state.torch_state import ANOMALY_MODE
from stator.interp.tensors.tensor_bookkeeping import behind_autograd, kind_of
from stator.interp.vm import VM
from stator.library.autograd.autograd_hooks import HOOKS, Pushed, has_changes, require_pure
from stator.library.autograd.backward_code import require_unchanged

__all__ = ["checked", "guard_engine", "without_anomaly_mode"]


def guard_engine(vm: VM, what: str) -> None:
    """Guard anomaly mode, and break where the graph could not call `unpack` in place of the engine of the program."""
    if not vm.torch_state.is_changed(ANOMALY_MODE):
        vm.heap.guard_call(torch.is_anomaly_enabled, torch.is_anomaly_enabled())
    for entry in vm.autograd.popped_hooks:
        assert isinstance(entry, Pushed)
        if not entry.lossless and has_changes(vm):
            raise behind_autograd(vm, "SB016", f"{what}, under {HOOKS}, beside changes still to be written back")
        for fake in entry.saved.values():
            if fake.layout is not torch.strided or entry.lossless:
                raise Break("SB016", f"{what}, under {HOOKS} of an unusual layout")
            made = require_pure(vm, functools.partial(unpacked, entry.hooks), fake)
            with torch._C.DisableTorchFunction():
                if type(made) is not FakeTensor or not lie_alike(made, fake):
                    raise Break("SB016", f"{what}, under {HOOKS} that give back other tensors")
        entry.saved.clear()


def checked(vm: VM, target: Callable[..., object], outputs: list[FakeTensor], beside_modules: bool
            ) -> Callable[..., object]:
    """The function of the graph that takes gradients: in anomaly mode each function of the engine is checked."""
    require_unchanged(vm, outputs)
    if not torch.is_anomaly_enabled():
        return target
    if beside_modules:
        raise behind_autograd(vm, "SB016", "gradients beside hooks of modules, in anomaly mode")
    vm.recorder.keep_as_it_is()  # a compiler has other functions
    return gradients_in_anomaly_mode


def lie_alike(made: FakeTensor, fake: FakeTensor) -> bool:
    """Whether two tensors have one layout; strides of single items count for nothing."""
    return kind_of(made) == kind_of(fake) and made.shape == fake.shape and all(
        size == 1 or one == other for size, one, other in zip(fake.shape, made.stride(), fake.stride(), strict=True))


def unpacked(hooks: tuple[Callable[..., object], Callable[..., object]], tensor: object) -> object:
    """Interpreted: the tensor that autograd gets back."""
    return hooks[1](hooks[0](tensor))
