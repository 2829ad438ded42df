"""Probes: numpy arrays and scalars from outside: read, written, viewed, shared with tensors, made inside."""

from __future__ import annotations

import array
import ctypes
import pickle
from typing import Any

import numpy as np
import torch
from probing import Scene, probe, ramp
from scenery import box, namespace_function, one

BREAKS = "SB003 SB005 SB006"


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


# ---------------------------------------------------------------------- scalars


@probe()
def numpy_scalar():
    slot = [np.float32(2)]
    return Scene(lambda x: x * float(slot[0]), one(ramp()), lambda: slot.__setitem__(0, np.float32(3)))


@probe()
def numpy_scalar_in_tensor_operations():
    slot: list[Any] = [np.float32(2), np.int64(2), np.float64(0.5)]
    return Scene(lambda x: (x * slot[0], slot[0] * x, x.reshape(slot[1], -1), x[slot[1]], torch.full((2,), slot[2]),
                            torch.tensor([slot[2]]), torch.tensor(slot[0]), slot[1] + 1), one(ramp()),
                 lambda: slot.__setitem__(slice(None), [np.float32(3), np.int64(1), np.float64(5)]))


@probe()
def truth_of_a_numpy_scalar():
    slot = [np.bool_(True)]
    return Scene(lambda x: x * 2 if slot[0] else x * 3, one(ramp()), lambda: slot.__setitem__(0, np.bool_(False)))


@probe()
def length_of_a_numpy_text():
    slot = [np.str_("ab")]
    return Scene(lambda x: (x * len(slot[0]), slot[0]), one(ramp()), lambda: slot.__setitem__(0, np.str_("abc")))


# ---------------------------------------------------------------------- arrays


@probe()
def numpy_array_changed_in_place():
    values = np.array([1.0, 2.0, 3.0, 4.0])
    return Scene(lambda x: x * float(values[1]) + values[2], one(ramp()), lambda: values.__setitem__(1, 7.0),
                 lambda: values)


@probe()
def numpy_array_written_inside():
    values = np.zeros(4)

    def fn(x):
        values[0] += 1
        values[1:3] = x.shape[0]
        return x * 2

    return Scene(fn, one(ramp()), lambda: values.fill(7), lambda: values)


@probe()
def numpy_array_in_functions():
    values = np.array([3.0, 1.0, 2.0, 4.0])

    def fn(x):
        return (x * values.sum(), np.mean(values), np.sort(values), np.argsort(values), np.where(values > 2, values, 0),
                np.concatenate([values, values]), values.astype(np.int32), values * 2 + 1, -values, (values > 2).any(),
                np.linspace(0, 1, 5), np.unique(values), np.percentile(values, 50), np.stack([values, values]),
                np.linalg.norm(values), np.einsum("i,i->", values, values), np.eye(2), values[values > 2], str(values),
                f"{values}", list(values), values.tolist(), 2.0 in values, values @ values, np.add.reduce(values))

    return Scene(fn, one(ramp()), lambda: values.__setitem__(0, 9.0), lambda: values)


@probe()
def numpy_text_under_other_options():
    values = floats(1.23456789, 2)
    kept = np.get_printoptions()["precision"]
    return Scene(lambda x: (x * 2, repr(values)), one(ramp()), lambda: np.set_printoptions(precision=2),
                 undo=lambda: np.set_printoptions(precision=kept))


@probe()
def numpy_views_of_one_array():
    values = np.arange(6.0).reshape(2, 3)

    def fn(x):
        row = values[1]
        row[0] = 50
        return x * values[1, 0], row, values.T, values[:, 1], values.reshape(-1)

    return Scene(fn, one(ramp()), lambda: values.fill(7), lambda: values)


@probe()
def numpy_arrays_made_inside():
    kept: list[Any] = []

    def fn(x):
        whole = np.zeros(3)
        part = whole[1:]
        part[0] = x.shape[0]
        kept.append(whole)
        return x * whole[1], whole, part, np.arange(6).reshape(2, 3)

    return Scene(fn, one(ramp()), kept.clear, lambda: kept)


@probe()
def numpy_array_with_gaps():
    whole = np.arange(12.0)
    values = whole[::3]

    def fn(x):
        values[1] = 100
        return x * float(values[2]), values.strides, values[::-1] + 1

    return Scene(fn, one(ramp()), lambda: whole.fill(3), lambda: whole)


@probe()
def numpy_array_that_is_read_only():
    values = floats(1, 2)
    values.flags.writeable = False

    def fn(x):
        try:
            values[0] = 3
        except ValueError as error:
            return x * 2, str(error)

    return Scene(fn, one(ramp()), look=lambda: values)


