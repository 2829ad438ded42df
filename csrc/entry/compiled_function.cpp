// The Python type CompiledFunction; its calls are trampoline.cpp's.
#include "entry/compiled_function.h"

#include <structmember.h>

#include <algorithm>
#include <utility>

#include "guards/guard_program.h"

namespace stator {

namespace {

PyObject* compiled_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"fn", "miss", "prefix_args", nullptr};
  PyObject *function, *miss, *prefix = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|O!:CompiledFunction", const_cast<char**>(names),
                                   &PyFunction_Type, &function, &miss, &PyTuple_Type, &prefix)) {
    return nullptr;
  }
  if (!PyCallable_Check(miss)) {
    PyErr_SetString(PyExc_TypeError, "miss must be callable");
    return nullptr;
  }
  Ref made = Ref::steal(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  CompiledObject* self = compiled_of(made.get());
  self->vectorcall = compiled_vectorcall;
  self->enabled = true;
  self->steppable = false;
  self->entries = new std::vector<Ref>();
  self->dispatcher = new Dispatcher();
  self->function = Ref::borrow(function);
  self->miss = Ref::borrow(miss);
  if (prefix && PyTuple_GET_SIZE(prefix) > 0) self->prefix = Ref::borrow(prefix);
  self->dict = Ref::steal(PyDict_New());
  // In the dict, so that functools.update_wrapper may set it and inspect.signature follows it.
  if (!self->dict || PyDict_SetItemString(self->dict.get(), "__wrapped__", function) < 0) return nullptr;
  return made.release();
}

int compiled_traverse(PyObject* object, visitproc visit, void* arg) {
  CompiledObject* self = compiled_of(object);
  Py_VISIT(self->function.get());
  Py_VISIT(self->miss.get());
  Py_VISIT(self->taker.get());
  Py_VISIT(self->prefix.get());
  Py_VISIT(self->dict.get());
  if (self->entries) {
    for (const Ref& entry : *self->entries) Py_VISIT(entry.get());
  }
  if (self->dispatcher) Py_VISIT(self->dispatcher->program());
  return 0;
}

void drop_entries(CompiledObject* self) {
  self->dispatcher->set_program(nullptr);
  std::vector<Ref> dropped;
  dropped.swap(*self->entries);  // finalizers see the list empty
}

int compiled_clear(PyObject* object) {
  CompiledObject* self = compiled_of(object);
  // The function stays: a finalizer elsewhere in the cycle may still call us, and then runs it eagerly.
  drop_entries(self);
  self->dict.reset();
  self->miss.reset();
  self->taker.reset();
  return 0;
}

void compiled_dealloc(PyObject* object) {
  CompiledObject* self = compiled_of(object);
  PyObject_GC_UnTrack(object);
  if (self->weak_references) PyObject_ClearWeakRefs(object);
  if (self->entries) drop_entries(self);
  delete self->entries;
  delete self->dispatcher;
  self->dict.reset();
  self->function.reset();
  self->miss.reset();
  self->taker.reset();
  self->prefix.reset();
  Py_TYPE(object)->tp_free(object);
}

PyObject* compiled_get(PyObject* object, PyObject* instance, PyObject*) {
  if (!instance || instance == Py_None) return new_reference(object);
  return PyMethod_New(object, instance);
}

PyObject* compiled_repr(PyObject* object) {
  return PyUnicode_FromFormat("<stator compiled %R>", compiled_of(object)->function.get());
}

PyObject* add_entry(PyObject* object, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"program", "residual", "tag", nullptr};
  PyObject *program, *residual, *tag = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|O:add_entry", const_cast<char**>(names),
                                   &GuardProgram_Type, &program, &residual, &tag)) {
    return nullptr;
  }
  if (residual != eager_sentinel && !PyCallable_Check(residual)) {
    PyErr_SetString(PyExc_TypeError, "residual must be callable, or EAGER");
    return nullptr;
  }
  Ref entry = new_entry(program, residual, tag);
  if (!entry) return nullptr;
  auto& entries = *compiled_of(object)->entries;
  entries.insert(entries.begin(), std::move(entry));
  Py_RETURN_NONE;
}

template <class Make>
PyObject* list_of_entries(PyObject* object, Make make) {
  // A copy: making Python objects may run a collection, and with it anything.
  std::vector<Ref> entries;
  for (const Ref& entry : *compiled_of(object)->entries) entries.push_back(Ref::borrow(entry.get()));
  Ref list = Ref::steal(PyList_New(0));
  if (!list) return nullptr;
  for (const Ref& entry : entries) {
    Ref item = Ref::steal(make(entry.as<EntryObject>()));
    if (!item || PyList_Append(list.get(), item.get()) < 0) return nullptr;
  }
  return list.release();
}

PyObject* get_entries(PyObject* object, PyObject*) {
  return list_of_entries(object, [](EntryObject* entry) {
    return PyTuple_Pack(3, entry->program.get(), entry->residual.get(), entry->tag.get());
  });
}

