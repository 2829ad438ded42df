// See entry.h.
#include "entry/entry.h"

namespace stator {

PyObject* eager_sentinel = nullptr;
PyObject* retry_sentinel = nullptr;

namespace {

int entry_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<EntryObject*>(object);
  Py_VISIT(self->program.get());
  Py_VISIT(self->residual.get());
  Py_VISIT(self->tag.get());
  return 0;
}

int entry_clear(PyObject* object) {
  auto* self = reinterpret_cast<EntryObject*>(object);
  self->program.reset();
  self->residual.reset();
  self->tag.reset();
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

Ref new_entry(PyObject* program, PyObject* residual, PyObject* tag) {
  Ref made = Ref::steal(Entry_Type.tp_alloc(&Entry_Type, 0));
  if (!made) return made;
  auto* entry = made.as<EntryObject>();
  entry->program = Ref::borrow(program);
  entry->residual = Ref::borrow(residual);
  entry->tag = Ref::borrow(tag);
  entry->failed_check = -1;
  return made;
}

}  // namespace stator
