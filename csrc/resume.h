// Resume(target, values): what a segment that ended in a graph break returns to the trampoline.
#pragma once

#include <Python.h>

namespace stator {

struct ResumeObject {
  PyObject_HEAD
  PyObject* target;  // called next: a CompiledFunction (without a trampoline of its own) or any callable
  PyObject* values;  // a tuple
};

extern PyTypeObject Resume_Type;

inline bool is_resume(PyObject* object) { return Py_TYPE(object) == &Resume_Type; }

}  // namespace stator
