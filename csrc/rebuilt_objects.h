// What the residual program gives to an instance it makes anew: its attributes, the items of a dict, the
// members of a set in the order that its history gave it.
#pragma once

#include <Python.h>

namespace stator {

// set_vars(object, attributes): adds them to the instance dict, whatever the class says about `__dict__`.
PyObject* set_vars(PyObject* module, PyObject* const* args, Py_ssize_t count);

// set_items(dict, items): adds them to a dict or OrderedDict, whatever its class says about `__setitem__`.
PyObject* set_items(PyObject* module, PyObject* const* args, Py_ssize_t count);

// set_layout(set): the size of its table, where `pop` goes on, and the slots taken with the hashes in them.  Runs no
// code of the members.
PyObject* set_layout(PyObject* module, PyObject* value);

// fill_set(set or class, layout, members, not hashed=()): an empty set, or a new one of `set` or `frozenset`, with the
// members in the slots of the layout; where one of them hashes otherwise than then, all are added one by one.  Members
// whose numbers are in `not hashed` have the hashes of the layout.
PyObject* fill_set(PyObject* module, PyObject* const* args, Py_ssize_t count);

}  // namespace stator
