"""Deep copies of outside tensors that the graph cannot make.   copy.deepcopy(self.weight)  ->  a new input of the graph

A Parameter, a leaf that wants a gradient or a part of a storage is copied by the residual before the graph runs, as
long as nothing has written to the original's memory by then.  The trace makes one copy, too, and looks at its layout.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from stator.breaks import Break, Strategy
from stator.graph.analysis.may_fail import written_placeholders
from stator.graph.analysis.shared_memory import storage_partition
from stator.interp.services import VM
from stator.source import Copied, Source


@dataclass(frozen=True)
class TensorCopy:
    """One copy for the residual to make; `memo` numbers the call of deepcopy() that it is part of."""

    original: Source
    memo: int
    source: Copied


@dataclass(frozen=True)
class Flag:
    """The requires_grad of a copy that nothing has used yet."""

    source: Source
    value: bool


class Memo:
    """The memo of one deepcopy(): outside tensors copied with it, copies made here, and storages, as in torch."""

    def __init__(self, number: int, key: object) -> None:
        self.number, self.key = number, key
        self.examples: dict[Any, Any] = {}
        self.originals: list[tuple[Any, Source]] = []
        self.storages: dict[int, bool] = {}  # address of a copied storage -> whether the residual copies it

    def add_storage(self, fake: torch.Tensor, *, before: bool) -> None:
        """Note a copied storage; refuse a second tensor of one, unless one memo of the residual has both."""
        with torch._C.DisableTorchFunction():
            address = fake.untyped_storage()._cdata
        if address in self.storages and not (before and self.storages[address]):
            raise copied_by_memo("copy.deepcopy of tensors that share a storage")
        self.storages[address] = before


def copied_by_memo(why: str) -> Break:
    """Capture again, and let CPython copy tensors: the memo then has their storages."""
    return Break("SB005", why, turn_off=Strategy.COPIED_STORAGES)


def memo_of(vm: VM, memo: object) -> Memo:
    notes: Memo | None = vm.residual.copy_memos.get(id(memo))
    if notes is None:
        notes = vm.residual.copy_memos[id(memo)] = Memo(len(vm.residual.copy_memos), memo)
    return notes


def layouts(*tensors: torch.Tensor) -> Any:
    """A pure reader for guards: how tensors lie in storages, and what else a copy takes over."""
    with torch._C.DisableTorchFunction():
        return storage_partition(*tensors), tuple(
            (tensor.untyped_storage().nbytes(), tensor.storage_offset(), tensor.is_leaf, tensor.grad is None,
             not tensor.__dict__)
            for tensor in tensors)


def copy_before_graph(vm: VM, fake: FakeTensor, memo: object) -> Any:
    """The fake of a copy that the residual will make; a Break where that would be another one than the program's."""
    original, source, outside = original_of(vm, fake)
    if original is None:
        raise Break("SB005", "copy.deepcopy of a tensor that the graph makes")
    if id(fake) in vm.tensors.data:
        raise Break("SB006", "copy.deepcopy of a tensor whose memory has changed")
    if id(fake) in vm.tensors.flags:
        raise Break("SB016", "copy.deepcopy of a leaf whose requires_grad has changed")
    refuse_other_worlds(vm, fake)
    refuse_written(vm, fake)
    notes = memo_of(vm, memo)
    if type(original) is torch.Tensor:
        notes.add_storage(fake, before=True)
    with torch._C.DisableTorchFunction(), unset_fake_temporarily():
        example = copy.deepcopy(original, notes.examples)
        if (example.shape, example.stride(), example.storage_offset()) != (
                original.shape, original.stride(), original.storage_offset()) and type(original) is torch.Tensor:
            raise Break("SB005", "copy.deepcopy of a tensor that lies otherwise in memory than its copy")
    if outside and type(original) is torch.Tensor:  # a Parameter's copy has a storage of its own, and nothing else
        notes.originals.append((original, source))
        facts = layouts(*(tensor for tensor, _ in notes.originals))
        vm.heap.guard_call(layouts, facts, *(each for _, each in notes.originals))
    place = Copied(len(vm.residual.copies), source.text())
    made = vm.recorder.add_input(example, place)
    vm.recorder.inputs[-1].tensor = None  # nothing is known of what it will hold, and nobody else has it
    vm.recorder.copies[id(made)] = (example, place)
    vm.residual.copies.append(TensorCopy(source, notes.number, place))
    return made


def original_of(vm: VM, fake: FakeTensor) -> tuple[Any, Any, bool]:
    """The tensor behind a fake, its source, and whether it is the user's; a copy can be copied again."""
    tracker = vm.heap.by_standin.get(id(fake))
    if tracker is not None:
        return tracker.original, tracker.source, True
    return *vm.recorder.copies.get(id(fake), (None, None)), False


def refuse_other_worlds(vm: VM, fake: FakeTensor) -> None:
    """Where a copy made before the graph is not the one that the program makes in this place."""
    with torch._C.DisableTorchFunction():
        if any(type(size) is not int for size in fake.shape):
            raise Break("SB005", "copy.deepcopy of a tensor of varying size")
        special = fake.layout is not torch.strided or fake.is_quantized or fake.is_conj() or fake.is_neg() \
            or fake.device.type not in ("cpu", "cuda")
    if special or torch.is_inference_mode_enabled() or vm.modes.active or vm.recorder.scope.enclosing is not None \
            or vm.locks.used or vm.effects.watched or id(fake) in vm.recorder.classes \
            or vm.tensors.attributes.get(id(fake)) or id(fake) in vm.tensors.grads:
        raise Break("SB005", "copy.deepcopy of a tensor with more than values, or in the middle of other effects")


def refuse_written(vm: VM, fake: FakeTensor) -> None:
    """The graph has not run when the copy is made: what it writes to is copied by the program itself."""
    recorder = vm.recorder
    if not recorder.log.in_place and not recorder.log.reshaped:
        return
    with torch._C.DisableTorchFunction():
        address = fake.untyped_storage()._cdata
        for node in written_placeholders(recorder.graph):
            written = node.meta["example_value"]
            if isinstance(written, torch.Tensor) and (
                    written.layout is not torch.strided or written.untyped_storage()._cdata == address):
                raise Break("SB005", "copy.deepcopy of a tensor that was written to before")


def set_flag(vm: VM, fake: FakeTensor, value: bool) -> bool:
    """requires_grad of a copy that nothing has used: it is made so. False: of anything else."""
    if id(fake) not in vm.recorder.copies or vm.recorder.node_of(fake).users or vm.recorder.scope.enclosing is not None:
        return False
    example, place = vm.recorder.copies[id(fake)]
    with torch._C.DisableTorchFunction():
        example.requires_grad_(value)
        fake.requires_grad_(value)
    vm.residual.copies.append(Flag(place, value))
    return True
