// Tracebacks that show the user's frames: what Stator itself put between them is taken out.
#pragma once

#include <Python.h>

namespace stator {

// Unlinks from the current exception's traceback the entries of our own code, unless there are no others.
void drop_own_frames();

// set_own_folder(path): code whose file name starts with it, or with "<stator", is our own.
PyObject* set_own_folder(PyObject*, PyObject* path);

}  // namespace stator
