"""Prove that intercepted frames leave nothing behind.   (hook, frames)  ->  list of what leaked, in words

sys.gettotalrefcount needs a debug build, so four independent witnesses are compared before and after:
reference counts of the objects that every call touches (exact), live instances made per call (exact), the
number of objects the collector knows (a few of slack for interpreter caches), and resident memory.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

OBJECT_SLACK = 50
# A frame that is not cleared pins its arguments, 100 bytes and more; the rotation answers for every other
# frame or so, hence 5 MiB at least over 100,000.
RSS_SLACK_BYTES = 3 << 20
WARM_UP_FRAMES = 5_000


class Token:
    """An argument made for one call; `alive` counts those not yet destroyed."""

    alive = 0

    def __init__(self) -> None:
        Token.alive += 1

    def __del__(self) -> None:
        Token.alive -= 1


def positional(a: Any, b: Any, c: Any = None) -> Any:
    return a


def with_everything(a: Any, /, *rest: Any, k: Any, d: Any = None, **named: Any) -> Any:
    inner = positional(a, k)
    return lambda: (inner, rest)


def make_closure(free: Any) -> Callable[[Any], Any]:
    def closure(a: Any) -> Any:
        return free, a

    return closure


def raising(a: Any) -> Any:
    raise ValueError(a)


def generator(a: Any) -> Iterator[Any]:
    yield a
    yield positional(a, a)


async def coroutine(a: Any) -> Any:
    return a


class Holder:
    def method(self, a: Any) -> Any:
        return self, a


class CallbackError(Exception):
    pass


FUNCTIONS = (positional, with_everything, make_closure, raising, generator, coroutine, Holder.method)


class Rotation:
    """Answers in turn: a value, an exception, RUN_ALL, RUN; so every function meets every answer."""

    def __init__(self, hook: ModuleType) -> None:
        self.hook = hook
        self.frames = 0

    def __call__(self, func: Any, args: tuple[Any, ...], closure: Any) -> Any:
        if func.__code__ in DRIVERS:
            return self.hook.RUN
        self.frames += 1
        turn = self.frames % 7
        if turn < 2:
            return args
        if turn == 2:
            raise CallbackError(args)
        return self.hook.RUN_ALL if turn == 3 else self.hook.RUN


def one_round(shared: Any, holder: Holder) -> None:
    calls = (
        lambda: positional(Token(), shared, c=Token()),
        lambda: with_everything(Token(), shared, Token(), k=Token(), z=shared),
        lambda: make_closure(Token())(shared),
        lambda: raising(Token()),
        lambda: list(generator(shared)),
        lambda: next(iter(generator(Token()))),
        lambda: coroutine(Token()).close(),
        lambda: holder.method(Token()),
        lambda: exec(CLASS_BODY, {"shared": shared}),
    )
    for call in calls:
        try:
            call()
        except (CallbackError, ValueError, AttributeError, TypeError):
            pass  # Rotation's own error, raising's, or a tuple where a coroutine or a closure was expected


CLASS_BODY = compile("class Body:\n    attribute = shared", "<class body>", "exec")
DRIVERS = {one_round.__code__} | {code for code in one_round.__code__.co_consts if hasattr(code, "co_code")}


def run_frames(hook: ModuleType, frames: int, shared: Any, holder: Holder) -> int:
    rotation = Rotation(hook)
    hook.skip_code(Token.__init__.__code__)  # answered for, it would not count
    hook.skip_code(Token.__del__.__code__)
    hook.set_callback(rotation)
    hook.enter()
    while rotation.frames < frames:
        one_round(shared, holder)
    hook.leave()
    hook.set_callback(None)
    return rotation.frames


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass
class Witness:
    refcounts: dict[str, int]
    alive: int
    objects: int
    resident: int

    @classmethod
    def take(cls, shared: Any, holder: Holder) -> Witness:
        gc.collect()
        watched = {"shared": shared, "holder": holder, "globals": globals()}
        for function in FUNCTIONS:
            watched[function.__qualname__] = function
            watched[f"code of {function.__qualname__}"] = function.__code__
        counts = {name: sys.getrefcount(value) for name, value in watched.items()}
        return cls(counts, Token.alive, len(gc.get_objects()), resident_bytes())


def leaks(hook: ModuleType, frames: int) -> tuple[int, list[str]]:
    """Intercept at least `frames` frames. Returns how many, and one line per witness that saw a leak."""
    shared, holder = object(), Holder()
    run_frames(hook, WARM_UP_FRAMES, shared, holder)
    before = Witness.take(shared, holder)
    intercepted = run_frames(hook, frames, shared, holder)
    after = Witness.take(shared, holder)
    found = [
        f"references to {name}: {count} -> {after.refcounts[name]}"
        for name, count in before.refcounts.items()
        if after.refcounts[name] != count
    ]
    if after.alive != before.alive:
        found.append(f"live arguments: {before.alive} -> {after.alive}")
    if after.objects > before.objects + OBJECT_SLACK:
        found.append(f"objects: {before.objects} -> {after.objects}")
    if after.resident > before.resident + RSS_SLACK_BYTES:
        found.append(f"resident memory: {before.resident >> 10} -> {after.resident >> 10} KiB")
    return intercepted, found
