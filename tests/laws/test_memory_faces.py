"""One memory, several faces: a write through one face is seen through every other, as in eager.

Each case is a memory, the face that is written to, the face that is read, a way to write and a way to read.  The faces
are made inside the compiled function, or come as two arguments that share memory, or come to share it at a later call.
"""

from __future__ import annotations

import array
import ctypes
import io
import itertools
import mmap
import random
import struct
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import stator
from stator.heap.shared_state import Faces

SIZE, CASES = 8, 14  # bytes of a memory; cases of a memory and a mode that are run


def _mapped() -> mmap.mmap:
    made = mmap.mmap(-1, SIZE)
    made[:] = bytes(range(SIZE))
    return made


MEMORIES: dict[str, Any] = {
    "bytearray": lambda: bytearray(range(SIZE)),
    "array": lambda: array.array("B", range(SIZE)),
    "mmap": _mapped,
    "ctypes": lambda: (ctypes.c_uint8 * SIZE)(*range(SIZE)),
    "ndarray": lambda: np.arange(SIZE, dtype=np.uint8),
    "tensor": lambda: torch.arange(SIZE, dtype=torch.uint8),
}
# A face: its kind, and how it is made of a memory.
_OF_BUFFERS: dict[str, tuple[str, Any]] = {
    "itself": ("buffer", lambda m: m),
    "view": ("view", lambda m: memoryview(m).cast("B")),
    "slice": ("view", lambda m: memoryview(m).cast("B")[:6]),
    "array": ("array", lambda m: np.frombuffer(m, dtype=np.uint8)),
    "tensor": ("tensor", lambda m: torch.frombuffer(m, dtype=torch.uint8)),
    "tensor of an array": ("tensor", lambda m: torch.from_numpy(np.frombuffer(m, dtype=np.uint8))),
}
_OF_ARRAYS: dict[str, tuple[str, Any]] = {
    "itself": ("array", lambda m: m),
    "slice": ("array", lambda m: m[:6]),
    "from_numpy": ("tensor", torch.from_numpy),
    "as_tensor": ("tensor", lambda m: torch.as_tensor(m)),
    "from_dlpack": ("tensor", lambda m: torch.from_dlpack(m)),
    "view": ("view", lambda m: memoryview(m)),
    "slice of a tensor": ("tensor", lambda m: torch.from_numpy(m)[:6]),
}
_OF_TENSORS: dict[str, tuple[str, Any]] = {
    "itself": ("tensor", lambda m: m),
    "numpy": ("array", lambda m: m.numpy()),
    "asarray": ("array", lambda m: np.asarray(m)),
    "slice": ("tensor", lambda m: m[:6]),
    "data": ("tensor", lambda m: m.data),
    "detach": ("tensor", lambda m: m.detach()),
    "storage": ("storage", lambda m: m.untyped_storage()),
    "set_": ("tensor", lambda m: torch.empty(0, dtype=torch.uint8).set_(m.untyped_storage())),
    "from_dlpack": ("tensor", lambda m: torch.from_dlpack(m)),
    "numpy's dlpack": ("array", lambda m: np.from_dlpack(m)),
    "view": ("view", lambda m: memoryview(m.numpy())),
}
FACES = {**dict.fromkeys(("bytearray", "array", "mmap", "ctypes"), _OF_BUFFERS), "ndarray": _OF_ARRAYS,
         "tensor": _OF_TENSORS}


def store(face: Any) -> None:
    face[0] = 77


def add_in_place(face: Any) -> None:
    face += 1


def pack(face: Any) -> None:
    struct.pack_into("B", face, 0, 88)


def read_into(face: Any) -> None:
    io.BytesIO(b"cd").readinto(face)


WRITERS: dict[str, list[Any]] = {
    "buffer": [store, pack],
    "view": [store, pack, read_into],
    "array": [store, add_in_place, lambda a: np.add(a, 1, out=a), lambda a: np.copyto(a, 3), lambda a: a.fill(6)],
    "tensor": [store, lambda t: t.add_(1), lambda t: torch._foreach_add_([t], 1), lambda t: torch.add(t, 1, out=t),
               lambda t: torch.ops.aten.add_.Scalar(t, 1)],
    "storage": [store, lambda s: s.fill_(5)],
}
READERS: dict[str, list[Any]] = {
    "buffer": [lambda b: b[0], bytes, lambda b: struct.unpack_from("B", b, 0)],
    "view": [lambda v: v[0], bytes],
    "array": [lambda a: a[0], lambda a: a.copy(), lambda a: a.sum()],
    "tensor": [lambda t: t[0].item(), lambda t: t + 0, lambda t: t.tolist()],
    "storage": [lambda s: s[0], list],
}
MODES = {"inside": (True, True), "shared": (True, True), "come to share": (False, True), "come apart": (True, False)}


