// See call_listeners.h.
#include "entry/call_listeners.h"

#include "pending_error.h"

namespace stator {

namespace {

// Never destroyed: at exit the interpreter goes before static objects do.
Ref& redo_listener = *new Ref();
Ref& eager_listener = *new Ref();

}  // namespace

Ref tell_redone(PyObject* compiled, Ref result) {
  Ref listener = Ref::borrow(redo_listener.get());
  if (!listener) return result;
  PendingError error;
  if (!result) {
    error = PendingError::fetch();
    error.normalize();
  }
  PyObject* arguments[] = {compiled, error.value ? error.value.get() : Py_None,
                           error.traceback ? error.traceback.get() : Py_None};
  if (!Ref::steal(PyObject_Vectorcall(listener.get(), arguments, 3, nullptr))) return Ref();
  if (!result) error.restore();
  return result;
}

bool tell_eager(PyObject* compiled, const char* reason) {
  Ref listener = Ref::borrow(eager_listener.get());
  if (!listener) return true;
  PyThreadState* thread = PyThreadState_Get();
  PyThreadState_EnterTracing(thread);  // a debugger steps through the program alone
  Ref told = Ref::steal(PyObject_CallFunction(listener.get(), "Os", compiled, reason));
  PyThreadState_LeaveTracing(thread);
  return static_cast<bool>(told);
}

PyObject* listen_to_redone(PyObject*, PyObject* listener) {
  redo_listener = Ref::borrow(listener);
  Py_RETURN_NONE;
}

PyObject* listen_to_eager(PyObject*, PyObject* listener) {
  eager_listener = Ref::borrow(listener);
  Py_RETURN_NONE;
}

}  // namespace stator
