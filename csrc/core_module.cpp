// The extension module stator._core: GuardProgram, CompiledFunction, Resume, NativeStep, Provenance and EAGER.
#include <Python.h>

#include "entry/call_listeners.h"
#include "entry/compiled_function.h"
#include "entry/eager_switch.h"
#include "entry/entry.h"
#include "entry/native_step.h"
#include "entry/resume.h"
#include "entry/user_traceback.h"
#include "guards/dict_watch.h"
#include "guards/guard_program.h"
#include "guards/raw_read.h"
#include "guards/tensor_check.h"
#include "guards/tensor_seal.h"
#include "node_copies.h"
#include "provenance.h"
#include "rebuilt_objects.h"
#include "ref.h"

namespace {

// Each change of a dict takes the next number of one counter: the largest one changes with any change of any of them.
PyObject* newest_version(PyObject*, PyObject* dicts) {
  if (!PyList_Check(dicts)) {
    PyErr_SetString(PyExc_TypeError, "newest_version() takes a list of dicts");
    return nullptr;
  }
  uint64_t newest = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(dicts); ++i) {
    PyObject* dict = PyList_GET_ITEM(dicts, i);
    uint64_t version = PyDict_Check(dict) ? stator::dict_version(dict) : 0;
    if (version == 0) return PyLong_FromLong(0);
    if (version > newest) newest = version;
  }
  return PyLong_FromUnsignedLongLong(newest);
}

// Only reads: counting references would copy the memory of a forked process, one page for nearly every object.
PyObject* holds_only(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2 || !PyList_Check(args[0]) || !PyTuple_Check(args[1])) {
    PyErr_SetString(PyExc_TypeError, "holds_only() takes a list of dicts and a tuple of classes");
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[0]); ++i) {
    PyObject* dict = PyList_GET_ITEM(args[0], i);
    if (!PyDict_Check(dict)) {
      PyErr_SetString(PyExc_TypeError, "holds_only() takes a list of dicts and a tuple of classes");
      return nullptr;
    }
    PyObject* value = nullptr;
    for (Py_ssize_t place = 0; PyDict_Next(dict, &place, nullptr, &value);) {
      Py_ssize_t number = PyTuple_GET_SIZE(args[1]);
      while (number > 0 && !Py_IS_TYPE(value, reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(args[1], number - 1)))) {
        --number;
      }
      if (number == 0) Py_RETURN_FALSE;
    }
  }
  Py_RETURN_TRUE;
}

PyObject* at_least(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Py_ssize_t wanted = count == 2 ? PyLong_AsSsize_t(args[1]) : -1;
  if (wanted >= 0) return PyBool_FromLong(stator::has_items(args[0], wanted));
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "at_least() takes an iterator and a count");
  return nullptr;
}

PyObject* asks_keys(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "asks_keys() takes a dict and a key");
    return nullptr;
  }
  if (!PyDict_Check(args[0])) Py_RETURN_FALSE;
  Py_hash_t hash = PyObject_Hash(args[1]);
  if (hash == -1 && PyErr_Occurred()) return nullptr;
  PyObject* value = nullptr;
  return PyBool_FromLong(stator::dict_lookup(args[0], args[1], hash, &value) == stator::Found::unknown);
}

bool fill_module(PyObject* module) {
  using namespace stator;
  if (!raw_read_init()) return false;
  tensor_seal_init();
  dict_watch_init();
  for (PyTypeObject* type : {&GuardProgram_Type, &Entry_Type, &Eager_Type, &CompiledFunction_Type, &Resume_Type,
                             &NativeStep_Type, &Provenance_Type}) {
    if (PyType_Ready(type) < 0) return false;
  }
  eager_sentinel = PyObject_New(PyObject, &Eager_Type);
  retry_sentinel = PyObject_New(PyObject, &Eager_Type);
  return eager_sentinel && retry_sentinel && PyModule_AddObjectRef(module, "RETRY", retry_sentinel) == 0 &&
         PyModule_AddObjectRef(module, "EAGER", eager_sentinel) == 0 &&
         PyModule_AddType(module, &GuardProgram_Type) == 0 &&
         PyModule_AddType(module, &CompiledFunction_Type) == 0 && PyModule_AddType(module, &Resume_Type) == 0 &&
         PyModule_AddType(module, &NativeStep_Type) == 0 && PyModule_AddType(module, &Provenance_Type) == 0;
}