def picture(value: Any) -> Any:
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        return type(value).__name__, str(value.dtype), value.tolist()
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [picture(part) for part in value]
    return type(value).__name__, value


def outcome(fn: Any, args: tuple[Any, ...], memories: list[Any]) -> Any:
    try:
        result = picture(fn(*args))
    except Exception as error:
        result = type(error).__name__, str(error)
    return result, [picture(memory if isinstance(memory, torch.Tensor) else bytes(memory)) for memory in memories]


def cases(kind: str, mode: str) -> list[Any]:
    every = [(write_name, read_name, write, read) for write_name, read_name in itertools.product(FACES[kind], repeat=2)
             for write in WRITERS[FACES[kind][write_name][0]] for read in READERS[FACES[kind][read_name][0]]]
    return random.Random(f"{kind} {mode}").sample(every, CASES)


def differs(kind: str, mode: str, backend: str, case: tuple[Any, ...]) -> Any:
    """None, or what eager and the compiled function answer where they differ."""
    writing, reading, write, read = case
    make, write_face, read_face = MEMORIES[kind], FACES[kind][writing][1], FACES[kind][reading][1]

    def inside(memory: Any) -> Any:
        written, seen = write_face(memory), read_face(memory)
        before = read(seen)
        write(written)
        return before, read(seen)

    def outside(written: Any, seen: Any) -> Any:
        write(written)
        return read(seen)

    fn = inside if mode == "inside" else outside
    compiled = stator.compile(fn, backend=backend)
    for shared in (*MODES[mode], MODES[mode][0]):
        answers = []
        for function in (fn, compiled):
            first = make()
            second = first if shared else make()
            args = (first,) if mode == "inside" else (write_face(first), read_face(second))
            answers.append(outcome(function, args, [first, second]))
        if answers[0] != answers[1]:
            return writing, reading, answers
    return None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", MEMORIES)
def test_a_write_is_seen_through_every_face(kind: str, mode: str, backend: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = cases(kind, mode)[:None if backend == "eager" else CASES // 3]
        found = [differs(kind, mode, backend, case) for case in chosen]
    assert not [each for each in found if each is not None]


def fill_and_read(t: Any, b: Any) -> Any:
    t.add_(1)
    return b[0]


def store_and_add(b: Any, t: Any) -> Any:
    b[0] = 5
    return t + 0


KNOWN = [fill_and_read, store_and_add]


@pytest.mark.parametrize("fn", KNOWN)
@pytest.mark.parametrize("kind", ["bytearray", "array", "ndarray"])
def test_two_arguments_on_one_memory(kind: str, fn: Any) -> None:
    compiled = stator.compile(fn, backend="eager")
    for _ in range(2):
        answers = []
        for function in (fn, compiled):
            memory = MEMORIES[kind]()
            tensor = torch.frombuffer(memory, dtype=torch.uint8)
            answers.append(outcome(function, (tensor, memory) if fn is fill_and_read else (memory, tensor), [memory]))
        assert answers[0] == answers[1]


@pytest.mark.parametrize("method", ["add_copy", "add_tensor", "refuse_stale"])
def test_faces_are_needed(method: str, monkeypatch: Any) -> None:
    """Without the record of faces the same programs are wrong."""
    monkeypatch.setattr(Faces, method, lambda self, *args: None)
    with pytest.raises(AssertionError):
        for kind in ("bytearray", "ndarray"):
            for fn in KNOWN:
                test_two_arguments_on_one_memory(kind, fn)
        memory = np.arange(SIZE, dtype=np.uint8)
        case = ("from_numpy", "itself", WRITERS["tensor"][1], READERS["array"][1])
        assert differs("ndarray", "inside", "eager", case) is None, memory


def grow(b: bytearray, x: torch.Tensor) -> torch.Tensor:
    shown = np.frombuffer(b, dtype=np.uint8)
    b.append(1)
    return x + int(shown[0])


def test_a_buffer_with_an_array_on_it_keeps_its_size() -> None:
    compiled = stator.compile(grow, backend="eager")
    for fn in (grow, compiled, compiled):
        with pytest.raises(BufferError):
            fn(bytearray(8), torch.ones(2))


def two_tensors(a: np.ndarray) -> tuple[bool, torch.Tensor, torch.Tensor]:
    first, second = torch.from_numpy(a), torch.as_tensor(a)
    first.add_(1)
    return first is second, first, second


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_each_conversion_makes_a_tensor(backend: str) -> None:
    compiled = stator.compile(two_tensors, backend=backend)
    for _ in range(2):
        a = np.arange(3.0)
        same, first, second = compiled(a)
        assert not same and first is not second
        assert first.tolist() == second.tolist() == a.tolist() == [1.0, 2.0, 3.0]
