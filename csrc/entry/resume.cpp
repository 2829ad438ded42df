// The Resume type: a target and the live values it goes on with.
#include "entry/resume.h"

namespace stator {

namespace {

ResumeObject* resume_of(PyObject* object) { return reinterpret_cast<ResumeObject*>(object); }

PyObject* resume_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject *target, *values;
  int taken = 0;
  if (kwargs && PyDict_GET_SIZE(kwargs) > 0) {
    PyErr_SetString(PyExc_TypeError, "Resume takes no keyword arguments");
    return nullptr;
  }
  if (!PyArg_ParseTuple(args, "OO!|p:Resume", &target, &PyTuple_Type, &values, &taken)) return nullptr;
  Ref made = Ref::steal(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  auto* self = made.as<ResumeObject>();
  self->target = Ref::borrow(target);
  self->values = Ref::borrow(values);
  self->taken = taken != 0;
  return made.release();
}

int resume_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(resume_of(object)->target.get());
  Py_VISIT(resume_of(object)->values.get());
  return 0;
}

int resume_clear(PyObject* object) {
  resume_of(object)->target.reset();
  resume_of(object)->values.reset();
  return 0;
}

void resume_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  resume_clear(object);
  Py_TYPE(object)->tp_free(object);
}

PyObject* get_target(PyObject* object, void*) { return new_reference(resume_of(object)->target.get()); }

PyObject* get_values(PyObject* object, void*) {
  PyObject* values = resume_of(object)->values.get();
  return new_reference(values ? values : Py_None);
}

PyGetSetDef resume_getset[] = {
    {"target", get_target, nullptr, "what is called next", nullptr},
    {"values", get_values, nullptr, "the live values it is called with", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject make_type() {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "stator._core.Resume";
  type.tp_basicsize = sizeof(ResumeObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  type.tp_doc = "Resume(target, values, taken=False): go on with target(*values), or target([*values]), which may drop them";
  type.tp_new = resume_new;
  type.tp_traverse = resume_traverse;
  type.tp_clear = resume_clear;
  type.tp_dealloc = resume_dealloc;
  type.tp_getset = resume_getset;
  return type;
}

}  // namespace

PyTypeObject Resume_Type = make_type();

}  // namespace stator