PyMethodDef core_functions[] = {
    {"set_own_folder", stator::set_own_folder, METH_O, "set_own_folder(path): whose frames tracebacks leave out"},
    {"enter_eager", stator::enter_eager, METH_NOARGS, "enter_eager(): compiled functions run eagerly on this thread"},
    {"leave_eager", stator::leave_eager, METH_NOARGS, "leave_eager(): undo the last enter_eager() of this thread"},
    {"eager_depth", stator::eager_depth, METH_NOARGS, "eager_depth() -> enter_eager() calls of this thread not left"},
    {"watch_count", stator::watch_count, METH_NOARGS, "watch_count() -> dicts that tell guards when they change"},
    {"newest_version", newest_version, METH_O,
     "newest_version(list of dicts) -> another number after any of them has changed; 0 where one cannot tell"},
    {"holds_only", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(holds_only)), METH_FASTCALL,
     "holds_only(list of dicts, classes) -> whether each value is of one of these very classes"},
    {"at_least", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(at_least)), METH_FASTCALL,
     "at_least(iterator, count) -> whether an iterator of a list, a tuple or a range has so many items left"},
    {"asks_keys", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(asks_keys)), METH_FASTCALL,
     "asks_keys(dict, key) -> whether a key of the dict may run Python code when it is compared with this one"},
    {"force_eager", stator::force_eager, METH_O, "force_eager(flag): compiled functions run eagerly on all threads"},
    {"listen_to_redone", stator::listen_to_redone, METH_O,
     "listen_to_redone(function): function(compiled, exception, traceback) after each call handed back"},
    {"listen_to_eager", stator::listen_to_eager, METH_O,
     "listen_to_eager(function): function(compiled, reason) before each call that is not compiled on request"},
    {"tensor_item", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(stator::tensor_item)), METH_FASTCALL,
     "tensor_item(tensor, place) -> an element of an integer tensor in the CPU's memory, counted in reading order"},
    {"plain_tensor", stator::plain_tensor, METH_O,
     "plain_tensor(tensor) -> (address, bytes) of a dense leaf that shows all of its memory, row by row, or None"},
    {"plain_leaves", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(stator::plain_leaves)), METH_FASTCALL,
     "plain_leaves(*tensors) -> whether each is a leaf, and accumulating its gradient calls no hook of any kind"},
    {"leaves_with_listed_hooks",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(stator::leaves_with_listed_hooks)), METH_FASTCALL,
     "leaves_with_listed_hooks(*tensors) -> whether each is a leaf whose hooks are all in its two dicts of Python"},
    {"attention_kernels", stator::attention_kernels, METH_NOARGS,
     "attention_kernels() -> which kernels scaled_dot_product_attention may choose, in which order, as one number"},
    {"saved_hooks_of_program", stator::saved_hooks_of_program, METH_NOARGS,
     "saved_hooks_of_program() -> whether hooks on saved tensors are on that are not torch's own"},
    {"set_vars", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(stator::set_vars)), METH_FASTCALL,
     "set_vars(object, attributes): add them to its instance dict"},
    {"set_items", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(stator::set_items)), METH_FASTCALL,
     "set_items(dict, items): add them, whatever the class of the dict says"},
    {"set_layout", stator::set_layout, METH_O, "set_layout(set): its table's size, finger, and slots with their hashes"},
    {"fill_set", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(stator::fill_set)), METH_FASTCALL,
     "fill_set(set or class, layout, members, not hashed): with the members in the slots of that layout"},
    {"copy_nodes", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(stator::copy_nodes)), METH_FASTCALL,
     "copy_nodes(steps, graph, known, names, table, mapped, above, before) -> nodes of a graph, made again"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef core_definition = {PyModuleDef_HEAD_INIT, "stator._core",
                               "Guards and entries of compiled functions, checked at every call.", -1, core_functions};

}  // namespace

PyMODINIT_FUNC PyInit__core() {
  stator::Ref module = stator::Ref::steal(PyModule_Create(&core_definition));
  return module && fill_module(module.get()) ? module.release() : nullptr;
}
