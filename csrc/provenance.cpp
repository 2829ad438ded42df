// See provenance.h.  A trace makes thousands of sources and looks them up in dicts tens of thousands of times.
#include "provenance.h"

#include <structmember.h>

#include <cstddef>

#include "ref.h"

namespace stator {
namespace {

struct ProvenanceObject {
  PyObject_HEAD
  Ref base;  // none for a root, and until it is sealed
  Ref root;  // where the chain of bases starts; none for a root itself
  Ref detail;
  Py_ssize_t depth;
  Py_hash_t hash;
};

ProvenanceObject* provenance_of(PyObject* object) { return reinterpret_cast<ProvenanceObject*>(object); }

PyObject* interned(const char* text) { return PyUnicode_InternFromString(text); }

PyObject* family_name() {
  static PyObject* name = interned("_family");
  return name;
}

PyObject* seal(PyObject* object, PyObject* const* args, Py_ssize_t count) {
  ProvenanceObject* self = provenance_of(object);
  if (count != 2 || (args[0] != Py_None && !PyObject_TypeCheck(args[0], &Provenance_Type))) {
    PyErr_SetString(PyExc_TypeError, "_seal(base, detail): the base is a source or None");
    return nullptr;
  }
  Ref family = Ref::steal(PyObject_GetAttr(object, family_name()));
  if (!family) return nullptr;
  Ref parts = Ref::steal(PyTuple_Pack(3, family.get(), args[0], args[1]));
  if (!parts) return nullptr;
  Py_hash_t hash = PyObject_Hash(parts.get());
  if (hash == -1) return nullptr;
  self->hash = hash;
  self->detail = Ref::borrow(args[1]);
  if (args[0] == Py_None) Py_RETURN_NONE;
  ProvenanceObject* base = provenance_of(args[0]);
  self->base = Ref::borrow(args[0]);
  self->root = Ref::borrow(base->root ? base->root.get() : args[0]);
  self->depth = base->depth + 1;
  Py_RETURN_NONE;
}

// -1 with an exception set.
int are_equal_values(const Ref& left, const Ref& right) {
  if (!left || !right) return left.get() == right.get();
  Ref answer = Ref::steal(PyObject_RichCompare(left.get(), right.get(), Py_EQ));
  return answer ? PyObject_IsTrue(answer.get()) : -1;
}

int are_of_one_family(PyObject* left, PyObject* right) {
  if (Py_TYPE(left) == Py_TYPE(right)) return 1;
  Ref one = Ref::steal(PyObject_GetAttr(left, family_name()));
  if (!one) return -1;
  Ref other = Ref::steal(PyObject_GetAttr(right, family_name()));
  return other ? are_equal_values(one, other) : -1;
}

// The bases stay alive meanwhile: each is held by the step above it.
int are_equal(PyObject* left, PyObject* right) {
  while (left != right) {
    if (!left || !right || provenance_of(left)->hash != provenance_of(right)->hash) return 0;
    int equal = are_of_one_family(left, right);
    if (equal > 0) equal = are_equal_values(provenance_of(left)->detail, provenance_of(right)->detail);
    if (equal <= 0) return equal;
    left = provenance_of(left)->base.get();
    right = provenance_of(right)->base.get();
  }
  return 1;
}

PyObject* compare(PyObject* left, PyObject* right, int operation) {
  if (operation != Py_EQ && operation != Py_NE) Py_RETURN_NOTIMPLEMENTED;
  int equal = PyObject_TypeCheck(right, &Provenance_Type) ? are_equal(left, right) : 0;
  if (equal < 0) return nullptr;
  return PyBool_FromLong((operation == Py_EQ) == (equal != 0));
}

Py_hash_t hash_of(PyObject* object) { return provenance_of(object)->hash; }

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(provenance_of(object)->base.get());
  Py_VISIT(provenance_of(object)->root.get());
  Py_VISIT(provenance_of(object)->detail.get());
  return 0;
}

int clear(PyObject* object) {
  provenance_of(object)->base.reset();
  provenance_of(object)->root.reset();
  provenance_of(object)->detail.reset();
  return 0;
}

void dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  clear(object);
  Py_TYPE(object)->tp_free(object);
}

PyMethodDef methods[] = {
    {"_seal", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(seal)), METH_FASTCALL,
     "_seal(base, detail): what the step starts from, and what tells it from others of its family there"},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {
    {"base", T_OBJECT, offsetof(ProvenanceObject, base), READONLY, "the source the step starts from, None for a root"},
    {"root", T_OBJECT, offsetof(ProvenanceObject, root), READONLY, "where the chain starts, None for a root itself"},
    {"detail", T_OBJECT, offsetof(ProvenanceObject, detail), READONLY, "what tells it from others of its family there"},
    {"depth", T_PYSSIZET, offsetof(ProvenanceObject, depth), READONLY, "the number of steps from there"},
    {nullptr, 0, 0, 0, nullptr}};

PyTypeObject make_type() {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "stator._core.Provenance";
  type.tp_basicsize = sizeof(ProvenanceObject);
  type.tp_dealloc = dealloc;
  type.tp_hash = hash_of;
  type.tp_richcompare = compare;
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = traverse;
  type.tp_clear = clear;
  type.tp_methods = methods;
  type.tp_members = members;
  type.tp_new = PyType_GenericNew;
  type.tp_free = PyObject_GC_Del;
  return type;
}

}  // namespace

PyTypeObject Provenance_Type = make_type();

}  // namespace stator
