"""Rules for SDPAParams.   SDPAParams(q, k, v, mask, 0.0, True, False).query  ->  q

In: the C++ record of what scaled_dot_product_attention is called with, made inside the call.  Out: a record of the
stand-ins, whose fields are read, and which the residual makes again.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from stator.breaks import Break
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.native.rows_declare import underlying

PARAMETERS: type = torch.backends.cuda.SDPAParams
FIELDS = "query key value attn_mask dropout is_causal enable_gqa".split()


@rule(PARAMETERS)
def _make(vm: VM, callee: type, /, *fields: object) -> object:
    return vm.native_unhooked(callee, specialise_deep(vm, fields))


@rule(*[underlying(vars(PARAMETERS)[name].fget) for name in FIELDS])
def _field(vm: VM, callee: Callable[..., object], record: object, /) -> object:
    if vm.heap.tracker_of(record) is not None:
        raise Break("SB005", "parameters of an attention, from outside")
    return vm.native_unhooked(callee, (record,))
