// The exception of this thread, taken off it.
//
// In: whatever exception is set, or none.  Out: its parts; `restore` sets it again, else it is dropped.
#pragma once

#include "ref.h"

namespace stator {

struct PendingError {
  Ref type, value, traceback;

  static PendingError fetch() {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    return {Ref::steal(type), Ref::steal(value), Ref::steal(traceback)};
  }

  void normalize() {
    PyObject *own_type = type.release(), *own_value = value.release(), *own_traceback = traceback.release();
    PyErr_NormalizeException(&own_type, &own_value, &own_traceback);
    *this = {Ref::steal(own_type), Ref::steal(own_value), Ref::steal(own_traceback)};
  }

  void restore() { PyErr_Restore(type.release(), value.release(), traceback.release()); }
};

}  // namespace stator
