"""Probes: views of dicts and C objects from outside, which show what is in them now; texts of views with open numbers."""

from __future__ import annotations

import collections
from xml.etree import ElementTree

from probing import Scene, probe, ramp
from scenery import one

import stator


@probe()
def view_of_a_dict_that_changes():
    table = {1: 2}
    held = [table.keys(), table.values(), table.items()]

    def fn(x):
        keys, values, items = held
        return x + sum(keys), list(values), sorted(items), len(keys), 3 in keys, keys & {1, 5}, [a * b for a, b in items]

    return Scene(fn, one(ramp()), lambda: table.update({3: 4}))


@probe()
def view_of_an_ordered_dict_that_changes():
    table = collections.OrderedDict({1: 2, 5: 6})
    held = [table.keys(), table.values()]
    return Scene(lambda x: (x + 1, list(held[0]), list(held[1])), one(ramp()), lambda: table.move_to_end(1))


@probe()
def dict_written_to_under_its_view():
    table = {"a": 1}
    view = table.keys()

    def fn(x):
        table["v"] = len(view)
        return x + len(view), sorted(view), view

    return Scene(fn, one(ramp()), table.clear, lambda: table)


@probe("SB009")
def view_kept_across_a_break():
    table = {"a": 1}

    def fn(x):
        keys, values = table.keys(), table.values()
        stator.graph_break()
        table["v"] = 1
        return x + len(keys), sorted(keys), list(values)

    return Scene(fn, one(ramp()), table.clear, lambda: table)


@probe()
def text_of_a_view_of_open_numbers():
    held = [3]

    def fn(x):
        shown = {1: held[0]}
        return x + 1, repr(shown.values()), str(shown.items()), f"{shown.values()}", "%s" % (shown.items(),)  # noqa: UP031

    return Scene(fn, one(ramp()), lambda: held.__setitem__(0, held[0] + 2))


@probe("SB005 SB014")
def what_a_c_object_holds():
    """A C class that Stator knows nothing of has no stand-in: which object it is says nothing of what is in it."""
    root = ElementTree.Element("root")
    root.append(ElementTree.Element("first"))
    return Scene(lambda x: (x + len(list(root)), len(sorted(root, key=str)), len(list(zip(root, root, strict=True)))),
                 one(ramp()), lambda: root.append(ElementTree.Element("more")))
