"""Save and restore the state that a call can reach.   Checkpoint(reached); run; checkpoint.restore()

Contents of objects are put back in place, tensors by their storage.  `restore` raises for state that cannot be put
back: a generator that was advanced, a tensor that autograd records elsewhere.
"""

from __future__ import annotations

import collections
import functools
import operator
import random
import types
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy
import torch

from stator import _hook
from stator.audit.reach import STATEFUL, Reached, global_names, pairs_of
from stator.heap.pure_readers import set_state
from stator.heap.raw_access import instance_dict, raw_members, slot_members, slot_values
from stator.host.value_kinds import is_a

_MISSING = object()
_GENERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


class CannotRestore(Exception):
    """Something was changed that only the program itself could change back."""


class Checkpoint:
    """One moment of a call's world."""

    def __init__(self, reached: dict[int, Reached]) -> None:
        self.undo: list[Callable[[], None]] = []
        self.storages: dict[int, tuple[Any, torch.Tensor]] = {}
        self.kept = reached
        for each in reached.values():
            self._note(each.value)
        self._note_streams()

    def restore(self) -> None:
        """Put everything back, or raise CannotRestore having put back what could be."""
        failures = []
        for undo in self.undo:
            try:
                undo()
            except CannotRestore as why:
                failures.append(str(why))
        with torch.no_grad():
            for storage, saved in self.storages.values():
                current = torch.empty(0, dtype=torch.uint8, device=saved.device).set_(storage)
                if current.numel() == saved.numel() and not torch.equal(current, saved):
                    current.copy_(saved)
        if failures:
            raise CannotRestore("; ".join(failures))

    def _note(self, value: Any) -> None:
        kind = type(value)
        if is_a(value, torch.Tensor):
            return self._note_tensor(value)
        if kind is types.FunctionType:
            return self._note_globals(value)
        if kind is types.CellType:
            return self._keep(lambda: _contents(value), lambda saved: _fill(value, saved))
        if is_a(value, type):
            return self._note_class(value)
        if kind in STATEFUL:
            return self._note_stateful(value)
        if is_a(value, numpy.ndarray):
            saved = value.copy()
            return self.undo.append(lambda: None if value.dtype == object else numpy.copyto(value, saved))
        if kind in _GENERATORS:
            frame = next(getattr(value, name) for name in ("gi_frame", "cr_frame", "ag_frame") if hasattr(value, name))
            at = None if frame is None else frame.f_lasti
            return self.undo.append(lambda: _require_unmoved(value, frame, at))
        if hasattr(kind, "__next__") and hasattr(kind, "__length_hint__"):
            return self._note_iterator(value)
        self._note_contents(value)

    def _keep(self, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        """Write the present value of one place back, if another object is there by then."""
        saved = read()
        self.undo.append(lambda: None if read() is saved else write(saved))

    def _note_contents(self, value: Any) -> None:
        if is_a(value, (list, collections.deque)):
            items = list(raw_members(value))
            base = list if is_a(value, list) else collections.deque
            self.undo.append(lambda: _put_items(base, value, items))
        elif is_a(value, set):
            members = list(raw_members(value))
            self.undo.append(lambda: _put_members(value, members))
        elif is_a(value, dict):
            self._note_dict(value)
        own = instance_dict(value)
        if own is not None:
            self._note_dict(own)
        cls: type = type(value)
        for member in slot_members(cls):
            self._keep(functools.partial(_slot, value, member), functools.partial(_set_slot, value, member))

    def _note_dict(self, held: dict[Any, Any]) -> None:
        pairs = pairs_of(held)

        def undo() -> None:
            now = pairs_of(held)
            if len(now) != len(pairs) or any(key is not known or item is not saved for (key, item), (known, saved)
                                             in zip(now, pairs, strict=True)):
                base: Any = collections.OrderedDict if is_a(held, collections.OrderedDict) else dict
                base.clear(held)
                for key, item in pairs:
                    base.__setitem__(held, key, item)
        self.undo.append(undo)

    def _note_globals(self, function: types.FunctionType) -> None:
        names = function.__globals__
        self._note_dict(function.__dict__)
        for name in global_names(function):
            self._keep(functools.partial(names.get, name, _MISSING), functools.partial(_set_name, names, name))

    def _note_class(self, cls: type) -> None:
        saved = dict(vars(cls))

        def undo() -> None:
            for name in list(vars(cls)):
                if name not in saved:
                    type.__delattr__(cls, name)
            for name, value in saved.items():
                if vars(cls).get(name, _MISSING) is not value and name not in ("__dict__", "__weakref__"):
                    type.__setattr__(cls, name, value)
        self.undo.append(undo)

    def _note_iterator(self, iterator: object) -> None:
        left = operator.length_hint(iterator, -1)
        state = _hook.quietly(iterator.__reduce__) if hasattr(iterator, "__setstate__") else None

        def undo() -> None:
            if operator.length_hint(iterator, -1) != left:
                if state is None or len(state) < 3 or state[2] is None:
                    raise CannotRestore(f"a {type(iterator).__name__} was advanced")
                set_state(iterator, state[2])
                if operator.length_hint(iterator, -1) != left:
                    raise CannotRestore(f"a {type(iterator).__name__} was run to its end")
        self.undo.append(undo)

    def _note_stateful(self, value: Any) -> None:
        if type(value) is bytearray:
            content = bytes(value)
            self.undo.append(lambda: value.__setitem__(slice(None), content))
        elif isinstance(value, numpy.random.Generator):
            bits = value.bit_generator.state
            self.undo.append(lambda: setattr(value.bit_generator, "state", bits))
        else:
            get, put = (value.get_state, value.set_state) if type(value) is torch.Generator \
                else (value.getstate, value.setstate)
            state = get()
            self.undo.append(lambda: put(state))

    def _note_tensor(self, tensor: torch.Tensor) -> None:
        own = instance_dict(tensor)
        if own is not None:
            self._note_dict(own)
        if tensor.layout is not torch.strided:
            return
        with torch.no_grad():
            storage = tensor.untyped_storage()
            if storage._cdata not in self.storages and storage.nbytes():
                view = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
                self.storages[storage._cdata] = (storage, view.clone())
        shape = (tensor.shape, tensor.stride(), tensor.storage_offset())
        grad = tensor.grad if tensor.is_leaf else None
        history, wants_grad, plain = tensor.grad_fn, tensor.requires_grad, tensor.detach()

        def undo() -> None:
            if tensor.grad_fn is not history:
                if history is not None:
                    raise CannotRestore("a tensor with a history was written in place")
                tensor.detach_()
            if tensor.requires_grad != wants_grad:
                tensor.requires_grad_(wants_grad)
            if (tensor.shape, tensor.stride(), tensor.storage_offset()) != shape or \
                    tensor.untyped_storage()._cdata != storage._cdata:
                tensor.data = plain
            if tensor.is_leaf and tensor.grad is not grad:
                tensor.grad = grad
        self.undo.append(undo)

    def _note_streams(self) -> None:
        torch_state, python_state, numpy_state = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
        devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()

        def undo() -> None:
            torch.set_rng_state(torch_state)
            random.setstate(python_state)
            numpy.random.set_state(numpy_state)
            if devices:
                torch.cuda.set_rng_state_all(devices)
            torch._C._set_grad_enabled(grad)
            torch.set_default_dtype(dtype)
        self.undo.append(undo)


def _require_unmoved(generator: object, frame: FrameType, at: int | None) -> None:
    if frame is not None and frame.f_lasti != at:
        raise CannotRestore(f"a {type(generator).__name__} was advanced")


def _put_items(base: type, value: object, items: list[Any]) -> None:
    now = list(raw_members(value))
    if len(now) != len(items) or any(map(operator.is_not, now, items)):
        base.clear(value)  # type: ignore[attr-defined]
        base.extend(value, items)  # type: ignore[attr-defined]


def _put_members(value: set[Any], members: list[Any]) -> None:
    if {id(member) for member in raw_members(value)} != {id(member) for member in members}:
        set.clear(value)
        set.update(value, members)


def _slot(value: object, member: types.MemberDescriptorType) -> Any:
    return slot_values(value).get(member, _MISSING)


def _set_slot(value: object, member: types.MemberDescriptorType, saved: object) -> None:
    member.__delete__(value) if saved is _MISSING else member.__set__(value, saved)


def _set_name(names: dict[str, Any], name: str, saved: object) -> None:
    if saved is _MISSING:
        del names[name]
    else:
        names[name] = saved


def _contents(cell: types.CellType) -> Any:
    return _MISSING if cell == types.CellType() else cell.cell_contents


def _fill(cell: types.CellType, contents: object) -> None:
    if contents is _MISSING:
        del cell.cell_contents
    else:
        cell.cell_contents = contents
