// See rebuilt_objects.h.
#include "rebuilt_objects.h"

#include "ref.h"

namespace stator {

PyObject* set_vars(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2 || !PyDict_CheckExact(args[1])) {
    PyErr_SetString(PyExc_TypeError, "set_vars(object, attributes)");
    return nullptr;
  }
  Ref own = Ref::steal(PyObject_GenericGetDict(args[0], nullptr));
  if (!own || PyDict_Update(own.get(), args[1]) < 0) return nullptr;
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

PyObject* set_layout(PyObject*, PyObject* value) {
  if (!PyAnySet_Check(value)) {
    PyErr_SetString(PyExc_TypeError, "set_layout(set)");
    return nullptr;
  }
  auto* set = reinterpret_cast<PySetObject*>(value);
  Ref slots = Ref::steal(PyList_New(0));
  if (!slots) return nullptr;
  for (Py_ssize_t i = 0; i <= set->mask; i++) {
    const setentry& entry = set->table[i];
    if (!entry.key) continue;
    Ref slot = Ref::steal(Py_BuildValue("nn", i, static_cast<Py_ssize_t>(entry.hash)));  // -1: a member was there
    if (!slot || PyList_Append(slots.get(), slot.get()) < 0) return nullptr;
  }
  Ref taken = Ref::steal(PyList_AsTuple(slots.get()));
  if (!taken) return nullptr;
  return Py_BuildValue("nnO", set->mask, set->finger, taken.get());
}

namespace {

// What stands in a slot whose member was removed: no name of it is public.
PyObject* removed_member() {
  static PyObject* known = nullptr;
  if (known) return known;
  Ref one = Ref::steal(PyLong_FromLong(1));
  Ref set = Ref::steal(one ? PySet_New(nullptr) : nullptr);
  if (set && PySet_Add(set.get(), one.get()) == 0 && PySet_Discard(set.get(), one.get()) == 1) {
    known = set.as<PySetObject>()->table[1].key;
  }
  return known;
}

int set_size(PySetObject* set, Py_ssize_t mask) {
  if (mask == set->mask) return 0;
  auto* table = static_cast<setentry*>(PyMem_Calloc(static_cast<size_t>(mask) + 1, sizeof(setentry)));
  if (!table) return PyErr_NoMemory(), -1;
  set->table = table;
  set->mask = mask;
  return 0;
}

// Puts the members into the slots they had; false where one hashes otherwise than it did: the table has the size that
// it had, for the caller to fill.  Members that `known` names by number are not hashed.  -1: an exception.
int place_members(PySetObject* set, Py_ssize_t mask, Py_ssize_t finger, PyObject* slots, PyObject* members, PyObject* known) {
  Py_ssize_t next = 0, used = PyList_GET_SIZE(members), count = PyTuple_GET_SIZE(slots);
  for (Py_ssize_t i = 0; i < count; i++) {
    Py_hash_t had = PyLong_AsSsize_t(PyTuple_GET_ITEM(PyTuple_GET_ITEM(slots, i), 1));
    if (had == -1) continue;
    if (next == used) return 0;
    Ref number = Ref::steal(PyLong_FromSsize_t(next));
    int skipped = !number ? -1 : known ? PySequence_Contains(known, number.get()) : 0;
    Py_hash_t has = skipped ? had : PyObject_Hash(PyList_GET_ITEM(members, next));
    if (skipped < 0 || has == -1) return -1;
    next++;
    if (has != had) return set->fill || set->mask != PySet_MINSIZE - 1 ? 0 : set_size(set, mask);
  }
  PyObject* removed = removed_member();
  if (next != used || set->fill || set->mask != PySet_MINSIZE - 1 || !removed) return PyErr_Occurred() ? -1 : 0;
  if (set_size(set, mask) < 0) return -1;
  next = 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* slot = PyTuple_GET_ITEM(slots, i);
    setentry& entry = set->table[PyLong_AsSsize_t(PyTuple_GET_ITEM(slot, 0))];
    entry.hash = PyLong_AsSsize_t(PyTuple_GET_ITEM(slot, 1));
    entry.key = entry.hash == -1 ? removed : new_reference(PyList_GET_ITEM(members, next++));
  }
  set->fill = count;
  set->used = used;
  set->finger = finger;
  return 1;
}

}  // namespace

PyObject* fill_set(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Py_ssize_t mask, finger;
  PyObject* slots;
  if (count < 3 || count > 4 || !PyTuple_Check(args[1]) || !PyList_CheckExact(args[2])) {
    PyErr_SetString(PyExc_TypeError, "fill_set(set or class, layout, members, not hashed)");
    return nullptr;
  }
  if (!PyArg_ParseTuple(args[1], "nnO!", &mask, &finger, &PyTuple_Type, &slots)) return nullptr;
  Ref made = args[0] == reinterpret_cast<PyObject*>(&PySet_Type)         ? Ref::steal(PySet_New(nullptr))
             : args[0] == reinterpret_cast<PyObject*>(&PyFrozenSet_Type) ? Ref::steal(PyFrozenSet_New(nullptr))
                                                                         : Ref::borrow(args[0]);
  if (!made) return nullptr;
  if (!PyAnySet_Check(made.get())) {
    PyErr_SetString(PyExc_TypeError, "fill_set() fills sets");
    return nullptr;
  }
  int placed = place_members(made.as<PySetObject>(), mask, finger, slots, args[2], count == 4 ? args[3] : nullptr);
  for (Py_ssize_t i = 0; placed == 0 && i < PyList_GET_SIZE(args[2]); i++) {
    if (PySet_Add(made.get(), PyList_GET_ITEM(args[2], i)) < 0) placed = -1;
  }
  return placed < 0 ? nullptr : made.release();
}

}  // namespace stator
