// Resume(target, values, taken=False): what a segment that ended in a graph break returns to the trampoline.
#pragma once

#include <Python.h>

#include "ref.h"

namespace stator {

struct ResumeObject {
  PyObject_HEAD
  Ref target;  // called next: a CompiledFunction (without a trampoline of its own) or any callable
  Ref values;  // a tuple; none once they were taken
  bool taken;  // the target is called with one list of the values, and may let go of them
};

extern PyTypeObject Resume_Type;

// The values as a list, which alone holds them from then on.
inline Ref take_values(ResumeObject* resume) {
  Ref list = Ref::steal(PySequence_List(resume->values.get()));
  if (list) resume->values.reset();
  return list;
}

inline bool is_resume(PyObject* object) { return Py_TYPE(object) == &Resume_Type; }

}  // namespace stator
