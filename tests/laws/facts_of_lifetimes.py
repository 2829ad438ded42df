"""Probes: weak references, finalizers and callbacks of objects that the program lets go, or makes."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from probing import Scene, probe, ramp
from scenery import Thing, box, one


class Finalized:
    """Notes its own death."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __del__(self) -> None:
        self.log.append("died")


def told_of_death(log: list[str], thing: Any) -> Any:
    return weakref.ref(thing, lambda _: log.append("died"))


@probe("SB019")
def weak_reference_asked_after_letting_go():
    holder = [Thing()]
    world = box(ref=weakref.ref(holder[0]))

    def fn(x):
        if holder:
            holder.pop()
        return x * 2 if world.ref() is None else x * 3

    def change():
        holder.append(Thing())
        world.ref = weakref.ref(holder[0])

    return Scene(fn, one(ramp()), change, lambda: world.ref() is None)


@probe("SB019")
def callback_between_two_changes():
    log: list[str] = []
    holder = [Thing()]
    world = box(ref=told_of_death(log, holder[0]))

    def fn(x):
        log.append("before")
        holder.clear()
        log.append("after")
        return x * len(log)

    def change():
        holder.append(Thing())
        world.ref = told_of_death(log, holder[0])

    return Scene(fn, one(ramp()), change, lambda: list(log))


@probe("SB019")
def finalizer_between_two_changes():
    log: list[str] = []
    holder = [Finalized(log)]

    def fn(x):
        log.append("before")
        holder.clear()
        log.append("after")
        return x * len(log)

    return Scene(fn, one(ramp()), lambda: holder.append(Finalized(log)), lambda: list(log))


@probe("SB019")
def finalizer_of_a_part_that_dies_with_it():
    log: list[str] = []
    world = box(whole=box(part=Finalized(log)))

    def fn(x):
        log.append("before")
        world.whole = None
        log.append("after")
        return x * 2

    return Scene(fn, one(ramp()), lambda: log.clear(), lambda: list(log))


@probe("SB019")
def weak_values_after_letting_go():
    table: Any = weakref.WeakValueDictionary()
    holder = [Thing()]
    table["a"] = holder[0]

    def fn(x):
        holder.clear()
        return x * len(table), table.get("a") is None, "a" in table

    def change():
        holder.append(Thing())
        table["a"] = holder[0]

    return Scene(fn, one(ramp()), change, lambda: len(table))


@probe("SB019")
def weak_set_after_letting_go():
    members: Any = weakref.WeakSet()
    holder = [Thing()]
    members.add(holder[0])

    def fn(x):
        holder.clear()
        return x * len(members), list(members)

    def change():
        holder.append(Thing())
        members.add(holder[0])

    return Scene(fn, one(ramp()), change, lambda: len(members))


@probe("SB019")
def finalize_of_a_fresh_object():
    log: list[str] = []

    def fn(x):
        thing = Thing()
        weakref.finalize(thing, log.append, "died")
        log.append("made")
        del thing
        return x * len(log)

    return Scene(fn, one(ramp()), log.clear, lambda: list(log))


@probe("SB019")
def weak_method():
    class Part:
        scale = 2

        def run(self):
            return self.scale

    part = Part()
    reference = weakref.WeakMethod(part.run)
    return Scene(lambda x: x * reference()(), one(ramp()), lambda: setattr(part, "scale", 5))


@probe()
def weak_reference_to_a_fresh_object():
    def fn(x):
        thing = Thing()
        reference = weakref.ref(thing)
        alive = reference() is thing
        del thing
        return x * 2, alive, reference() is None

    return Scene(fn, one(ramp()))


@probe()
def weak_keys_written():
    key = Thing()
    table = weakref.WeakKeyDictionary({key: 1})

    def fn(x):
        table[key] += 1
        return x * table[key], key in table, len(table)

    return Scene(fn, one(ramp()), lambda: table.__setitem__(key, 7), lambda: list(table.values()))


@probe()
def let_go_without_being_seen():
    holder = [Thing(), Thing()]

    def fn(x):
        holder.pop()
        holder.append(Thing())
        return x * len(holder)

    return Scene(fn, one(ramp()), lambda: holder.append(Thing()), lambda: len(holder))


@probe("SB010")
def weak_reference_to_a_dead_local():
    @torch.compiler.disable
    def refer(value):
        return weakref.ref(value)

    @torch.compiler.disable
    def is_alive(ref):
        return ref() is not None

    def fn(x):
        y = x * 2
        ref = refer(y)
        return x + is_alive(ref)

    return Scene(fn, one(ramp()))
