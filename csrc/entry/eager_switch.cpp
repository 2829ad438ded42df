// Which threads run compiled functions eagerly now.  The GIL protects the counters that threads share.
#include "entry/eager_switch.h"

#include <cstring>

namespace stator {

int eager_reasons = 0;

namespace {

thread_local int depth = 0;
bool forced = false;

}  // namespace

bool is_stepped() {
  PyObject* tracer = PyThreadState_Get()->c_traceobj;
  return tracer && std::strncmp(Py_TYPE(tracer)->tp_name, "coverage.", 9) != 0;
}

const char* reason_to_run_eagerly() {
  if (forced) return "the stance is 'force_eager'";
  return depth > 0 ? "compilation is disabled here" : nullptr;
}

PyObject* enter_eager(PyObject*, PyObject*) {
  ++depth;
  ++eager_reasons;
  Py_RETURN_NONE;
}

PyObject* leave_eager(PyObject*, PyObject*) {
  if (depth == 0) {
    PyErr_SetString(PyExc_RuntimeError, "leave_eager() without enter_eager() on this thread");
    return nullptr;
  }
  --depth;
  --eager_reasons;
  Py_RETURN_NONE;
}

PyObject* eager_depth(PyObject*, PyObject*) { return PyLong_FromLong(depth); }

PyObject* force_eager(PyObject*, PyObject* flag) {
  int on = PyObject_IsTrue(flag);
  if (on < 0) return nullptr;
  eager_reasons += on - (forced ? 1 : 0);
  forced = on != 0;
  Py_RETURN_NONE;
}

}  // namespace stator
