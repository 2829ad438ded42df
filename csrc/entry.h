// The entry object, what `stator.compile(fn)` returns and every call goes through, and its specialisations.
#pragma once

#include <Python.h>

namespace stator {

// One guarded specialisation: when the program's checks hold, the residual runs.
struct EntryObject {
  PyObject_HEAD
  PyObject* program;
  PyObject* residual;
  PyObject* tag;
  unsigned long long hits;
  Py_ssize_t failed_check;  // of the last try; -1: it has not failed
};

EntryObject* new_entry(PyObject* program, PyObject* residual, PyObject* tag);

extern PyTypeObject CompiledFunction_Type;
extern PyTypeObject Entry_Type;
extern PyTypeObject Eager_Type;
// A residual that means: this call runs the function as it is.
extern PyObject* eager_sentinel;
// What a miss answers when the entry it added fits the call.
extern PyObject* retry_sentinel;

// listen_to_redone(function): called as function(compiled, exception or None, traceback or None) after each call that a
// residual handed back to the original function by returning EAGER.
PyObject* listen_to_redone(PyObject* module, PyObject* listener);
// listen_to_eager(function): called as function(compiled, reason) before each call that runs the original function
// without an entry and without a miss.
PyObject* listen_to_eager(PyObject* module, PyObject* listener);

}  // namespace stator
