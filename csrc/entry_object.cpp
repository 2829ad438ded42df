// One specialisation of a compiled function, and the EAGER sentinel.  See entry.h.
#include <Python.h>

#include "entry.h"

namespace stator {

PyObject* eager_sentinel = nullptr;
PyObject* retry_sentinel = nullptr;

namespace {

int entry_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<EntryObject*>(object);
  Py_VISIT(self->program);
  Py_VISIT(self->residual);
  Py_VISIT(self->tag);
  return 0;
}

int entry_clear(PyObject* object) {
  auto* self = reinterpret_cast<EntryObject*>(object);
  Py_CLEAR(self->program);
  Py_CLEAR(self->residual);
  Py_CLEAR(self->tag);
  return 0;
}

void entry_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  entry_clear(object);
  Py_TYPE(object)->tp_free(object);
}

PyObject* eager_repr(PyObject*) { return PyUnicode_FromString("EAGER"); }

PyTypeObject make_entry_type() {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "stator._core.Entry";
  type.tp_basicsize = sizeof(EntryObject);
  type.tp_dealloc = entry_dealloc;
  type.tp_traverse = entry_traverse;
  type.tp_clear = entry_clear;
  type.tp_free = PyObject_GC_Del;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  type.tp_doc = "One guarded specialisation of a compiled function.";
  return type;
}

PyTypeObject make_eager_type() {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "stator._core.Eager";
  type.tp_basicsize = sizeof(PyObject);
  type.tp_repr = eager_repr;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  type.tp_doc = "The residual that means: call the function as it is.";
  return type;
}

}  // namespace

PyTypeObject Entry_Type = make_entry_type();
PyTypeObject Eager_Type = make_eager_type();

EntryObject* new_entry(PyObject* program, PyObject* residual, PyObject* tag) {
  auto* entry = PyObject_GC_New(EntryObject, &Entry_Type);
  if (!entry) return nullptr;
  Py_INCREF(program);
  entry->program = program;
  Py_INCREF(residual);
  entry->residual = residual;
  Py_INCREF(tag);
  entry->tag = tag;
  entry->hits = 0;
  entry->failed_check = -1;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(entry));
  return entry;
}

}  // namespace stator
