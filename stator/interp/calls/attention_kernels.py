"""Which kernels attention may choose.   with sdpa_kernel(...): compiled(q, k, v)  ->  a guard on the choice

In: an operation that chooses a kernel for attention while it is traced.  Out: a guard on those settings that the
program has not changed inside.  The kernels lay their results out differently, and compilers take the chosen one
apart.
"""

from __future__ import annotations

from typing import Any

import torch

from stator import _core
from stator.graph.state.torch_state import SETTINGS
from stator.guards.guard import Kind
from stator.interp.services import VM
from stator.source import CALL_TEXTS, CallOf, Pinned

_OPERATORS = torch.ops.aten
ATTENTION = frozenset({
    torch.nn.functional.scaled_dot_product_attention, torch._native_multi_head_attention,
    torch._transformer_encoder_layer_fwd, _OPERATORS.scaled_dot_product_attention,
    _OPERATORS.scaled_dot_product_attention.default, _OPERATORS._native_multi_head_attention.default,
    _OPERATORS._transformer_encoder_layer_fwd.default})
_CHOICES = tuple([setting for setting in SETTINGS if "_sdp_" in setting.setter.__name__])
CALL_TEXTS[id(_core.attention_kernels)] = lambda: "the kernels allowed by torch.nn.attention.sdpa_kernel"


def guard_kernels(vm: VM) -> None:
    if not any(map(vm.torch_state.is_changed, _CHOICES)):
        vm.heap.guard(CallOf(Pinned(_core.attention_kernels), ()), Kind.FRESH_CALL, _core.attention_kernels())
        return
    for setting in _CHOICES:
        if not vm.torch_state.is_changed(setting):
            guard_answer(vm, setting.readers[0], *setting.read())


def guard_answer(vm: VM, reader: object, answer: object) -> None:
    """What a setting is, which a C function tells."""
    if type(answer) is list:
        vm.heap.guard(CallOf(Pinned(_as_tuple), (Pinned(reader),)), Kind.FRESH_CALL, tuple(answer))
    else:
        vm.heap.guard(CallOf(Pinned(reader), ()), Kind.FRESH_CALL, answer)


def _as_tuple(reader: Any) -> tuple[Any, ...]:
    return tuple(reader())
