"""Probes: the order of sets, which their histories decide: asked for, changed, iterated and kept."""

from __future__ import annotations

import types
import weakref

from probing import Scene, probe, ramp
from scenery import one

import stator
from stator._core import set_layout


class Hashed:
    """Two share a place in a small table when their numbers are 8 apart."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __hash__(self) -> int:
        return self.n

    def __eq__(self, other: object) -> bool:
        return type(other) is Hashed and other.n == self.n


class Named(set):
    """A set with a class of its own."""


class Plain:
    def __init__(self, n: int) -> None:
        self.n = n


# The same in every world: their addresses decide the order.
PLAIN = [Plain(i) for i in range(8)]
LISTS = [[i] for i in range(6)]


def once_large(count: int, *members: int) -> set[int]:
    """A set whose table is larger than its members ask for."""
    made = set(range(count))
    made -= set(range(count))
    made.update(members)
    return made


def changed_by(change, *first, kind=set):
    """A scene: `change` is done to a set, which then comes to hold the same members in another order."""
    members = kind(first)

    def fn(x):
        result = change(members)
        return x + len(members), result

    def other_history():
        members.clear()
        members.update(reversed(first))

    return Scene(fn, one(ramp()), other_history, lambda: (list(members), set_layout(members)))


@probe()
def set_merged_in_place():
    def change(s):
        s |= {2, 9}
    return changed_by(change, 7, 2, 5)


@probe()
def set_added_to_and_taken_from():
    def change(s):
        s.add(9)
        s.discard(5)
        s.add(13)
        s.add(1)
        s.remove(13)
    return changed_by(change, 0, 8, 5)


@probe()
def set_of_its_own_class_changed():
    def change(s):
        s.add(16)
        s.discard(8)
        s.update([8, 24])
    return changed_by(change, 0, 8, 5, kind=Named)


@probe()
def set_popped_and_put_back():
    def change(s):
        first, second = s.pop(), s.pop()
        s.add(first)
        return first, second
    return changed_by(change, 7, 2, 5, 100, 64)


@probe()
def set_cleared_and_filled():
    def change(s):
        s.clear()
        s.update([3, 11, 19])
    return changed_by(change, 0, 8, 16)


@probe()
def set_cut_down():
    def change(s):
        s &= {8, 0, 16}
        s -= {16}
        s ^= {24, 0}
    return changed_by(change, 0, 8, 16, 3)


@probe()
def set_changed_by_what_fails():
    def change(s):
        try:
            s.update([24, []])
        except TypeError as error:
            return str(error)
    return changed_by(change, 0, 8, 16)


@probe()
def set_copied_with_another_history():
    held = [once_large(100, 0, 8, 16)]

    def fn(x):
        s = held[0]
        return x + 1, list(s | {3}), list(s.copy()), list(s & {0, 8, 16}), list(s - {8}), list(s ^ {8, 3})

    return Scene(fn, one(ramp()), lambda: held.__setitem__(0, {16, 8, 0}))


@probe()
def frozenset_with_another_history():
    held = [frozenset([0, 8, 16])]
    return Scene(lambda x: (x + 1, list(held[0]), [n * 2 for n in held[0]]), one(ramp()),
                 lambda: held.__setitem__(0, frozenset([8, 0, 16])))


@probe()
def set_of_hashed_objects_iterated():
    points = [Hashed(8 * i) for i in range(3)]
    held = [set(points)]

    def fn(x):
        for point in held[0]:
            x = x * 2 + point.n
        return x

    return Scene(fn, one(ramp()), lambda: held.__setitem__(0, {points[1], points[0], points[2]}))


@probe()
def set_of_hashed_objects_changed():
    points = [Hashed(8 * i) for i in range(6)]
    members = set(points[:3])

    def fn(x):
        members.add(points[4])
        members.discard(points[1])
        members.add(points[5])
        members.add(points[1])
        members.discard(points[4])
        return x + 1

    return Scene(fn, one(ramp()), members.clear, lambda: [point.n for point in members])


@probe()
def set_of_plain_objects_changed():
    members = set(PLAIN[:3])

    def fn(x):
        members.add(PLAIN[4])
        members.discard(PLAIN[1])
        members.add(PLAIN[5])
        members.add(PLAIN[1])
        return x + len(members)

    return Scene(fn, one(ramp()), members.clear, lambda: ([each.n for each in members], set_layout(members)))


@probe("SB013")
def set_of_plain_objects_merged():
    members = set(PLAIN[:2])
    more = {PLAIN[4], PLAIN[6], PLAIN[7]}

    def fn(x):
        nonlocal members
        members |= more
        members.discard(PLAIN[0])
        return x + len(members)

    return Scene(fn, one(ramp()), members.clear, lambda: [each.n for each in members])


@probe()
def set_changed_while_iterated():
    members = {0, 8, 16}

    def fn(x):
        try:
            for number in members:
                members.add(number + 100)
        except RuntimeError as error:
            return x + 1, str(error)
        return x

    return Scene(fn, one(ramp()), lambda: members.discard(8), lambda: (list(members), set_layout(members)))


@probe("SB013 SB014")
def set_of_plain_objects_changed_while_iterated():
    members = set(PLAIN[:3])

    def fn(x):
        seen = []
        try:
            for each in members:
                seen.append(each.n)
                members.discard(PLAIN[2])
        except RuntimeError as error:
            return x + 1, str(error), seen
        return x, seen

    return Scene(fn, one(ramp()), lambda: members.update(PLAIN[3:6]), lambda: [each.n for each in members])


@probe("SB009")
def break_while_sets_are_iterated():
    numbers, objects = {0, 8, 16}, set(PLAIN[:3])

    def fn(x):
        for number in numbers:
            stator.graph_break()
            x = x * 2 + number
        for each in objects:
            stator.graph_break()
            x = x * 2 + each.n
        inside = {5, 13, 21}
        for number in inside:
            stator.graph_break()
            x = x * 2 + number
        return x

    return Scene(fn, one(ramp()), lambda: numbers.add(3))


@probe()
def iterators_of_outside_sets_kept():
    numbers, objects = {0, 8, 16}, set(PLAIN[:3])

    def fn(x):
        first, second = iter(numbers), iter(objects)
        return x + next(first), first, next(second).n, second

    def listed(x):
        value, first, n, second = fn(x)
        return value, list(first), n, [each.n for each in second], type(first), type(second)

    return Scene(listed, one(ramp()), lambda: numbers.add(3))


@probe()
def iterators_of_sets_that_have_ended():
    """They have let go of their sets, which may change, and yield nothing more."""
    numbers, objects, kept = {0, 8, 16}, set(PLAIN[:3]), []

    def fn(x):
        ended = [iter(numbers), iter(objects), iter({3, 5})]
        for each in ended:
            for _ in each:
                pass
        numbers.add(5)
        objects.discard(PLAIN[1])
        kept[:] = ended
        return x + 1

    return Scene(fn, one(ramp()), lambda: numbers.add(3),
                 lambda: (numbers.add(99), len(objects), [(type(each), list(each)) for each in kept]))


@probe()
def iterators_of_unchanged_sets_that_have_ended():
    numbers, objects, kept = {0, 8, 16}, set(PLAIN[:3]), []

    def fn(x):
        ended = [iter(numbers), iter(objects), iter({3, 5})]
        for each in ended:
            for _ in each:
                pass
        kept[:] = ended
        return x + 1

    return Scene(fn, one(ramp()), lambda: numbers.add(3),
                 lambda: (numbers.add(99), [(type(each), list(each)) for each in kept]))


@probe("SB013")
def numbers_joined_by_a_plain_object():
    """The table could be given as it lies until then: how large it gets depends on who shares a place with the object."""
    members = {0, 8}

    def fn(x):
        members.add(PLAIN[4])
        members.update({3, 11})
        return x + len(members)

    return Scene(fn, one(ramp()), members.clear,
                 lambda: (PLAIN[4] in members, [getattr(each, "n", each) for each in members], set_layout(members)))


def order_of(make, target_of):
    """A scene: the order of a set made inside, of what `make` gives for plain objects from outside."""
    plain = PLAIN[:6]

    def fn(x):
        made = {make(each) for each in plain}
        return x + len(made), [target_of(each).n for each in made], made

    return Scene(fn, one(ramp()), plain.reverse, lambda: len(plain))


@probe("SB013")
def set_made_inside_of_plain_objects():
    return order_of(lambda each: each, lambda each: each)


@probe("SB013 SB019")
def set_made_inside_of_weak_references():
    return order_of(weakref.ref, lambda each: each())


@probe("SB013")
def set_made_inside_of_generic_aliases():
    return order_of(lambda each: types.GenericAlias(list, (each,)), lambda each: each.__args__[0])


@probe("SB013")
def set_made_inside_of_methods_in_c():
    return order_of(lambda each: each.__repr__, lambda each: each.__self__)


@probe("SB013 SB019")
def weak_set_made_inside():
    plain = PLAIN[:6]

    def fn(x):
        return x + 1, [each.n for each in weakref.WeakSet(plain)]

    return Scene(fn, one(ramp()), plain.reverse, lambda: len(plain))


@probe("SB013")
def set_made_inside_of_methods_of_lists():
    lists = LISTS[:]

    def fn(x):
        return x + 1, [each.__self__[0] for each in {each.append for each in lists}]

    return Scene(fn, one(ramp()), lists.reverse, lambda: len(lists))


def filled_by(fill):
    """A scene: a set made inside, of plain objects from outside, leaves as `fill` has filled it."""
    plain, kept = PLAIN[:7], []

    def fn(x):
        kept[:] = fill(plain)
        return x + len(kept)

    return Scene(fn, one(ramp()), plain.reverse, lambda: [[getattr(each, "n", each) for each in made] for made in kept])


@probe()
def set_filled_by_additions():
    def fill(plain):
        made = set()
        for each in plain:
            made.add(each)
            made.add(plain[0])
        made.update([plain[2], PLAIN[7]])
        return [made]

    return filled_by(fill)


@probe()
def set_filled_by_a_call_and_a_display():
    return filled_by(lambda plain: [set(plain), frozenset(plain), {*plain}, {plain[3], plain[1]}, Named(plain),
                                    {each: 1 for each in plain}.keys(), {each.n for each in plain}])


@probe("SB013")
def set_emptied_in_between():
    def fill(plain):
        made = set(plain)
        made.discard(plain[1])
        made.add(plain[1])
        return [made]

    return filled_by(fill)


@probe("SB013")
def set_filled_by_an_operator():
    return filled_by(lambda plain: [set(plain[:3]) | set(plain[2:])])


def weakly_changed_by(change):
    """A scene: `change` is done to a set of weak references to objects that Python code hashes."""
    kept = [Hashed(i) for i in (0, 8, 16, 3, 5)]
    members = {weakref.ref(each) for each in kept[:4]}

    def fn(x):
        change(members, kept)
        return x + len(members)

    def other_history():
        kept[3] = Hashed(11)
        members.clear()
        members.update(map(weakref.ref, reversed(kept[:4])))

    return Scene(fn, one(ramp()), other_history, lambda: ([each().n for each in members], set_layout(members)))


@probe()
def weak_references_taken_out_of_a_set():
    return weakly_changed_by(lambda members, kept: members.difference_update([weakref.ref(kept[1])]))


@probe()
def weak_references_joined_to_a_set():
    def change(members, kept):
        members ^= {weakref.ref(kept[0]), weakref.ref(kept[4])}

    return weakly_changed_by(change)


@probe("SB013")
def weak_references_to_objects_that_change():
    def change(members, kept):
        members.difference_update([weakref.ref(kept[1])])
        kept[0].n = 100

    return weakly_changed_by(change)
