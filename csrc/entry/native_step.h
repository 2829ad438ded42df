// NativeStep: the unsupported instruction of a graph break, where it is one call or one branch.
//
// In: the live values of a segment that has ended.  Out: the resume point behind the instruction, with the values that
// live on and the result; where the instruction raises, the point that raises, with the exception.
#pragma once

#include <Python.h>

#include "entry/resume.h"

namespace stator {

extern PyTypeObject NativeStep_Type;

inline bool is_native_step(PyObject* object) { return Py_TYPE(object) == &NativeStep_Type; }

// Runs the step that is the target: afterwards the target is a resume point.  False, with an exception set, where there
// is no memory for its values.
bool run_native_step(Continuation& at);

}  // namespace stator
