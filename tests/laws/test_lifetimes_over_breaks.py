"""Locals live until their frame ends or overwrites them, breaks or no breaks, as in CPython.

A pointer is taken of the memory of a local that nothing reads again; the memory is read through the pointer behind
graph breaks, between which freed memory is used again.  Weak references and finalizers tell the same of objects.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import stator
from stator.emit.rebuild.local_owners import Owners

LOG: list[Any] = []


@torch.compiler.disable
def read(pointer: int) -> bytes:
    """Read an address, once freed memory of tensors has been used again."""
    reused = [torch.full((1000,), 7.0) for _ in range(20)]
    return ctypes.string_at(pointer, 8) if reused else b""


@torch.compiler.disable
def note(what: Any) -> None:
    LOG.append(what)


@torch.compiler.disable
def reference(value: Any, tells: bool = False) -> Any:
    return weakref.ref(value, lambda _: LOG.append("dead")) if tells else weakref.ref(value)


@torch.compiler.disable
def is_alive(ref: Any) -> bool:
    return ref() is not None


class Finalized:
    def __init__(self, name: Any) -> None:
        self.name = name

    def __del__(self) -> None:
        LOG.append(("finalized", self.name))


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


@torch.compiler.disable
def finalized(name: Any) -> Finalized:
    return Finalized(name)


# ---------------------------------------------------------------------- pointers

POINTERS = {
    "data_ptr": lambda y: y.data_ptr(),
    "untyped_storage": lambda y: y.untyped_storage().data_ptr(),
    "storage": lambda y: y.storage().data_ptr(),
    "ctypes": lambda y: y.numpy().ctypes.data,
    "array_interface": lambda y: y.numpy().__array_interface__["data"][0],
    "dlpack": lambda y: torch.from_dlpack(y).data_ptr(),
    "view": lambda y: y[1:].data_ptr(),
    "transposed": lambda y: y.view(10, 100).t().data_ptr(),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("pointer", POINTERS)
def test_pointer_of_a_local(pointer: str, backend: str) -> None:
    take = POINTERS[pointer]

    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        address = take(y)
        return read(address), read(address)

    same_as_eager(fn, backend)


def taken(y: torch.Tensor) -> int:
    return y.data_ptr()


def argument_overwritten(x: torch.Tensor) -> Any:
    x = x * 2
    return read(x.data_ptr())


def local_of_an_inlined_caller(x: torch.Tensor) -> Any:
    y = x * 2
    address = taken(y)
    return (lambda a: read(a + 0))(address)


def part_of_a_list(x: torch.Tensor) -> Any:
    ys = [x * 2, x * 3]
    address = ys[0].data_ptr()
    return read(address)


def part_of_an_object(x: torch.Tensor) -> Any:
    holder = Holder(x * 2)
    address = holder.held.data_ptr()
    return read(address)


def part_of_a_result(x: torch.Tensor) -> Any:
    def made() -> Any:
        y = x * 3
        return y, y.data_ptr()
    return (lambda pair: read(pair[1]))(made())


def captured_by_a_closure(x: torch.Tensor) -> Any:
    y = x * 2

    def shown() -> Any:
        return y
    address = y.data_ptr()
    return read(address)


def deleted_view(x: torch.Tensor) -> Any:
    y = x * 2
    view = y[1:]
    address = view.data_ptr()
    del view
    return read(address)


def second_name(x: torch.Tensor) -> Any:
    y = z = x * 2
    address = y.data_ptr()
    y = None
    first = read(address)
    z = None
    return first


def in_a_loop(x: torch.Tensor) -> Any:
    found, address = [], None
    for number in range(3):
        if address is not None:
            found.append(read(address))
        y = x * number
        address = y.data_ptr()
    return found


def before_a_loop(x: torch.Tensor) -> Any:
    y = x * 2
    address = y.data_ptr()
    for number in range(3):
        x = x + number
        read(address)
    return read(address)


def under_try_and_with(x: torch.Tensor) -> Any:
    try:
        with torch.no_grad():
            y = x * 2
            address = y.data_ptr()
        raise ValueError
    except ValueError:
        return read(address)


def in_a_generator(x: torch.Tensor) -> Any:
    def parts() -> Any:
        y = x * 2
        address = y.data_ptr()
        yield 1
        yield read(address)
    return list(parts())


def in_recursion(x: torch.Tensor, depth: int = 3) -> Any:
    y = x * depth
    address = y.data_ptr()
    return [read(address)] if not depth else [*in_recursion(x, depth - 1), read(address)]


def array_made_inside(x: torch.Tensor) -> Any:
    z = (x * 2).numpy() + 1
    address = z.ctypes.data
    return read(address)


def array_of_numpy(x: torch.Tensor) -> Any:
    z = np.ones(1000, dtype=np.float32) * 3
    address = z[1:].ctypes.data
    return read(address)


def leave_with_pointers(x: torch.Tensor) -> None:
    y, ys, holder = x * 2, [x * 3], Holder(x * 4)
    inner = x * 5

    def shown() -> Any:
        return inner
    raise ValueError(y.data_ptr(), ys[0].data_ptr(), holder.held.data_ptr(), inner.data_ptr())


def leave_natively(x: torch.Tensor) -> None:
    y = x * 2
    raise_natively(y.data_ptr())


@torch.compiler.disable
def raise_natively(pointer: int) -> None:
    raise ValueError(pointer)


def leave_with_a_context(x: torch.Tensor) -> None:
    y = x * 6
    address = y.data_ptr()
    try:
        leave_with_pointers(x)
    except ValueError as error:
        raise KeyError(address, *error.args) from None


def in_a_traceback(x: torch.Tensor) -> Any:
    try:
        leave_with_pointers(x)
    except ValueError as error:
        note("a")
        return [read(address) for address in error.args]


def in_a_kept_exception(x: torch.Tensor) -> Any:
    kept: Any = None
    try:
        leave_natively(x)
    except ValueError as error:
        kept = error
    note("a")
    return [read(address) for address in kept.args]


def in_the_context_of_an_exception(x: torch.Tensor) -> Any:
    try:
        leave_with_a_context(x)
    except KeyError as error:
        return [read(address) for address in error.args]


@pytest.mark.parametrize("fn", [
    in_a_traceback, in_a_kept_exception, in_the_context_of_an_exception, argument_overwritten, local_of_an_inlined_caller, part_of_a_list, part_of_an_object, part_of_a_result,
    captured_by_a_closure, deleted_view, second_name, in_a_loop, before_a_loop, under_try_and_with, in_a_generator,
    in_recursion, array_made_inside, array_of_numpy])
def test_pointer_of(fn: Any) -> None:
    same_as_eager(fn)


def test_a_checkpoint_holds_what_it_was_given() -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    same_as_eager(lambda x: safetensors.save({"a": x * 2}))


# ---------------------------------------------------------------------- references and finalizers


def referred_tensor(x: torch.Tensor) -> Any:
    y = x * 2
    ref = reference(y)
    note("a")
    z = x + 1
    return is_alive(ref), ref() is not None, z


def referred_tensor_overwritten(x: torch.Tensor) -> Any:
    y = x * 2
    ref = reference(y, tells=True)
    note("a")
    y = x + 1
    note("b")
    return y, is_alive(ref)


def referred_in_a_loop(x: torch.Tensor) -> Any:
    for number in range(3):
        y = x * number
        ref = reference(y, tells=True)
        note(number)
    note("end")
    return is_alive(ref)


def referred_part(x: torch.Tensor) -> Any:
    held = [Holder(x * 2)]
    ref = reference(held[0])
    note("a")
    return is_alive(ref), ref() is None


def referred_in_a_callee(x: torch.Tensor) -> Any:
    def callee() -> Any:
        y = Holder(x * 2)
        ref = reference(y)
        note("inside")
        return ref
    ref = callee()
    return is_alive(ref)


def finalized_at_the_end(x: torch.Tensor) -> Any:
    held = finalized(1)
    note("a")
    y = x + 1
    note("b")
    return y


def finalized_in_a_loop(x: torch.Tensor) -> Any:
    for number in range(3):
        held = finalized(number)
        note(number)
    note("end")
    return x + 1


def finalized_in_a_generator(x: torch.Tensor) -> Any:
    def parts() -> Any:
        held = finalized(1)
        note("first")
        yield x + 1
        held = finalized(2)
        note("second")
        yield x + 2
        note("last")
    for part in parts():
        note("body")
    note("end")
    return part


@pytest.mark.parametrize("fn", [
    referred_tensor, referred_tensor_overwritten, referred_in_a_loop, referred_part, referred_in_a_callee,
    finalized_at_the_end, finalized_in_a_loop, finalized_in_a_generator])
def test_objects_die_when_their_frame_lets_go(fn: Any) -> None:
    same_as_eager(fn)


# ---------------------------------------------------------------------- cost


def test_a_loop_compiles_its_body_once() -> None:
    def fn(x: torch.Tensor) -> Any:
        for _ in range(6):
            note(0)
            y = x * 2
            x = x + y
        return x

    compiled = stator.compile(fn, backend="eager")
    with stator.events.record() as log:
        compiled(torch.ones(3))
    assert sum(type(event).__name__ == "CaptureFinished" for event in log) <= 4


def test_a_dead_local_adds_no_output() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        z = y + 1
        note(0)
        return z

    with stator.events.record() as log:
        stator.compile(fn, backend="eager")(torch.ones(3))
    first = next(event.graph for event in log if type(event).__name__ == "CaptureFinished")
    outputs = next(node for node in first.graph.nodes if node.op == "output")
    assert len(outputs.args[0]) == 1


def test_owners_are_needed(monkeypatch: Any) -> None:
    monkeypatch.setattr(Owners, "kept_alive", lambda self, value: self._unbound())
    with pytest.raises(AssertionError):
        same_as_eager(referred_tensor)


def same_as_eager(fn: Any, backend: str = "eager") -> None:
    x = torch.arange(1000.0)
    wanted = run(fn, x)
    compiled = stator.compile(fn, backend=backend)
    for _ in range(3):
        found = run(compiled, x)
        assert picture(found) == picture(wanted)


def run(fn: Any, x: torch.Tensor) -> Any:
    gc.collect()
    LOG.clear()
    result = fn(x)
    return result, list(LOG)


def picture(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [picture(part) for part in value] if isinstance(value, (tuple, list)) else value


def unbound_in_a_loop(x):
    for number in range(2):
        stator.graph_break()
        if number >= 0:
            total += number  # noqa: F821  (bound by a later round alone)
    return x


def unbound_in_a_caller(x):
    def stop(value):
        stator.graph_break()
        return value

    while True:
        y = stop(x) + late  # noqa: F821  (unbound in the first round)
        late = y


def unbound_after_a_del(x):
    part = x + 1
    for number in range(3):
        if number == 1:
            del part
        stator.graph_break()
        x = x + part
    return x


@pytest.mark.parametrize("fn", [unbound_in_a_loop, unbound_in_a_caller, unbound_after_a_del], ids=lambda fn: fn.__name__)
def test_unbound_locals_stay_unbound_over_a_break(fn) -> None:
    compiled = stator.compile(fn, backend="eager", options={"strict": True})
    for subject in (fn, compiled, compiled):
        with pytest.raises(UnboundLocalError):
            subject(torch.ones(2))


def test_hooks_of_a_dead_module_that_was_made_inside() -> None:
    """A handle knows the table of its hooks by a weak reference; the module that holds the table is a dead local."""
    def fn(x: torch.Tensor, early: bool) -> Any:
        module = torch.nn.Sigmoid()

        def remove(module: Any, args: Any) -> None:
            handle.remove()

        handle = module.register_forward_pre_hook(remove)
        before = len(handle.hooks_dict_ref())
        if early:
            stator.graph_break()
        y = module(x)
        stator.graph_break()
        return y, before, len(handle.hooks_dict_ref())

    compiled = stator.compile(fn, backend="eager", options={"strict": True})
    for early in (False, True, False):
        assert picture(compiled(torch.ones(2), early)) == picture(fn(torch.ones(2), early))
