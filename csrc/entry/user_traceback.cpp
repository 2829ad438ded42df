// An exception that leaves a compiled function shows the frames that eager would have shown.
#include "entry/user_traceback.h"

#include <frameobject.h>

#include <string>

#include "pending_error.h"

namespace stator {

namespace {

std::string own_folder;

bool is_own(PyTracebackObject* entry) {
  Ref code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(entry->tb_frame)));
  Py_ssize_t length = 0;
  const char* name = PyUnicode_AsUTF8AndSize(code.as<PyCodeObject>()->co_filename, &length);
  if (!name) {
    PyErr_Clear();
    return false;
  }
  std::string text(name, static_cast<size_t>(length));
  return text.compare(0, 7, "<stator") == 0 ||
         (!own_folder.empty() && text.compare(0, own_folder.size(), own_folder) == 0);
}

PyTracebackObject* entry_of(PyObject* traceback) {
  return traceback && PyTraceBack_Check(traceback) ? reinterpret_cast<PyTracebackObject*>(traceback) : nullptr;
}

}  // namespace

Ref past_own_frames(Ref traceback) {
  while (entry_of(traceback.get()) && is_own(entry_of(traceback.get()))) {
    traceback = Ref::borrow(entry_of(traceback.get())->tb_next);
  }
  return traceback;
}

void drop_own_frames() {
  PendingError error = PendingError::fetch();
  auto first = [&] { return entry_of(error.traceback.get()); };
  bool any_foreign = false;
  for (auto* entry = first(); entry && !any_foreign; entry = entry->tb_next) any_foreign = !is_own(entry);
  if (any_foreign) {
    error.traceback = past_own_frames(std::move(error.traceback));
    for (auto* entry = first(); entry; entry = entry->tb_next) {
      while (entry->tb_next && is_own(entry->tb_next)) {
        // The field is CPython's: its reference goes out of it, and the next entry's into it.
        Ref dropped = Ref::steal(reinterpret_cast<PyObject*>(entry->tb_next));
        Ref rest = Ref::borrow(dropped.as<PyTracebackObject>()->tb_next);
        entry->tb_next = reinterpret_cast<PyTracebackObject*>(rest.release());
      }
    }
    PyObject* value = error.value.get();
    if (value && PyExceptionInstance_Check(value) && error.traceback) {
      PyException_SetTraceback(value, error.traceback.get());
    }
  }
  error.restore();
}

PyObject* set_own_folder(PyObject*, PyObject* path) {
  const char* text = PyUnicode_AsUTF8(path);
  if (!text) return nullptr;
  own_folder = text;
  Py_RETURN_NONE;
}

}  // namespace stator
