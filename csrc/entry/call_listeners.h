// Python functions that hear of calls that do not run compiled.
#pragma once

#include <Python.h>

#include "ref.h"

namespace stator {

// After a call that a residual handed back to the original function by returning EAGER.  The result of the call comes
// back, or nothing where the listener raised.
Ref tell_redone(PyObject* compiled, Ref result);
// Before a call that runs the original function without an entry and without a miss.  False: the listener raised, and
// the call must not be made.
bool tell_eager(PyObject* compiled, const char* reason);

// listen_to_redone(function): called as function(compiled, exception or None, traceback or None).
PyObject* listen_to_redone(PyObject* module, PyObject* listener);
// listen_to_eager(function): called as function(compiled, reason).
PyObject* listen_to_eager(PyObject* module, PyObject* listener);

}  // namespace stator
