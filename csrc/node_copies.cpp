// Nodes of an FX graph, made again on other tensors.
//
// A replayed layer is some sixty nodes, each a dozen small steps: as Python that is most of what the layer costs.
// FX's own node type does the work (its list, its users, its arguments); here is only the loop around it.
#include "node_copies.h"

namespace stator {
namespace {

// A reference that is let go at the end of the scope.
class Held {
 public:
  explicit Held(PyObject* object = nullptr) : object_(object) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  void take(PyObject* object) {
    Py_XDECREF(object_);
    object_ = object;
  }

 private:
  PyObject* object_;
};

struct Names {
  PyObject* used;         // set of the names there are
  PyObject* counts;       // dict: a name without its number -> the last number
  PyObject* create_name;  // what FX itself does
};

PyObject* new_name(const Names& names, PyObject* candidate, bool bare) {
  int known = bare ? PySet_Contains(names.used, candidate) : 0;
  if (known < 0) return nullptr;
  if (!known) return PyObject_CallFunctionObjArgs(names.create_name, candidate, Py_None, nullptr);
  PyObject* counted = PyDict_GetItemWithError(names.counts, candidate);
  if (!counted && PyErr_Occurred()) return nullptr;
  long number = counted ? PyLong_AsLong(counted) : 0;
  if (number == -1 && PyErr_Occurred()) return nullptr;
  Held name;
  do {
    ++number;
    name.take(PyUnicode_FromFormat("%U_%ld", candidate, number));
    if (!name) return nullptr;
    known = PySet_Contains(names.used, name.get());
    if (known < 0) return nullptr;
  } while (known);
  Held last(PyLong_FromLong(number));
  if (!last || PySet_Add(names.used, name.get()) < 0 || PyDict_SetItem(names.counts, candidate, last.get()) < 0) {
    return nullptr;
  }
  return Py_NewRef(name.get());
}

// The arguments of a node, each node among them replaced by the one that is known for it.
PyObject* replaced(PyObject* arguments, PyObject* known, PyTypeObject* node_type) {
  Py_ssize_t size = PyTuple_GET_SIZE(arguments);
  PyObject* made = PyTuple_New(size);
  if (!made) return nullptr;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* argument = PyTuple_GET_ITEM(arguments, i);
    if (Py_TYPE(argument) == node_type) {
      PyObject* other = PyDict_GetItemWithError(known, argument);
      if (other) {
        argument = other;
      } else if (PyErr_Occurred()) {
        Py_DECREF(made);
        return nullptr;
      }
    }
    PyTuple_SET_ITEM(made, i, Py_NewRef(argument));
  }
  return made;
}

// Its metadata, with the callers of this layer in the place of the first one's.
bool fill_meta(PyObject* copy, PyObject* meta, PyObject* above, Py_ssize_t before) {
  static PyObject* attribute = PyUnicode_InternFromString("meta");
  static PyObject* trace = PyUnicode_InternFromString("stack_trace");
  Held own(PyObject_GetAttr(copy, attribute));
  if (!own || PyDict_Update(own.get(), meta) < 0) return false;
  if (above == Py_None) return true;
  PyObject* text = PyDict_GetItemWithError(meta, trace);
  if (!text) return !PyErr_Occurred();
  Held rest(PyUnicode_Substring(text, before, PyUnicode_GET_LENGTH(text)));
  Held whole(rest ? PyUnicode_Concat(above, rest.get()) : nullptr);
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
  Held root(PyObject_GetAttrString(graph, "_root"));
  Held empty(PyTuple_New(0));
  Held copies(PyList_New(0));
  if (!root || !empty || !copies) return nullptr;
  PyTypeObject* node_type = Py_TYPE(root.get());
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(steps); ++i) {
    PyObject *node, *candidate, *op, *target, *flat, *free, *place, *meta;
    int bare;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(steps, i), "OUpOOOOOO!", &node, &candidate, &bare, &op, &target, &flat, &free,
                          &place, &PyDict_Type, &meta)) {
      return nullptr;
    }
    Held given, named;
    if (free != Py_None) {
      named.take(Py_NewRef(free));
    } else {
      Held own(PyObject_GetAttr(node, kwargs_of));
      named.take(own ? PyObject_CallOneArg(mapped, own.get()) : nullptr);
    }
    if (flat != Py_None) {
      given.take(replaced(flat, known, node_type));
    } else {
      Held own(PyObject_GetAttr(node, args_of));
      given.take(own ? PyObject_CallOneArg(mapped, own.get()) : nullptr);
    }
    Held name(given && named ? new_name(names, candidate, bare) : nullptr);
    if (!name) return nullptr;
    Held copy(node_type->tp_new(node_type, empty.get(), nullptr));
    Held fields(PyTuple_Pack(5, graph, name.get(), op, target, Py_None));
    if (!copy || !fields || node_type->tp_base->tp_init(copy.get(), fields.get(), nullptr) < 0) return nullptr;
    PyObject* taken[] = {copy.get(), given.get(), named.get()};
    Held done(PyObject_VectorcallMethod(take, taken, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
    if (!done) return nullptr;
    PyObject* placed[] = {root.get(), copy.get()};
    done.take(PyObject_VectorcallMethod(prepend, placed, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
    Held row(done ? PyObject_GetItem(table, place) : nullptr);
    if (!row || PyObject_SetItem(row.get(), copy.get(), Py_None) < 0 ||
        PyDict_SetItem(named_as, copy.get(), name.get()) < 0 || !fill_meta(copy.get(), meta, above, before) ||
        PyDict_SetItem(known, node, copy.get()) < 0 || PyList_Append(copies.get(), copy.get()) < 0) {
      return nullptr;
    }
  }
  return Py_NewRef(copies.get());
}

}  // namespace stator