@probe("SB015")
def numpy_warning():
    values = np.array([1.0, 0.0])
    return Scene(lambda x: (x * 2, values / 0), one(ramp()), lambda: values.fill(3))


@probe(BREAKS)
def numpy_array_given_another_shape():
    values = np.arange(6.0)

    def fn(x):
        values.shape = (2, 3)
        return x * values.shape[0]

    return Scene(fn, one(ramp()), lambda: setattr(values, "shape", (6,)), lambda: values)


@probe(BREAKS)
def numpy_array_of_objects():
    values = np.array([[1], None], dtype=object)

    def fn(x):
        values[0].append(2)
        return x * len(values[0])

    return Scene(fn, one(ramp()), lambda: values[0].clear(), lambda: values.tolist())


@probe(BREAKS)
def numpy_array_of_records():
    values = np.zeros(2, dtype=[("a", "f4")])

    def fn(x):
        values["a"][0] += 1
        return x * float(values["a"][0])

    return Scene(fn, one(ramp()), lambda: values.fill(0), lambda: values.tolist())


@probe(BREAKS)
def numpy_array_too_large_to_compare():
    values = np.ones(2_000_000, np.float32)
    return Scene(lambda x: x * float(values[5]), one(ramp()), lambda: values.fill(2))


@probe(BREAKS)
def numpy_arrays_that_come_to_overlap():
    memory = np.zeros(6)
    slot = [np.zeros(3)]

    def fn(x, first, second):
        first[0] += 1
        return x * float(second[0])

    return Scene(fn, lambda: (ramp(), memory[:3], slot[0]), lambda: slot.__setitem__(0, memory[:3]), lambda: memory)


@probe(BREAKS)
def numpy_arrays_outside_that_come_to_overlap():
    memory = np.zeros(6)
    pair = [memory[:3], np.zeros(3)]

    def fn(x):
        pair[0][0] += 1
        return x * float(pair[1][0])

    return Scene(fn, one(ramp()), lambda: pair.__setitem__(1, memory[:3]), lambda: memory)


@probe()
def numpy_array_as_an_attribute():
    thing = box(values=np.array([2.0, 3.0]))

    def fn(x):
        thing.values = thing.values + 1
        return x * thing.values[0]

    return Scene(fn, one(ramp()), lambda: setattr(thing, "values", np.array([9.0, 9.0])), lambda: thing.values)


# ---------------------------------------------------------------------- arrays and tensors


@probe()
def numpy_array_as_a_tensor():
    values = np.ones(4, dtype=np.float32)
    return Scene(lambda x: (x * torch.from_numpy(values), torch.tensor(values), torch.as_tensor(values)), one(ramp()),
                 lambda: values.fill(7), lambda: values)


@probe()
def numpy_array_as_an_argument():
    slot = [floats(1, 2, 3, 4)]
    return Scene(lambda x, values: x * torch.from_numpy(values), lambda: (ramp(), slot[0]),
                 lambda: slot.__setitem__(0, np.ones(4)))


@probe()
def numpy_array_of_another_shape_as_a_tensor():
    slot = [floats(1, 2, 3)]
    return Scene(lambda x: x.sum() * torch.from_numpy(slot[0]), one(ramp()), lambda: slot.__setitem__(0, floats(1, 2)))


@probe()
def large_numpy_array_as_a_tensor():
    values = np.ones(2_000_000, np.float32)
    return Scene(lambda x: x * torch.from_numpy(values).sum(), one(ramp()), lambda: values.fill(2))


@probe()
def numpy_array_changed_through_a_tensor():
    values = floats(1, 2, 3, 4)

    def fn(x):
        shared = torch.from_numpy(values)
        shared.add_(x)
        return shared * 2, shared

    return Scene(fn, one(ramp()), lambda: values.fill(7), lambda: values)


@probe(BREAKS)
def numpy_array_read_after_a_tensor_changed_it():
    values = floats(1, 2, 3, 4)

    def fn(x):
        torch.from_numpy(values).add_(x)
        return x * float(values[0])

    return Scene(fn, one(ramp()), lambda: values.fill(7), lambda: values)


@probe(BREAKS)
def tensor_read_after_its_array_was_written():
    values = floats(1, 2, 3, 4)

    def fn(x):
        shared = torch.from_numpy(values)
        values[0] = 9
        return x * shared

    return Scene(fn, one(ramp()), lambda: values.fill(7), lambda: values)


