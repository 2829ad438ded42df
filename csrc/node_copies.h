// Nodes of an FX graph, made again on other tensors: what stator/graph/fx/nodes.py does, in C++.
#pragma once
#include <Python.h>

namespace stator {

PyObject* copy_nodes(PyObject*, PyObject* const* args, Py_ssize_t count);

}  // namespace stator
