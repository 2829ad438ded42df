"""Probes: locks from outside, taken and released by the program, alone, nested, and across graph breaks."""

from __future__ import annotations

import threading
from typing import Any

from probing import Scene, probe, ramp
from scenery import box, one

import stator


@probe()
def lock():
    gate = threading.Lock()

    def fn(x):
        with gate:
            held = gate.locked()
            y = x * 2
        return y, held, gate.locked()

    return Scene(fn, one(ramp()), look=gate.locked)


@probe()
def lock_around_changes():
    gate, state = threading.Lock(), {"n": 0}

    def fn(x):
        with gate:
            state["n"] += 1
            y = x * state["n"]
        print("done", state["n"])
        with gate:
            state["n"] += 1
        return y

    return Scene(fn, one(ramp()), lambda: state.update(n=10), lambda: (gate.locked(), state))


@probe()
def lock_exchanged_for_another():
    thing, first = box(gate=threading.Lock(), k=2), []
    first.append(thing.gate)

    def fn(x):
        with thing.gate:
            return x * thing.k

    return Scene(fn, one(ramp()), lambda: setattr(thing, "gate", threading.Lock()),
                 lambda: (thing.gate.locked(), first[0].locked()))


@probe("SB018")  # the second call finds the lock held, and runs eagerly
def lock_left_held():
    gate = threading.Lock()
    return Scene(lambda x: x * gate.acquire(blocking=False), one(ramp()), lambda: gate.release(), gate.locked)


@probe()
def lock_found_held():
    gate = threading.Lock()
    gate.acquire()
    return Scene(lambda x: x * 2 if gate.locked() else x * 3, one(ramp()), gate.release, gate.locked)


@probe()
def lock_released_inside():
    gate = threading.Lock()

    def args():
        gate.acquire()
        return (ramp(),)

    def fn(x):
        gate.release()
        return x * 2

    return Scene(fn, args, look=gate.locked)


@probe("SB018")
def lock_released_that_is_not_held():
    gate = threading.Lock()

    def fn(x):
        try:
            gate.release()
        except RuntimeError as error:
            return x * 2, str(error)

    return Scene(fn, one(ramp()), look=gate.locked)


@probe()
def lock_taken_twice_without_waiting():
    gate = threading.Lock()

    def fn(x):
        with gate:
            return x * 2 if gate.acquire(blocking=False) else x * 3

    return Scene(fn, one(ramp()), look=gate.locked)


@probe()
def lock_around_an_exception():
    gate = threading.Lock()

    def fn(x):
        try:
            with gate:
                y = x * 2
                raise ValueError
        except ValueError:
            return y, gate.locked()

    return Scene(fn, one(ramp()), look=gate.locked)


@probe("SB009")
def lock_around_a_break():
    gate, state = threading.Lock(), [0]

    def fn(x):
        with gate:
            state[0] += 1
            stator.graph_break()
            state[0] += 1
            held = gate.locked()
        return x * state[0], held, gate.locked()

    return Scene(fn, one(ramp()), lambda: state.__setitem__(0, 5), lambda: (gate.locked(), state))


@probe("SB009")
def reentrant_lock_around_a_break():
    gate, state = threading.RLock(), [0]

    def fn(x):
        with gate, gate:
            state[0] += 1
            stator.graph_break()
            state[0] += 1
        return x * state[0]

    return Scene(fn, one(ramp()), lambda: state.__setitem__(0, 5), lambda: (gate._is_owned(), state))


@probe()
def reentrant_lock():
    gate, state = threading.RLock(), [0]

    def fn(x):
        with gate:
            with gate:
                state[0] += 1
            return x * state[0]

    return Scene(fn, one(ramp()), lambda: state.__setitem__(0, 5), lambda: (gate._is_owned(), state))


@probe()
def two_locks():
    first, second, state = threading.Lock(), threading.Lock(), [0]

    def fn(x):
        with first, second:
            state[0] += 1
            return x * state[0]

    return Scene(fn, one(ramp()), lambda: state.__setitem__(0, 5), lambda: (first.locked(), second.locked(), state))


@probe()
def lock_taken_after_a_change():
    gate, state = threading.Lock(), [0]

    def fn(x):
        state[0] += 1
        with gate:
            return x * state[0]

    return Scene(fn, one(ramp()), lambda: state.__setitem__(0, 5), lambda: (gate.locked(), state))


@probe()
def locks_made_inside():
    kept: list[Any] = []

    def fn(x):
        plain, reentrant = threading.Lock(), threading.RLock()
        with plain, reentrant:
            y = x * 2
        plain.acquire()
        kept.append((plain, reentrant))
        return y, plain.locked()

    return Scene(fn, one(ramp()), kept.clear, lambda: [(a.locked(), b._is_owned()) for a, b in kept])


@probe()
def condition_and_event():
    condition, event = threading.Condition(), threading.Event()

    def fn(x):
        with condition:
            condition.notify_all()
        return x * 2 if event.is_set() else x * 3

    return Scene(fn, one(ramp()), event.set)


@probe()
def semaphore():
    gate = threading.Semaphore(3)

    def fn(x):
        with gate:
            return x * gate._value

    return Scene(fn, one(ramp()), lambda: gate.acquire(), lambda: gate._value)