@probe(BREAKS)
def array_written_before_it_is_a_tensor():
    values = floats(1, 2, 3, 4)

    def fn(x):
        values[0] = x.shape[0]
        return x * torch.from_numpy(values)

    return Scene(fn, one(ramp()), lambda: values.fill(7), lambda: values)


@probe()
def array_written_after_it_was_copied():
    values = floats(1, 2, 3, 4)

    def fn(x):
        copied = torch.tensor(values)
        values[0] = 9
        return x * copied

    return Scene(fn, one(ramp()), lambda: values.fill(7), lambda: values)


@probe(BREAKS)
def tensor_changed_that_comes_to_share_an_array():
    values, slot = floats(0, 0, 0, 0), [torch.zeros(4)]

    def fn(x, other):
        other.add_(1)
        return x * float(values[0])

    return Scene(fn, lambda: (ramp(), slot[0]), lambda: slot.__setitem__(0, torch.from_numpy(values)), lambda: values)


@probe()
def literal_arrays_as_tensors():
    def fn(x):
        return x * torch.from_numpy(np.arange(4, dtype=np.float32)), torch.tensor(np.array([[1, 2], [3, 4]]))

    return Scene(fn, one(ramp()))


@probe()
def tensor_as_an_array():
    def fn(x):
        y = x * 2
        array = y.numpy()
        y.add_(1)
        return array, y, array.shape, torch.from_numpy(array) + 1, x.detach().cpu().numpy()

    return Scene(fn, one(ramp()))


@probe(BREAKS)
def tensor_read_as_an_array():
    return Scene(lambda x: x * float(np.mean((x * 2).numpy())), one(ramp()))


@probe()
def tensor_indexed_by_arrays():
    places = np.array([0, 2])
    return Scene(lambda x: (x[places], x.reshape(2, 2)[:, places // 2]), one(ramp()), lambda: places.fill(1))


@probe()
def numpy_function_replaced():
    module = box(mean=np.mean)
    fn, names = namespace_function("def fn(x): return x * np.mean([1.0, 3.0])", np=module)
    return Scene(fn, one(ramp()), lambda: setattr(module, "mean", np.max))


def shown(owner: Any, view: Any) -> Scene:
    return Scene(lambda x: (x * view[1], bytes(view), len(view), view.obj is owner), one(ramp()),
                 lambda: view.__setitem__(1, 5), lambda: bytes(owner))


@probe()
def memory_view_of_a_bytearray():
    owner = bytearray(b"abcd")
    return shown(owner, memoryview(owner))


@probe()
def memory_view_of_an_array():
    owner = array.array("B", [1, 2, 3])
    return shown(owner, memoryview(owner))


@probe("SB005")
def memory_view_of_a_part():
    owner = bytearray(b"abcdef")
    return shown(owner, memoryview(owner)[1:4])


@probe("SB005")
def memory_view_of_a_numpy_array():
    owner = np.arange(4, dtype=np.uint8)
    return shown(owner, memoryview(owner))


@probe("SB005")
def memory_of_ctypes():
    owner = (ctypes.c_ubyte * 3)(1, 2, 3)
    return Scene(lambda x: (x * 2, bytes(owner)), one(ramp()), lambda: owner.__setitem__(0, 9), lambda: bytes(owner))


@probe()
def arrays_handed_back_beside_the_memory_of_a_tensor():
    held = [np.arange(4, dtype=np.float32)]

    def fn(x):
        mine = x.numpy()
        first, second = np.atleast_1d(held[0], mine)
        third, fourth = np.broadcast_arrays(held[0], mine)
        return x * 2, first is held[0], second is mine, third is held[0], fourth is mine, first, third

    return Scene(fn, one(ramp()), lambda: held.__setitem__(0, held[0] + 1), lambda: held[0].tolist())


@probe("SB005")
def bytes_of_c_objects_in_a_list():
    held = [(ctypes.c_ubyte * 4)(1, 2, 3, 4)]
    return Scene(lambda x: (x + 1, b"".join([b"a", held[0]]), bytearray(b"-").join((held[0], b"b"))), one(ramp()),
                 lambda: held[0].__setitem__(0, 77))


@probe()
def bytes_of_buffers_in_a_list():
    held = [bytearray(b"ab"), b"cd"]
    return Scene(lambda x: (x + 1, b"-".join(held), b"".join(part for part in held)), one(ramp()),
                 lambda: held[0].__setitem__(0, 77))


@probe("SB005")
def bytes_of_an_object_without_items():
    memory = bytearray(b"abcd")
    shown = pickle.PickleBuffer(memory)
    return Scene(lambda x: (x + 1, bytes(shown), b"".join([shown])), one(ramp()), lambda: memory.__setitem__(0, 77))
