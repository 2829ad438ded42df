// Tracebacks that show the user's frames: what Stator itself put between them is taken out.
#pragma once

#include <Python.h>

#include "ref.h"

namespace stator {

// Unlinks from the current exception's traceback the entries of our own code, unless there are no others.
void drop_own_frames();

// A traceback without the entries of our own code at its top.
Ref past_own_frames(Ref traceback);

// set_own_folder(path): code whose file name starts with it, or with "<stator", is our own.
PyObject* set_own_folder(PyObject*, PyObject* path);

}  // namespace stator
