"""Rules for locks.   with lock: y = x * self.scale  ->  the whole call, made while the lock is held

A lock that the program takes is taken by the residual, without waiting, before anything is read; the facts are
checked under it, and whatever the program released is released at the end.  Where the lock is not free the call runs
eagerly, and waits as it would.  Sections of one call run together, with what comes before them: no other thread gets
in between, and none can tell that it could not, as nothing in the call waits.
"""

from __future__ import annotations

import _thread
import re
from dataclasses import dataclass
from typing import Any

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.source import CallOf, Pinned, Source

LOCK: type = type(_thread.allocate_lock())
RLOCK: type = _thread.RLock
_COUNT = re.compile(r" count=(\d+) ")


@dataclass
class LockState:
    """How the program has used one outside lock: `depth` counts what it holds of it now."""

    lock: Any
    source: Source
    taken: bool  # by the residual, before the call; else it was held already
    start: int  # what the residual holds of it when it runs
    depth: int


def held_count(lock: Any) -> int:
    """A pure reader for guards: how often a lock is taken; a reentrant one, by this thread."""
    if type(lock) is not RLOCK:
        return int(lock.locked())
    found = _COUNT.search(repr(lock)) if getattr(lock, "_is_owned")() else None  # nothing else tells
    return 0 if found is None else int(found[1])


def _methods(names: str) -> list[Any]:
    return [cls.__dict__[name] for cls in (LOCK, RLOCK) for name in names.split() if name in cls.__dict__]


@rule(*_methods("acquire acquire_lock __enter__"))
def _acquire(vm: VM, callee: Any, lock: Any, /, *options: Any, **kwargs: Any) -> bool:
    if id(lock) in vm.fresh:
        if type(lock) is LOCK and getattr(lock, "locked")():
            raise Break("SB018", "a lock that is taken twice")
        return vm.native_unhooked(callee, (lock, *options), kwargs)
    if any(type(value) not in (bool, int, float) for value in (*options, *kwargs.values())) \
            or len(options) > 2 or set(kwargs) - {"blocking", "timeout"}:
        raise Break("SB018", "a lock with unusual arguments")
    state = vm.locks.used.get(id(lock))
    if state is not None:
        if state.depth and type(lock) is LOCK:
            if not (options[0] if options else kwargs.get("blocking", True)):
                return False
            raise Break("SB018", "a lock that is taken twice, which waits for ever")
        state.depth += 1
        return True
    source = vm.heap.source_of(lock)
    if vm.locks.answers.get(source):
        raise Break("SB018", "a lock that was seen taken")
    if vm.effects.watched:
        raise Break("SB018", "a lock that is taken after output through the user's own code, which may take it too")
    vm.locks.used[id(lock)] = LockState(lock, source, True, 1, 1)
    vm.heap.note_handled(lock)
    return True


@rule(*_methods("release release_lock __exit__"))
def _release(vm: VM, callee: Any, lock: Any, /, *error: Any, **kwargs: Any) -> Any:
    if id(lock) in vm.fresh:
        return vm.native_unhooked(callee, (lock, *error), kwargs)
    state = vm.locks.used.get(id(lock))
    count = held_count(lock) if state is None else state.depth
    if not count:
        raise Break("SB018", "the release of a lock that is not held")
    if state is None:
        source = vm.heap.source_of(lock)
        vm.heap.guard(CallOf(Pinned(held_count), (source,)), Kind.FRESH_CALL, count)
        state = vm.locks.used[id(lock)] = LockState(lock, source, False, count, count)
        vm.heap.note_handled(lock)
    state.depth -= 1
    return None


@rule(*_methods("locked locked_lock _is_owned"))
def _is_held(vm: VM, callee: Any, lock: Any, /) -> bool:
    if id(lock) in vm.fresh:
        return vm.native_unhooked(callee, (lock,))
    state = vm.locks.used.get(id(lock))
    if state is not None:
        return state.depth > 0
    source, count = vm.heap.source_of(lock), held_count(lock)
    vm.heap.guard(CallOf(Pinned(held_count), (source,)), Kind.FRESH_CALL, count)
    vm.locks.answers[source] = count
    return count > 0
