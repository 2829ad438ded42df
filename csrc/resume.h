// Resume(target, values, taken=False): what a segment that ended in a graph break returns to the trampoline.
#pragma once

#include <Python.h>

namespace stator {

struct ResumeObject {
  PyObject_HEAD
  PyObject* target;  // called next: a CompiledFunction (without a trampoline of its own) or any callable
  PyObject* values;  // a tuple
  bool taken;        // the target is called with one list of the values, and may let go of them
};

extern PyTypeObject Resume_Type;

// The values as a list, which alone holds them from then on.
inline PyObject* take_values(ResumeObject* resume) {
  PyObject* list = PySequence_List(resume->values);
  if (list) Py_CLEAR(resume->values);
  return list;
}

inline bool is_resume(PyObject* object) { return Py_TYPE(object) == &Resume_Type; }

}  // namespace stator
