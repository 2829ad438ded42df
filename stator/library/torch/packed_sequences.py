"""Rules for packed sequences.   pack_padded_sequence(x, lengths), lstm(packed), pad_packed_sequence(packed)

In: the three C functions behind them.  Out: one node each, with fakes of the sizes that the lengths imply.  The lengths
are known where they are constants or a small tensor from outside, whose contents become a guard; else the call breaks.
A compiler does not see these nodes: the graph is cut there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from stator.breaks import Break
from stator.graph.analysis.autograd_boundaries import BOUNDARY
from stator.graph.metadata.recurrent_layers import LayerResults
from stator.graph.record.refused_operations import PACKED
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.shapes.environment import UNKNOWN

_STATES = {torch.lstm: 2}  # of the others one


@rule(torch._C._VariableFunctions._pack_padded_sequence)  # type: ignore[attr-defined]
def _pack(vm: VM, callee: Callable[..., object], /, input: Any, lengths: object, batch_first: object) -> object:
    numbers = known_numbers(vm, lengths)
    if type(input) is not FakeTensor or type(batch_first) is not bool or input.dim() < 2:
        raise Break("SB017", PACKED)
    batch, time = (0, 1) if batch_first else (1, 0)
    sizes = fixed_sizes(input)
    if len(numbers) != sizes[batch] or not numbers or numbers != sorted(numbers, reverse=True) or numbers[-1] < 1 \
            or numbers[0] > sizes[time]:
        raise Break("SB017", f"{PACKED}, whose lengths torch refuses")
    steps = [sum(number > step for number in numbers) for step in range(numbers[0])]
    with torch._C.DisableTorchFunction():
        data, = LayerResults.apply((sum(numbers), *sizes[2:]), (), input)  # type: ignore[no-untyped-call]
    return with_numbers(vm, callee, (input, lengths, batch_first), data, lengths, steps)


@rule(torch._C._VariableFunctions._pad_packed_sequence)  # type: ignore[attr-defined]
def _pad(vm: VM, callee: Callable[..., object], /, data: object, batch_sizes: object, batch_first: object,
         padding_value: object, total_length: object) -> object:
    steps = known_numbers(vm, batch_sizes)
    if type(data) is not FakeTensor or type(batch_first) is not bool or type(padding_value) not in (int, float) \
            or type(total_length) is not int or -1 != total_length < len(steps) or not steps:
        raise Break("SB017", PACKED)
    sizes = fixed_sizes(data)
    if sum(steps) != sizes[0]:
        raise Break("SB017", f"{PACKED}, whose lengths torch refuses")
    numbers = [sum(step > place for step in steps) for place in range(steps[0])]
    with torch._C.DisableTorchFunction():
        size = (max(len(steps), total_length), steps[0], *sizes[1:])
        padded, = LayerResults.apply(size, (), data)  # type: ignore[no-untyped-call]
        if batch_first:
            padded = padded.transpose(0, 1)
    given = data, batch_sizes, batch_first, padding_value, total_length
    return with_numbers(vm, callee, given, padded, batch_sizes, numbers)


def is_packed(args: tuple[Any, ...]) -> bool:
    """Whether a recurrent layer is called with the data and the batch sizes of a packed sequence."""
    return len(args) == 9 and type(args[1]) is FakeTensor and type(args[3]) in (tuple, list)


def packed_layer(vm: VM, callee: Callable[..., object], args: tuple[Any, ...]) -> object:
    data, batch_sizes, given, weights, *_, ways = args
    steps = known_numbers(vm, batch_sizes)
    states = list(given) if type(given) in (tuple, list) else [given]
    tensors = [data, *states, *weights]
    if not all(type(each) is FakeTensor for each in tensors) or type(ways) is not bool or not steps \
            or len(states) != _STATES.get(callee, 1) or data.dim() != 2 or any(each.dim() != 3 for each in states) \
            or any((each.dtype, each.device) != (data.dtype, data.device) for each in tensors) \
            or torch.is_autocast_enabled(data.device.type) or sum(steps) != fixed_sizes(data)[0] \
            or any(fixed_sizes(state)[1] != steps[0] for state in states):
        raise Break("SB017", f"{PACKED} given to a recurrent layer")
    size = (sum(steps), fixed_sizes(states[0])[2] * (2 if ways else 1))
    with torch._C.DisableTorchFunction():
        made = LayerResults.apply(size, list(map(fixed_sizes, states)), *tensors)  # type: ignore[no-untyped-call]
    return recorded(vm, callee, args, made)


# ---------------------------------------------------------------------- sizes and nodes


def known_numbers(vm: VM, fake: Any) -> list[int]:
    """The contents of a tensor of lengths, under a guard where it comes from outside."""
    if type(fake) is not FakeTensor or vm.modes.active or vm.recorder.classes:
        raise Break("SB017", PACKED)
    with torch._C.DisableTorchFunction():
        plain = fake.dtype is torch.int64 and fake.dim() == 1 and fake.device.type == "cpu"
    found: Any = vm.recorder.known.of_tensor(fake) if plain else UNKNOWN
    if found is UNKNOWN:
        raise Break("SB017", f"{PACKED} of lengths that the graph computes")
    with unset_fake_temporarily(), torch._C.DisableTorchFunction():
        return list(found.tolist())


def fixed_sizes(fake: FakeTensor) -> tuple[int, ...]:
    with torch._C.DisableTorchFunction():
        return tuple([int(size) for size in fake.shape])  # a symbol is guarded


def with_numbers(vm: VM, callee: Callable[..., object], args: tuple[Any, ...], made: FakeTensor, like: FakeTensor,
                 numbers: Sequence[int]) -> object:
    """Results of packing and padding: data, and a tensor of numbers that the graph need not compute to be known."""
    with torch._C.DisableTorchFunction():
        counts = like.new_empty((len(numbers),))
    results = recorded(vm, callee, args, (made, counts))
    with unset_fake_temporarily(), torch._C.DisableTorchFunction():
        vm.recorder.known.given[vm.recorder.node_of(counts)] = torch.tensor(numbers)
    return results


def has_open_symbols(vm: VM) -> bool:
    """Whether an unbacked symbol of the graph is not a constant by now; sizes of a batch are."""
    symbols = vm.recorder.symbols
    settled = symbols.shape_env.replacements
    return any(symbol not in settled or settled[symbol].free_symbols for symbol in symbols.definitions)


def recorded(vm: VM, callee: Callable[..., object], args: tuple[Any, ...], results: tuple[object, ...]) -> object:
    recorder = vm.recorder
    if recorder.scope.enclosing is not None or recorder.region.tangents or recorder.region.marks \
            or recorder.wrappers.behind or not recorder.backend.in_order and has_open_symbols(vm):
        raise Break("SB017", PACKED)
    if not recorder.backend.in_order:
        recorder.propagation.require_exact()  # pieces must know which of their inputs share memory
    node = recorder.record("call_function", callee, args, {}, results)
    node.meta[BOUNDARY] = True
    return results