PyObject* get_hits(PyObject* object, PyObject*) {
  return list_of_entries(object, [](EntryObject* entry) { return PyLong_FromUnsignedLongLong(entry->hits); });
}

PyObject* last_failures(PyObject* object, PyObject*) {
  return list_of_entries(object, [](EntryObject* entry) { return PyLong_FromSsize_t(entry->failed_check); });
}

PyObject* remove_entry(PyObject* object, PyObject* program) {
  auto& entries = *compiled_of(object)->entries;
  auto place = std::find_if(entries.begin(), entries.end(), [&](const Ref& entry) {
    return entry.as<EntryObject>()->program.get() == program;
  });
  if (place == entries.end()) Py_RETURN_FALSE;
  Ref removed = std::move(*place);  // its finalizers see the list without it, and no guess of it
  entries.erase(place);
  compiled_of(object)->dispatcher->forget();
  Py_RETURN_TRUE;
}

PyObject* clear_entries(PyObject* object, PyObject*) {
  drop_entries(compiled_of(object));
  Py_RETURN_NONE;
}

PyObject* set_dispatch(PyObject* object, PyObject* program) {
  if (program != Py_None && !PyObject_TypeCheck(program, &GuardProgram_Type)) {
    PyErr_SetString(PyExc_TypeError, "expected a GuardProgram, or None");
    return nullptr;
  }
  compiled_of(object)->dispatcher->set_program(program == Py_None ? nullptr : program);
  Py_RETURN_NONE;
}

PyObject* set_enabled(PyObject* object, PyObject* value) {
  int enabled = PyObject_IsTrue(value);
  if (enabled < 0) return nullptr;
  compiled_of(object)->enabled = enabled != 0;
  Py_RETURN_NONE;
}

PyObject* save_entries(PyObject* object, PyObject* path) {
  Ref api = Ref::steal(PyImport_ImportModule("stator.api"));
  return api ? PyObject_CallMethod(api.get(), "save", "OO", object, path) : nullptr;
}

PyMethodDef compiled_methods[] = {
    {"add_entry", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(add_entry)),
     METH_VARARGS | METH_KEYWORDS, "add_entry(program, residual, tag=None): tried first from now on"},
    {"entries", get_entries, METH_NOARGS, "entries() -> [(program, residual, tag)], most recently used first"},
    {"hits", get_hits, METH_NOARGS, "hits() -> [number of hits], in the order of entries()"},
    {"last_failures", last_failures, METH_NOARGS,
     "last_failures() -> [failed check of the last try, -1 if none], in the order of entries()"},
    {"remove", remove_entry, METH_O, "remove(program) -> whether there was such an entry"},
    {"clear", clear_entries, METH_NOARGS, "clear(): drop all entries"},
    {"set_dispatch", set_dispatch, METH_O,
     "set_dispatch(program): its wanted values tell the entries apart; None: try them in order"},
    {"set_enabled", set_enabled, METH_O, "set_enabled(flag): False calls fn directly"},
    {"save", save_entries, METH_O, "save(path) -> the number of entries that stator.load() finds in this file"},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef compiled_members[] = {
    {"fn", T_OBJECT_EX, offsetof(CompiledObject, function), READONLY, "the function itself"},
    {"miss", T_OBJECT_EX, offsetof(CompiledObject, miss), READONLY, "called when no entry holds"},
    {"prefix_args", T_OBJECT, offsetof(CompiledObject, prefix), READONLY, "arguments put before each call's"},
    {"taker", T_OBJECT, offsetof(CompiledObject, taker), 0, "called in place of fn with a list, which it may empty"},
    {"enabled", T_BOOL, offsetof(CompiledObject, enabled), READONLY, "False: fn is called directly"},
    {"steppable", T_BOOL, offsetof(CompiledObject, steppable), 0, "True: sys.settrace sees residuals, not fn"},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef compiled_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject make_compiled_type() {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "stator._core.CompiledFunction";
  type.tp_basicsize = sizeof(CompiledObject);
  type.tp_dealloc = compiled_dealloc;
  type.tp_vectorcall_offset = offsetof(CompiledObject, vectorcall);
  type.tp_call = PyVectorcall_Call;
  type.tp_repr = compiled_repr;
  type.tp_getattro = PyObject_GenericGetAttr;
  type.tp_setattro = PyObject_GenericSetAttr;
  type.tp_flags =
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  type.tp_traverse = compiled_traverse;
  type.tp_clear = compiled_clear;
  type.tp_weaklistoffset = offsetof(CompiledObject, weak_references);
  type.tp_dictoffset = offsetof(CompiledObject, dict);
  type.tp_methods = compiled_methods;
  type.tp_members = compiled_members;
  type.tp_getset = compiled_getset;
  type.tp_descr_get = compiled_get;
  type.tp_new = compiled_new;
  type.tp_free = PyObject_GC_Del;
  return type;
}

}  // namespace

PyTypeObject CompiledFunction_Type = make_compiled_type();

}  // namespace stator
