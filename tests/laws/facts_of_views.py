"""Probes: buffers that have views, keys that hold numbers, references as keys, tokens, finalizers."""

from __future__ import annotations

import array
import contextvars
import weakref

import torch
from probing import Scene, probe, ramp
from scenery import box, one

import stator


@probe("SB006")
def buffer_resized_under_a_view():
    memory = bytearray(range(6))
    view = memoryview(memory)

    def fn(x):
        memory[1] = 4
        try:
            memory.append(3)
        except BufferError as error:
            return x * memory[1], str(error)
        return x + len(memory)

    return Scene(fn, one(ramp()), view.release, lambda: memory)


@probe("SB006")
def buffer_that_comes_to_have_a_view():
    numbers, views = array.array("i", range(6)), []

    def fn(x):
        try:
            numbers.append(3)
        except BufferError as error:
            return x + 1, str(error)
        return x + len(numbers)

    return Scene(fn, one(ramp()), lambda: views.append(memoryview(numbers)), lambda: numbers)


@probe("SB006")
def outside_view_released():
    memory = bytearray(range(6))
    views = [memoryview(memory)]

    def fn(x):
        views[0].release()
        memory.append(3)
        return x + len(memory)

    return Scene(fn, one(ramp()), lambda: views.__setitem__(0, memoryview(bytearray(2))), lambda: memory)


@probe()
def view_made_inside_keeps_the_size():
    memory = bytearray(range(6))

    def fn(x):
        with memoryview(memory) as view:
            view[0] += 1
            try:
                memory.append(3)
            except BufferError as error:
                text = str(error)
        memory.append(4)
        return x + len(memory), text

    return Scene(fn, one(ramp()), lambda: memory.__setitem__(0, 40), lambda: memory)


@probe()
def numbers_in_keys_that_change():
    thing = box(n=1)
    table, members = {(1, thing): 5, (2, thing): 6}, {3, thing}

    def fn(x):
        return x * table[1, thing], [key[0] for key in table], 3 in members, 9 in members, thing in members

    def change():
        table[7, thing] = table.pop((2, thing))
        members.discard(3)
        members.add(9)

    return Scene(fn, one(ramp()), change, lambda: len(table))


class Doubling(set):
    def add(self, value):
        super().add(value * 2)


@probe()
def set_of_a_class_that_doubles():
    members = Doubling([1])

    def fn(x):
        members.add(4)
        members.discard(1)
        return x * len(members), 8 in members, members | {5}, sorted(members)

    return Scene(fn, one(ramp()), lambda: members.add(50), lambda: sorted(members))


@probe()
def hash_of_a_reference():
    thing = box(n=1)
    reference = weakref.ref(thing)
    references = {reference}
    return Scene(lambda x: (x + 1, hash(reference) == hash(thing), reference in references, len(references)), one(ramp()),
                 lambda: setattr(thing, "n", 2))


@probe("SB005")
def old_value_of_a_token():
    variable = contextvars.ContextVar("variable", default=torch.ones(4))

    def fn(x):
        token = variable.set(x)
        doubled = variable.get() * 2
        variable.reset(token)
        return doubled + variable.get(), token.old_value is contextvars.Token.MISSING

    return Scene(fn, one(ramp()), lambda: variable.set(torch.zeros(4)), lambda: variable.get())


@probe("SB019")
def finalizer_that_is_asked():
    thing, log = box(n=1), []
    finalizer = weakref.finalize(thing, log.append, 1)
    return Scene(lambda x: (x * thing.n, finalizer.alive), one(ramp()), lambda: finalizer(), lambda: log)


@probe("SB009")
def objects_that_are_only_known_weakly_across_a_break():
    def fn(x):
        first, others = box(n=1), [box(n=2), box(n=3)]
        table, members = weakref.WeakKeyDictionary({first: 1}), weakref.WeakSet(others)
        stator.graph_break()
        counts = len(table), len(members)
        stator.graph_break()
        return x + 1, counts, len(table), len(members)

    return Scene(fn, one(ramp()))
