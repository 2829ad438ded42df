// Resume(target, values, taken=False): what a segment that ended in a graph break returns to the trampoline.
#pragma once

#include <Python.h>

#include "ref.h"

namespace stator {

// Where a call goes on.
struct Continuation {
  Ref target;  // called next: a CompiledFunction (without a trampoline of its own), a NativeStep or any callable
  Ref values;  // a tuple; none once they were taken
  bool taken;  // the target is called with one list of the values, and may let go of them

  // The values as a list, which alone holds them from then on.
  Ref take_values() {
    Ref list = Ref::steal(PySequence_List(values.get()));
    if (list) values.reset();
    return list;
  }
};

// Not known to the garbage collector: it lives from the end of a segment to the next turn of the trampoline.
struct ResumeObject {
  PyObject_HEAD
  Continuation at;
};

extern PyTypeObject Resume_Type;

inline bool is_resume(PyObject* object) { return Py_TYPE(object) == &Resume_Type; }

Ref new_resume(Continuation at);

// Where a Resume says to go on; what nobody else holds is taken out of it.
Continuation continuation_of(Ref resume);

}  // namespace stator
