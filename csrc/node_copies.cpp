// Nodes of an FX graph, made again on other tensors.
//
// A replayed layer is some sixty nodes, each a dozen small steps: as Python that is most of what the layer costs.
// FX's own node type does the work (its list, its users, its arguments); here is only the loop around it.
#include "node_copies.h"

#include "ref.h"

namespace stator {
namespace {

struct Names {
  PyObject* used;         // set of the names there are
  PyObject* counts;       // dict: a name without its number -> the last number
  PyObject* create_name;  // what FX itself does
};

Ref new_name(const Names& names, PyObject* candidate, bool bare) {
  int known = bare ? PySet_Contains(names.used, candidate) : 0;
  if (known < 0) return Ref();
  if (!known) return Ref::steal(PyObject_CallFunctionObjArgs(names.create_name, candidate, Py_None, nullptr));
  PyObject* counted = PyDict_GetItemWithError(names.counts, candidate);
  if (!counted && PyErr_Occurred()) return Ref();
  long number = counted ? PyLong_AsLong(counted) : 0;
  if (number == -1 && PyErr_Occurred()) return Ref();
  Ref name;
  do {
    ++number;
    name = Ref::steal(PyUnicode_FromFormat("%U_%ld", candidate, number));
    if (!name) return Ref();
    known = PySet_Contains(names.used, name.get());
    if (known < 0) return Ref();
  } while (known);
  Ref last = Ref::steal(PyLong_FromLong(number));
  if (!last || PySet_Add(names.used, name.get()) < 0 || PyDict_SetItem(names.counts, candidate, last.get()) < 0) {
    return Ref();
  }
  return name;
}

// The arguments of a node, each node among them replaced by the one that is known for it.
Ref replaced(PyObject* arguments, PyObject* known, PyTypeObject* node_type) {
  Py_ssize_t size = PyTuple_GET_SIZE(arguments);
  Ref made = Ref::steal(PyTuple_New(size));
  if (!made) return made;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* argument = PyTuple_GET_ITEM(arguments, i);
    if (Py_TYPE(argument) == node_type) {
      PyObject* other = PyDict_GetItemWithError(known, argument);
      if (!other && PyErr_Occurred()) return Ref();
      if (other) argument = other;
    }
    PyTuple_SET_ITEM(made.get(), i, new_reference(argument));
  }
  return made;
}

// What `mapped` makes of an attribute of a node.
Ref mapped_attribute(PyObject* mapped, PyObject* node, PyObject* name) {
  Ref own = Ref::steal(PyObject_GetAttr(node, name));
  return own ? Ref::steal(PyObject_CallOneArg(mapped, own.get())) : Ref();
}

// Its metadata, with the callers of this layer in the place of the first one's.
bool fill_meta(PyObject* copy, PyObject* meta, PyObject* above, Py_ssize_t before) {
  static PyObject* attribute = PyUnicode_InternFromString("meta");
  static PyObject* trace = PyUnicode_InternFromString("stack_trace");
  Ref own = Ref::steal(PyObject_GetAttr(copy, attribute));
  if (!own || PyDict_Update(own.get(), meta) < 0) return false;
  if (above == Py_None) return true;
  PyObject* text = PyDict_GetItemWithError(meta, trace);
  if (!text) return !PyErr_Occurred();
  Ref rest = Ref::steal(PyUnicode_Substring(text, before, PyUnicode_GET_LENGTH(text)));
  Ref whole = Ref::steal(rest ? PyUnicode_Concat(above, rest.get()) : nullptr);
  return whole && PyDict_SetItem(own.get(), trace, whole.get()) == 0;
}

}  // namespace

// copy_nodes(steps, graph, known, names, table, mapped, above, before) -> the copies, in order.  Each step is
// (node, name, whether it is bare, op, target, arguments, named ones, place in the table, metadata), the arguments None
// where nodes lie deep in them; `names` are what a namespace of FX holds, `mapped` answers such arguments, `above` is None
// where stack traces stay as they are.
PyObject* copy_nodes(PyObject*, PyObject* const* args, Py_ssize_t count) {
  static PyObject* take = PyUnicode_InternFromString("_update_args_kwargs");
  static PyObject* prepend = PyUnicode_InternFromString("_prepend");
  static PyObject* kwargs_of = PyUnicode_InternFromString("_kwargs");
  static PyObject* args_of = PyUnicode_InternFromString("_args");
  if (count != 8 || !PyList_Check(args[0]) || !PyDict_Check(args[2]) || !PyTuple_Check(args[3])) {
    PyErr_SetString(PyExc_TypeError, "copy_nodes(steps, graph, known, names, table, mapped, above, before)");
    return nullptr;
  }
  PyObject *steps = args[0], *graph = args[1], *known = args[2], *table = args[4], *mapped = args[5], *above = args[6];
  Names names;
  PyObject* named_as;
  if (!PyArg_ParseTuple(args[3], "O!O!OO!", &PySet_Type, &names.used, &PyDict_Type, &names.counts, &names.create_name,
                        &PyDict_Type, &named_as)) {
    return nullptr;
  }
  Py_ssize_t before = PyLong_AsSsize_t(args[7]);
  if (before == -1 && PyErr_Occurred()) return nullptr;
  Ref root = Ref::steal(PyObject_GetAttrString(graph, "_root"));
  Ref empty = Ref::steal(PyTuple_New(0));
  Ref copies = Ref::steal(PyList_New(0));
  if (!root || !empty || !copies) return nullptr;
  PyTypeObject* node_type = Py_TYPE(root.get());
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(steps); ++i) {
    PyObject *node, *candidate, *op, *target, *flat, *free, *place, *meta;
    int bare;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(steps, i), "OUpOOOOOO!", &node, &candidate, &bare, &op, &target, &flat, &free,
                          &place, &PyDict_Type, &meta)) {
      return nullptr;
    }
    Ref named = free != Py_None ? Ref::borrow(free) : mapped_attribute(mapped, node, kwargs_of);
    if (!named) return nullptr;
    Ref given = flat != Py_None ? replaced(flat, known, node_type) : mapped_attribute(mapped, node, args_of);
    if (!given) return nullptr;
    Ref name = new_name(names, candidate, bare);
    if (!name) return nullptr;
    Ref copy = Ref::steal(node_type->tp_new(node_type, empty.get(), nullptr));
    Ref fields = Ref::steal(PyTuple_Pack(5, graph, name.get(), op, target, Py_None));
    if (!copy || !fields || node_type->tp_base->tp_init(copy.get(), fields.get(), nullptr) < 0) return nullptr;
    PyObject* taken[] = {copy.get(), given.get(), named.get()};
    Ref done = Ref::steal(PyObject_VectorcallMethod(take, taken, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
    if (!done) return nullptr;
    PyObject* placed[] = {root.get(), copy.get()};
    done = Ref::steal(PyObject_VectorcallMethod(prepend, placed, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
    Ref row = Ref::steal(done ? PyObject_GetItem(table, place) : nullptr);
    if (!row || PyObject_SetItem(row.get(), copy.get(), Py_None) < 0 ||
        PyDict_SetItem(named_as, copy.get(), name.get()) < 0 || !fill_meta(copy.get(), meta, above, before) ||
        PyDict_SetItem(known, node, copy.get()) < 0 || PyList_Append(copies.get(), copy.get()) < 0) {
      return nullptr;
    }
  }
  return copies.release();
}

}  // namespace stator
