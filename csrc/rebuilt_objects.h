// What the residual program gives to an instance it makes anew: its attributes and, of a dict, its items.
#pragma once

#include <Python.h>

namespace stator {

// set_vars(object, attributes): adds them to the instance dict, whatever the class says about `__dict__`.
PyObject* set_vars(PyObject* module, PyObject* const* args, Py_ssize_t count);

// set_items(dict, items): adds them to a dict or OrderedDict, whatever its class says about `__setitem__`.
PyObject* set_items(PyObject* module, PyObject* const* args, Py_ssize_t count);

}  // namespace stator
