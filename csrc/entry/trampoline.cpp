// Calls of a CompiledFunction: a segment at a time, the trampoline around them.  See compiled_function.h.
#include <algorithm>
#include <vector>

#include "entry/argument_binding.h"
#include "entry/call_listeners.h"
#include "entry/compiled_function.h"
#include "entry/eager_switch.h"
#include "entry/native_step.h"
#include "entry/resume.h"
#include "entry/user_traceback.h"
#include "guards/guard_program.h"

namespace stator {

namespace {

// A vectorcall, as it came in.
struct Call {
  PyObject* const* args;
  size_t flagged_count;
  PyObject* names;
  Continuation* owner = nullptr;  // holds args, where they are live values of the segment before

  Py_ssize_t count() const { return PyVectorcall_NARGS(flagged_count); }
};

// fn(*prefix, *args, **kwargs), for calls that are not compiled.  With an owner of args: what the program lets go of on
// its way must die, so nobody below it may hold it.
Ref call_function(CompiledObject* self, const Call& call) {
  if (call.owner && self->taker && call.owner->values) {
    Ref list = call.owner->take_values();
    if (!list) return Ref();
    Ref taker = Ref::borrow(self->taker.get());
    return Ref::steal(PyObject_CallOneArg(taker.get(), list.get()));
  }
  if (!self->prefix) {
    return Ref::steal(PyObject_Vectorcall(self->function.get(), call.args, call.flagged_count, call.names));
  }
  Ref function = Ref::borrow(self->function.get()), prefix = Ref::borrow(self->prefix.get());
  Py_ssize_t keywords = call.names ? PyTuple_GET_SIZE(call.names) : 0;
  Py_ssize_t prefix_count = PyTuple_GET_SIZE(prefix.get());
  std::vector<PyObject*> all;
  all.reserve(static_cast<size_t>(prefix_count + call.count() + keywords));
  for (Py_ssize_t i = 0; i < prefix_count; ++i) all.push_back(PyTuple_GET_ITEM(prefix.get(), i));
  all.insert(all.end(), call.args, call.args + call.count() + keywords);
  auto count = static_cast<size_t>(prefix_count + call.count());
  return Ref::steal(PyObject_Vectorcall(function.get(), all.data(), count, call.names));
}

// Runs the residual of an entry whose guards hold.
Ref call_residual(EntryObject* entry, WantedValues& values) {
  return Ref::steal(PyObject_Vectorcall(entry->residual.get(), values.data(),
                                        static_cast<size_t>(values.size()) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

Ref arguments_tuple(CompiledObject* self, const Call& call) {
  Py_ssize_t prefix_count = self->prefix ? PyTuple_GET_SIZE(self->prefix.get()) : 0;
  Ref tuple = Ref::steal(PyTuple_New(prefix_count + call.count()));
  for (Py_ssize_t i = 0; tuple && i < prefix_count + call.count(); ++i) {
    PyObject* item = i < prefix_count ? PyTuple_GET_ITEM(self->prefix.get(), i) : call.args[i - prefix_count];
    PyTuple_SET_ITEM(tuple.get(), i, new_reference(item));
  }
  return tuple;
}

Ref keywords_dict(const Call& call) {
  if (!call.names || PyTuple_GET_SIZE(call.names) == 0) return Ref::borrow(Py_None);
  Ref dict = Ref::steal(PyDict_New());
  for (Py_ssize_t i = 0; dict && i < PyTuple_GET_SIZE(call.names); ++i) {
    if (PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(call.names, i), call.args[call.count() + i]) < 0) return Ref();
  }
  return dict;
}

Ref call_miss(CompiledObject* self, const BoundArguments& bound, const Call& call) {
  Ref bound_tuple = bound.as_tuple();
  if (!bound_tuple) return Ref();
  Ref positional = arguments_tuple(self, call);
  if (!positional) return Ref();
  Ref keywords = keywords_dict(call);
  if (!keywords) return Ref();
  Ref miss = Ref::borrow(self->miss.get());
  PyObject* arguments[] = {nullptr, reinterpret_cast<PyObject*>(self), bound_tuple.get(), positional.get(),
                           keywords.get()};
  return Ref::steal(PyObject_Vectorcall(miss.get(), arguments + 1, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

void move_to_front(std::vector<Ref>& entries, EntryObject* entry) {
  auto is_it = [&](const Ref& other) { return other.as<EntryObject>() == entry; };
  if (!entries.empty() && is_it(entries.front())) return;
  auto place = std::find_if(entries.begin(), entries.end(), is_it);
  if (place != entries.end()) std::rotate(entries.begin(), place, place + 1);
}

// What the dispatcher says of a call.
struct Hint {
  uint64_t fingerprint;
  EntryObject* guess;  // borrowed, or nullptr
};

// Tries one entry, which may be removed meanwhile.  True: `result` is the call's result (nothing: it raised).
bool try_entry(CompiledObject* self, EntryObject* entry, const BoundArguments& bound, const Call& call, Ref& result,
               const Hint* hint = nullptr) {
  Ref held = Ref::borrow(entry);
  WantedValues values;
  entry->failed_check = guard_program_of(entry->program.get())->run(bound.data(), bound.size(), &values);
  if (entry->failed_check >= 0) return PyErr_Occurred() != nullptr;
  ++entry->hits;
  if (!hint || hint->guess != entry) {
    if (hint) self->dispatcher->learn(hint->fingerprint, entry);
    move_to_front(*self->entries, entry);
  }
  if (entry->residual.get() == eager_sentinel) {
    result = call_function(self, call);
  } else {
    result = call_residual(entry, values);
    if (result.get() == eager_sentinel) {  // nothing was written so far
      result = tell_redone(reinterpret_cast<PyObject*>(self), call_function(self, call));
    }
  }
  return true;
}

// Asks for a new entry.  The answer is the call's result, or EAGER (call fn), or RETRY (an entry fits now): then
// the call is made from here, so that no frame of the compiler stands in the user's tracebacks.
Ref after_miss(CompiledObject* self, const BoundArguments& bound, const Call& call) {
  Ref result = call_miss(self, bound, call);
  if (result.get() == retry_sentinel) {
    result.reset();
    // The new entry is in front, unless another thread has added one since.
    for (size_t i = 0; i < self->entries->size(); ++i) {
      if (try_entry(self, (*self->entries)[i].as<EntryObject>(), bound, call, result)) return result;
    }
    if (!tell_eager(reinterpret_cast<PyObject*>(self), "another thread changed a fact that the new entry relies on")) {
      return Ref();
    }
    return call_function(self, call);
  }
  if (result.get() == eager_sentinel) return call_function(self, call);
  return result;
}

// One segment: its value, or a Resume.
Ref call_segment(PyObject* object, const Call& call) {
  CompiledObject* self = compiled_of(object);
  if (!self->enabled || !self->miss) return call_function(self, call);
  const char* reason = eager_reasons != 0 ? reason_to_run_eagerly() : nullptr;
  bool stepped = is_stepped();
  if (!reason && stepped && !self->steppable) reason = "sys.settrace is in use";
  if (reason) return tell_eager(object, reason) ? call_function(self, call) : Ref();
  BoundArguments bound;
  switch (bound.bind(self->function.as<PyFunctionObject>(), self->prefix.get(), call.args, call.count(), call.names)) {
    case BoundArguments::Outcome::yes:
      break;
    case BoundArguments::Outcome::no:
      return call_function(self, call);  // CPython raises its own TypeError
    case BoundArguments::Outcome::error:
      return Ref();
  }
  Ref held = Ref::borrow(object);  // residuals and finalizers may drop the last outside reference, or change the list
  Ref result;
  bool done = false;
  Hint hint{0, nullptr};
  bool hinted = self->dispatcher->is_ready() && self->dispatcher->read(bound.data(), bound.size(), &hint.fingerprint);
  if (hinted) hint.guess = self->dispatcher->guess(hint.fingerprint);
  auto attempt = [&](EntryObject* entry) {
    done = try_entry(self, entry, bound, call, result, hinted ? &hint : nullptr);
  };
  if (hint.guess) attempt(hint.guess);
  for (size_t i = 0; !done && i < self->entries->size(); ++i) {
    auto* entry = (*self->entries)[i].as<EntryObject>();
    if (entry != hint.guess) attempt(entry);
  }
  if (!done && stepped) {  // captures are not for a debugger
    return tell_eager(object, "sys.settrace is in use, and no entry accepts the call") ? call_function(self, call) : Ref();
  }
  if (!done) result = after_miss(self, bound, call);
  return result;
}

// The next segment, or whatever else the target runs.  The values live until it has returned, unless it takes them.
Ref go_on(Continuation at) {
  if (at.taken) {
    Ref list = at.take_values();
    return list ? Ref::steal(PyObject_CallOneArg(at.target.get(), list.get())) : Ref();
  }
  if (is_native_step(at.target.get()) && !run_native_step(at)) return Ref();
  PyObject* const* values = &PyTuple_GET_ITEM(at.values.get(), 0);
  auto count = static_cast<size_t>(PyTuple_GET_SIZE(at.values.get()));
  if (Py_TYPE(at.target.get()) == &CompiledFunction_Type) return call_segment(at.target.get(), {values, count, nullptr, &at});
  return Ref::steal(PyObject_Vectorcall(at.target.get(), values, count, nullptr));
}

}  // namespace

// The trampoline: segments that end in a graph break return, so a break in a loop costs no stack.
PyObject* compiled_vectorcall(PyObject* object, PyObject* const* args, size_t flagged_count, PyObject* names) {
  Ref result = call_segment(object, {args, flagged_count, names});
  while (result && is_resume(result.get())) result = go_on(continuation_of(std::move(result)));
  if (!result) drop_own_frames();
  return result.release();
}

}  // namespace stator
