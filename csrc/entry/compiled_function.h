// CompiledFunction(fn, miss, prefix_args=()): a vectorcall callable in front of guarded entries.
//
// In: a call.  It is bound to fn's parameters; the entries are tried, the most recently used first (or, where there are
// many, first the one that took the last such call).
// Out: residual(*wanted) of the entry whose guards hold, else miss(self, bound, args, kwargs), where
// fn(*args, **kwargs) would be the eager call.  Entries may be added and removed during any of this.
#pragma once

#include <Python.h>

#include <vector>

#include "entry/dispatch.h"
#include "entry/entry.h"
#include "ref.h"

namespace stator {

struct CompiledObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Ref function;
  Ref miss;
  Ref prefix;  // a tuple, or none when empty
  Ref taker;   // or none; called in place of `function`, with a list, where the trampoline has the values
  Ref dict;
  PyObject* weak_references;
  std::vector<Ref>* entries;  // EntryObjects, the most recently used first
  Dispatcher* dispatcher;
  bool enabled;
  bool steppable;  // a debugger steps through its residuals, instead of the program
};

inline CompiledObject* compiled_of(PyObject* object) { return reinterpret_cast<CompiledObject*>(object); }

extern PyTypeObject CompiledFunction_Type;

// The calls of a CompiledFunction.
PyObject* compiled_vectorcall(PyObject* object, PyObject* const* args, size_t flagged_count, PyObject* names);

}  // namespace stator
