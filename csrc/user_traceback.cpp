// An exception that leaves a compiled function shows the frames that eager would have shown.
#include "user_traceback.h"

#include <frameobject.h>

#include <string>

namespace stator {

namespace {

std::string own_folder;

bool is_own(PyTracebackObject* entry) {
  PyCodeObject* code = PyFrame_GetCode(entry->tb_frame);
  Py_ssize_t length = 0;
  const char* name = PyUnicode_AsUTF8AndSize(code->co_filename, &length);
  Py_DECREF(code);
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

void drop_own_frames() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  bool any_foreign = false;
  for (auto* entry = entry_of(traceback); entry && !any_foreign; entry = entry->tb_next) any_foreign = !is_own(entry);
  if (any_foreign) {
    while (traceback && is_own(entry_of(traceback))) {
      auto* first = entry_of(traceback);
      PyObject* rest = reinterpret_cast<PyObject*>(first->tb_next);
      Py_XINCREF(rest);
      Py_DECREF(traceback);
      traceback = rest;
    }
    for (auto* entry = entry_of(traceback); entry; entry = entry->tb_next) {
      while (entry->tb_next && is_own(entry->tb_next)) {
        PyTracebackObject* dropped = entry->tb_next;
        entry->tb_next = dropped->tb_next;
        Py_XINCREF(reinterpret_cast<PyObject*>(entry->tb_next));
        Py_DECREF(reinterpret_cast<PyObject*>(dropped));
      }
    }
    if (value && PyExceptionInstance_Check(value) && traceback) PyException_SetTraceback(value, traceback);
  }
  PyErr_Restore(type, value, traceback);
}

PyObject* set_own_folder(PyObject*, PyObject* path) {
  const char* text = PyUnicode_AsUTF8(path);
  if (!text) return nullptr;
  own_folder = text;
  Py_RETURN_NONE;
}

}  // namespace stator
