// One guarded specialisation of a compiled function, and the sentinels that stand for a call as it is.
#pragma once

#include <Python.h>

#include "ref.h"

namespace stator {

// When the program's checks hold, the residual runs.
struct EntryObject {
  PyObject_HEAD
  Ref program;
  Ref residual;
  Ref tag;
  unsigned long long hits;
  Py_ssize_t failed_check;  // of the last try; -1: it has not failed
};

// Nothing, with an exception set, when there is no memory.
Ref new_entry(PyObject* program, PyObject* residual, PyObject* tag);

extern PyTypeObject Entry_Type;
extern PyTypeObject Eager_Type;
// A residual that means: this call runs the function as it is.
extern PyObject* eager_sentinel;
// What a miss answers when the entry it added fits the call.
extern PyObject* retry_sentinel;

}  // namespace stator
