// CompiledFunction(fn, miss, prefix_args=()): a vectorcall callable in front of guarded entries.
//
// In: a call.  It is bound to fn's parameters; the entries are tried, the most recently used first (or, where there are
// many, first the one that took the last such call).
// Out: residual(*wanted) of the entry whose guards hold, else miss(self, bound, args, kwargs), where
// fn(*args, **kwargs) would be the eager call.  Entries may be added and removed during any of this.
#include "entry.h"

#include <structmember.h>

#include <algorithm>
#include <vector>

#include "argument_binding.h"
#include "dispatch.h"
#include "eager_switch.h"
#include "guard_program.h"
#include "resume.h"
#include "user_traceback.h"

namespace stator {

namespace {

struct CompiledObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* function;
  PyObject* miss;
  PyObject* prefix;  // a tuple, or nullptr when empty
  PyObject* taker;   // or nullptr; called in place of `function`, with a list, where the trampoline has the values
  PyObject* dict;
  PyObject* weak_references;
  std::vector<EntryObject*>* entries;  // owned references, the most recently used first
  Dispatcher* dispatcher;
  bool enabled;
};

CompiledObject* compiled_of(PyObject* object) { return reinterpret_cast<CompiledObject*>(object); }

// ---- calls

// fn(*prefix, *args, **kwargs), for calls that are not compiled.  With `owner`, which holds args: what the program lets
// go of on its way must die, so nobody below it may hold it.
PyObject* call_function(CompiledObject* self, PyObject* const* args, size_t flagged_count, PyObject* names,
                        ResumeObject* owner) {
  if (owner && self->taker && owner->values) {
    PyObject* list = take_values(owner);
    if (!list) return nullptr;
    PyObject* taker = self->taker;
    Py_INCREF(taker);
    PyObject* result = PyObject_CallOneArg(taker, list);
    Py_DECREF(taker);
    Py_DECREF(list);
    return result;
  }
  if (!self->prefix) return PyObject_Vectorcall(self->function, args, flagged_count, names);
  Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
  Py_ssize_t keywords = names ? PyTuple_GET_SIZE(names) : 0;
  Py_ssize_t prefix_count = PyTuple_GET_SIZE(self->prefix);
  std::vector<PyObject*> all;
  all.reserve(static_cast<size_t>(prefix_count + count + keywords));
  for (Py_ssize_t i = 0; i < prefix_count; ++i) all.push_back(PyTuple_GET_ITEM(self->prefix, i));
  all.insert(all.end(), args, args + count + keywords);
  PyObject *function = self->function, *prefix = self->prefix;
  Py_INCREF(function);
  Py_INCREF(prefix);
  PyObject* result = PyObject_Vectorcall(function, all.data(), static_cast<size_t>(prefix_count + count), names);
  Py_DECREF(function);
  Py_DECREF(prefix);
  return result;
}

// Runs the residual of an entry whose guards hold.
PyObject* call_residual(EntryObject* entry, WantedValues& values) {
  return PyObject_Vectorcall(entry->residual, values.data(),
                             static_cast<size_t>(values.size()) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
}

PyObject* arguments_tuple(CompiledObject* self, PyObject* const* args, Py_ssize_t count) {
  Py_ssize_t prefix_count = self->prefix ? PyTuple_GET_SIZE(self->prefix) : 0;
  PyObject* tuple = PyTuple_New(prefix_count + count);
  for (Py_ssize_t i = 0; tuple && i < prefix_count + count; ++i) {
    PyObject* item = i < prefix_count ? PyTuple_GET_ITEM(self->prefix, i) : args[i - prefix_count];
    Py_INCREF(item);
    PyTuple_SET_ITEM(tuple, i, item);
  }
  return tuple;
}

PyObject* keywords_dict(PyObject* const* values, PyObject* names) {
  if (!names || PyTuple_GET_SIZE(names) == 0) Py_RETURN_NONE;
  PyObject* dict = PyDict_New();
  for (Py_ssize_t i = 0; dict && i < PyTuple_GET_SIZE(names); ++i) {
    if (PyDict_SetItem(dict, PyTuple_GET_ITEM(names, i), values[i]) < 0) Py_CLEAR(dict);
  }
  return dict;
}

PyObject* call_miss(CompiledObject* self, const BoundArguments& bound, PyObject* const* args, Py_ssize_t count,
                    PyObject* names) {
  PyObject* bound_tuple = bound.as_tuple();
  PyObject* positional = bound_tuple ? arguments_tuple(self, args, count) : nullptr;
  PyObject* keywords = positional ? keywords_dict(args + count, names) : nullptr;
  PyObject* result = nullptr;
  if (keywords) {
    PyObject* miss = self->miss;
    Py_INCREF(miss);
    PyObject* arguments[] = {nullptr, reinterpret_cast<PyObject*>(self), bound_tuple, positional, keywords};
    result = PyObject_Vectorcall(miss, arguments + 1, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    Py_DECREF(miss);
  }
  Py_XDECREF(bound_tuple);
  Py_XDECREF(positional);
  Py_XDECREF(keywords);
  return result;
}

void move_to_front(std::vector<EntryObject*>& entries, EntryObject* entry) {
  if (!entries.empty() && entries.front() == entry) return;
  auto place = std::find(entries.begin(), entries.end(), entry);
  if (place != entries.end()) std::rotate(entries.begin(), place, place + 1);
}

// What the dispatcher says of a call.
struct Hint {
  uint64_t fingerprint;
  EntryObject* guess;  // borrowed, or nullptr
};

PyObject* redo_listener = nullptr;   // gets the ending of each call that an entry handed back to its function
PyObject* eager_listener = nullptr;  // gets each call that runs its function without any entry or miss

// redo_listener(compiled, exception or None, traceback or None).  An exception of the listener replaces the result.
PyObject* tell_redone(CompiledObject* self, PyObject* result) {
  if (!redo_listener) return result;
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  if (!result) {
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
  }
  PyObject* arguments[] = {reinterpret_cast<PyObject*>(self), value ? value : Py_None, traceback ? traceback : Py_None};
  PyObject* told = PyObject_Vectorcall(redo_listener, arguments, 3, nullptr);
  if (told) {
    Py_DECREF(told);
    if (!result) PyErr_Restore(type, value, traceback);
    return result;
  }
  Py_XDECREF(result);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return nullptr;
}

// eager_listener(compiled, reason).  False: it raised, and the call must not be made.
bool tell_eager(CompiledObject* self, const char* reason) {
  if (!eager_listener) return true;
  PyThreadState* thread = PyThreadState_Get();
  PyThreadState_EnterTracing(thread);  // a debugger steps through the program alone
  PyObject* told = PyObject_CallFunction(eager_listener, "Os", self, reason);
  PyThreadState_LeaveTracing(thread);
  Py_XDECREF(told);
  return told != nullptr;
}

// Tries one entry.  True: *result is the call's result (nullptr: it raised).
bool try_entry(CompiledObject* self, EntryObject* entry, const BoundArguments& bound, PyObject* const* args,
               size_t flagged_count, PyObject* names, PyObject** result, ResumeObject* owner,
               const Hint* hint = nullptr) {
  WantedValues values;
  entry->failed_check = guard_program_of(entry->program)->run(bound.data(), bound.size(), &values);
  if (entry->failed_check >= 0) return PyErr_Occurred() != nullptr;
  ++entry->hits;
  if (!hint || hint->guess != entry) {
    if (hint) self->dispatcher->learn(hint->fingerprint, entry);
    move_to_front(*self->entries, entry);
  }
  if (entry->residual == eager_sentinel) {
    *result = call_function(self, args, flagged_count, names, owner);
  } else {
    *result = call_residual(entry, values);
    if (*result == eager_sentinel) {  // nothing was written so far
      Py_DECREF(*result);
      *result = tell_redone(self, call_function(self, args, flagged_count, names, owner));
    }
  }
  return true;
}

// Asks for a new entry.  The answer is the call's result, or EAGER (call fn), or RETRY (an entry fits now): then
// the call is made from here, so that no frame of the compiler stands in the user's tracebacks.
PyObject* after_miss(CompiledObject* self, const BoundArguments& bound, PyObject* const* args, size_t flagged_count,
                     PyObject* names, ResumeObject* owner) {
  PyObject* result = call_miss(self, bound, args, PyVectorcall_NARGS(flagged_count), names);
  if (result == retry_sentinel) {
    Py_DECREF(result);
    result = nullptr;
    // The new entry is in front, unless another thread has added one since.
    for (size_t i = 0; i < self->entries->size(); ++i) {
      EntryObject* entry = (*self->entries)[i];
      Py_INCREF(entry);
      bool done = try_entry(self, entry, bound, args, flagged_count, names, &result, owner);
      Py_DECREF(entry);
      if (done) return result;
    }
    if (!tell_eager(self, "another thread changed a fact that the new entry relies on")) return nullptr;
    return call_function(self, args, flagged_count, names, owner);
  }
  if (result == eager_sentinel) {
    Py_DECREF(result);
    return call_function(self, args, flagged_count, names, owner);
  }
  return result;
}

// One segment: its value, or a Resume.  `owner` holds args, where they are live values of the segment before.
PyObject* call_segment(PyObject* object, PyObject* const* args, size_t flagged_count, PyObject* names,
                       ResumeObject* owner = nullptr) {
  CompiledObject* self = compiled_of(object);
  if (!self->enabled || !self->miss) return call_function(self, args, flagged_count, names, owner);
  const char* reason = eager_reasons != 0 ? reason_to_run_eagerly() : nullptr;
  if (!reason && is_stepped()) reason = "sys.settrace is in use";
  if (reason) return tell_eager(self, reason) ? call_function(self, args, flagged_count, names, owner) : nullptr;
  Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
  BoundArguments bound;
  switch (bound.bind(reinterpret_cast<PyFunctionObject*>(self->function), self->prefix, args, count, names)) {
    case BoundArguments::Outcome::yes:
      break;
    case BoundArguments::Outcome::no:
      return call_function(self, args, flagged_count, names, owner);  // CPython raises its own TypeError
    case BoundArguments::Outcome::error:
      return nullptr;
  }
  // Residuals and finalizers may drop the last outside reference to us, or change the list.
  Py_INCREF(object);
  PyObject* result = nullptr;
  bool done = false;
  Hint hint{0, nullptr};
  bool hinted = self->dispatcher->is_ready() && self->dispatcher->read(bound.data(), bound.size(), &hint.fingerprint);
  if (hinted) hint.guess = self->dispatcher->guess(hint.fingerprint);
  auto attempt = [&](EntryObject* entry) {
    Py_INCREF(entry);
    done = try_entry(self, entry, bound, args, flagged_count, names, &result, owner, hinted ? &hint : nullptr);
    Py_DECREF(entry);
  };
  if (hint.guess) attempt(hint.guess);
  for (size_t i = 0; !done && i < self->entries->size(); ++i) {
    if ((*self->entries)[i] != hint.guess) attempt((*self->entries)[i]);
  }
  if (!done) result = after_miss(self, bound, args, flagged_count, names, owner);
  Py_DECREF(object);
  return result;
}

// The trampoline: segments that end in a graph break return, so a break in a loop costs no stack.
PyObject* compiled_vectorcall(PyObject* object, PyObject* const* args, size_t flagged_count, PyObject* names) {
  PyObject* result = call_segment(object, args, flagged_count, names);
  while (result && is_resume(result)) {
    auto* resume = reinterpret_cast<ResumeObject*>(result);
    PyObject* target = resume->target;
    PyObject* const* values = &PyTuple_GET_ITEM(resume->values, 0);
    auto count = static_cast<size_t>(PyTuple_GET_SIZE(resume->values));
    PyObject* next;
    if (resume->taken) {
      PyObject* list = take_values(resume);
      next = list ? PyObject_CallOneArg(target, list) : nullptr;
      Py_XDECREF(list);
    } else if (Py_TYPE(target) == &CompiledFunction_Type) {
      next = call_segment(target, values, count, nullptr, resume);
    } else {
      next = PyObject_Vectorcall(target, values, count, nullptr);
    }
    Py_DECREF(result);
    result = next;
  }
  if (!result) drop_own_frames();
  return result;
}

// ---- the Python type

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
  auto* self = compiled_of(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = compiled_vectorcall;
  self->enabled = true;
  self->entries = new std::vector<EntryObject*>();
  self->dispatcher = new Dispatcher();
  Py_INCREF(function);
  self->function = function;
  Py_INCREF(miss);
  self->miss = miss;
  if (prefix && PyTuple_GET_SIZE(prefix) > 0) {
    Py_INCREF(prefix);
    self->prefix = prefix;
  }
  self->dict = PyDict_New();
  // In the dict, so that functools.update_wrapper may set it and inspect.signature follows it.
  if (!self->dict || PyDict_SetItemString(self->dict, "__wrapped__", function) < 0) {
    Py_DECREF(self);
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(self);
}

int compiled_traverse(PyObject* object, visitproc visit, void* arg) {
  CompiledObject* self = compiled_of(object);
  Py_VISIT(self->function);
  Py_VISIT(self->miss);
  Py_VISIT(self->taker);
  Py_VISIT(self->prefix);
  Py_VISIT(self->dict);
  if (self->entries) {
    for (EntryObject* entry : *self->entries) Py_VISIT(reinterpret_cast<PyObject*>(entry));
  }
  if (self->dispatcher) Py_VISIT(self->dispatcher->program());
  return 0;
}

void drop_entries(CompiledObject* self) {
  self->dispatcher->set_program(nullptr);
  std::vector<EntryObject*> dropped;
  dropped.swap(*self->entries);  // finalizers see the list empty
  for (EntryObject* entry : dropped) Py_DECREF(entry);
}

int compiled_clear(PyObject* object) {
  CompiledObject* self = compiled_of(object);
  // The function stays: a finalizer elsewhere in the cycle may still call us, and then runs it eagerly.
  drop_entries(self);
  Py_CLEAR(self->dict);
  Py_CLEAR(self->miss);
  Py_CLEAR(self->taker);
  return 0;
}

void compiled_dealloc(PyObject* object) {
  CompiledObject* self = compiled_of(object);
  PyObject_GC_UnTrack(object);
  if (self->weak_references) PyObject_ClearWeakRefs(object);
  if (self->entries) drop_entries(self);
  delete self->entries;
  delete self->dispatcher;
  Py_CLEAR(self->dict);
  Py_CLEAR(self->function);
  Py_CLEAR(self->miss);
  Py_CLEAR(self->taker);
  Py_CLEAR(self->prefix);
  Py_TYPE(object)->tp_free(object);
}

PyObject* compiled_get(PyObject* object, PyObject* instance, PyObject*) {
  if (!instance || instance == Py_None) {
    Py_INCREF(object);
    return object;
  }
  return PyMethod_New(object, instance);
}

PyObject* compiled_repr(PyObject* object) {
  return PyUnicode_FromFormat("<stator compiled %R>", compiled_of(object)->function);
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
  EntryObject* entry = new_entry(program, residual, tag);
  if (!entry) return nullptr;
  auto& entries = *compiled_of(object)->entries;
  entries.insert(entries.begin(), entry);
  Py_RETURN_NONE;
}

template <class Make>
PyObject* list_of_entries(PyObject* object, Make make) {
  // A copy: making Python objects may run a collection, and with it anything.
  std::vector<EntryObject*> entries = *compiled_of(object)->entries;
  for (EntryObject* entry : entries) Py_INCREF(entry);
  PyObject* list = PyList_New(0);
  for (EntryObject* entry : entries) {
    PyObject* item = list ? make(entry) : nullptr;
    if (list && (!item || PyList_Append(list, item) < 0)) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  for (EntryObject* entry : entries) Py_DECREF(entry);
  return list;
}

PyObject* get_entries(PyObject* object, PyObject*) {
  return list_of_entries(object, [](EntryObject* entry) {
    return PyTuple_Pack(3, entry->program, entry->residual, entry->tag);
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
  auto place = std::find_if(entries.begin(), entries.end(), [&](EntryObject* e) { return e->program == program; });
  if (place == entries.end()) Py_RETURN_FALSE;
  EntryObject* entry = *place;
  entries.erase(place);
  compiled_of(object)->dispatcher->forget();
  Py_DECREF(entry);
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
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef compiled_members[] = {
    {"fn", T_OBJECT_EX, offsetof(CompiledObject, function), READONLY, "the function itself"},
    {"miss", T_OBJECT_EX, offsetof(CompiledObject, miss), READONLY, "called when no entry holds"},
    {"prefix_args", T_OBJECT, offsetof(CompiledObject, prefix), READONLY, "arguments put before each call's"},
    {"taker", T_OBJECT, offsetof(CompiledObject, taker), 0, "called in place of fn with a list, which it may empty"},
    {"enabled", T_BOOL, offsetof(CompiledObject, enabled), READONLY, "False: fn is called directly"},
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

PyObject* listen_to_redone(PyObject*, PyObject* listener) {
  Py_XSETREF(redo_listener, Py_NewRef(listener));
  Py_RETURN_NONE;
}

PyObject* listen_to_eager(PyObject*, PyObject* listener) {
  Py_XSETREF(eager_listener, Py_NewRef(listener));
  Py_RETURN_NONE;
}

}  // namespace stator
