// The Python type stator._core.GuardProgram.
//
// In: GuardProgram(nodes, checks, wanted, nargs, packed=0).  Out: check(bound), values(bound), size().
#include <Python.h>

#include <memory>

#include "guards/guard_program.h"

namespace stator {
namespace {

struct ProgramObject {
  PyObject_HEAD
  GuardProgram* program;
};

PyObject* program_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"nodes", "checks", "wanted", "nargs", "packed", nullptr};
  PyObject *nodes, *checks, *wanted;
  Py_ssize_t count, packed = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOn|n:GuardProgram", const_cast<char**>(names), &nodes, &checks,
                                   &wanted, &count, &packed)) {
    return nullptr;
  }
  auto program = std::make_unique<GuardProgram>();
  if (!program->build(nodes, checks, wanted, count, packed)) return nullptr;
  auto* self = reinterpret_cast<ProgramObject*>(type->tp_alloc(type, 0));
  if (self) self->program = program.release();
  return reinterpret_cast<PyObject*>(self);
}

void program_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  delete reinterpret_cast<ProgramObject*>(self)->program;
  Py_TYPE(self)->tp_free(self);
}

int program_traverse(PyObject* self, visitproc visit, void* arg) {
  GuardProgram* program = reinterpret_cast<ProgramObject*>(self)->program;
  return program ? program->traverse(visit, arg) : 0;
}

int program_clear(PyObject* self) {
  GuardProgram* program = reinterpret_cast<ProgramObject*>(self)->program;
  if (program) program->clear();
  return 0;
}

bool parse_arguments(PyObject* bound) {
  if (PyTuple_Check(bound)) return true;
  PyErr_SetString(PyExc_TypeError, "expected the tuple of bound arguments");
  return false;
}

PyObject* program_check(PyObject* self, PyObject* bound) {
  if (!parse_arguments(bound)) return nullptr;
  GuardProgram* program = guard_program_of(self);
  return PyLong_FromSsize_t(program->run(PySequence_Fast_ITEMS(bound), PyTuple_GET_SIZE(bound), nullptr));
}

PyObject* program_values(PyObject* self, PyObject* bound) {
  if (!parse_arguments(bound)) return nullptr;
  GuardProgram* program = guard_program_of(self);
  WantedValues values;
  if (program->run(PySequence_Fast_ITEMS(bound), PyTuple_GET_SIZE(bound), &values) >= 0) {
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_NONE;
  }
  Ref result = Ref::steal(PyTuple_New(values.size()));
  for (Py_ssize_t i = 0; result && i < values.size(); ++i) {
    PyTuple_SET_ITEM(result.get(), i, new_reference(values.data()[i]));
  }
  return result.release();
}

PyObject* program_size(PyObject* self, PyObject*) {
  GuardProgram* program = guard_program_of(self);
  return Py_BuildValue("(nnn)", program->node_count(), program->check_count(), program->wanted_count());
}

PyMethodDef program_methods[] = {
    {"check", program_check, METH_O, "check(bound) -> -1, or the number of the first failed check"},
    {"values", program_values, METH_O, "values(bound) -> what the residual is called with, or None when a check fails"},
    {"size", program_size, METH_NOARGS, "size() -> (nodes, checks, wanted)"},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject make_program_type() {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "stator._core.GuardProgram";
  type.tp_basicsize = sizeof(ProgramObject);
  type.tp_dealloc = program_dealloc;
  type.tp_traverse = program_traverse;
  type.tp_clear = program_clear;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  type.tp_doc = "GuardProgram(nodes, checks, wanted, nargs, packed=0): reads and checks run at every call.";
  type.tp_methods = program_methods;
  type.tp_new = program_new;
  return type;
}

}  // namespace

PyTypeObject GuardProgram_Type = make_program_type();

GuardProgram* guard_program_of(PyObject* object) { return reinterpret_cast<ProgramObject*>(object)->program; }

}  // namespace stator
