// See rebuilt_objects.h.
#include "rebuilt_objects.h"

namespace stator {

PyObject* set_vars(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2 || !PyDict_CheckExact(args[1])) {
    PyErr_SetString(PyExc_TypeError, "set_vars(object, attributes)");
    return nullptr;
  }
  PyObject* own = PyObject_GenericGetDict(args[0], nullptr);
  if (!own) return nullptr;
  int failed = PyDict_Update(own, args[1]);
  Py_DECREF(own);
  if (failed) return nullptr;
  Py_RETURN_NONE;
}

PyObject* set_items(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2 || !PyDict_Check(args[0]) || !PyDict_CheckExact(args[1])) {
    PyErr_SetString(PyExc_TypeError, "set_items(dict, items)");
    return nullptr;
  }
  bool ordered = PyODict_Check(args[0]);
  PyObject *key, *value;
  Py_ssize_t place = 0;
  while (PyDict_Next(args[1], &place, &key, &value)) {
    if ((ordered ? PyODict_SetItem(args[0], key, value) : PyDict_SetItem(args[0], key, value)) < 0) return nullptr;
  }
  Py_RETURN_NONE;
}

}  // namespace stator
