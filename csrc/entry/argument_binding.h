// Binding a call's arguments to a Python function's parameters, as CPython's frame setup does.
//
// In: a vectorcall (prefix arguments, positionals, keyword names) and a function.
// Out: the bound array in the order of co_varnames: positional, keyword-only, *args, **kwargs.
// When CPython would raise TypeError the answer is `no`, and the caller lets CPython say so itself.
#pragma once

#include <Python.h>

#include <vector>

#include "ref.h"

namespace stator {

class BoundArguments {
 public:
  enum class Outcome { yes, no, error };

  BoundArguments() = default;
  BoundArguments(const BoundArguments&) = delete;
  BoundArguments& operator=(const BoundArguments&) = delete;

  // `error`: out of memory, with an exception set.
  Outcome bind(PyFunctionObject* function, PyObject* prefix, PyObject* const* args, Py_ssize_t count,
               PyObject* keyword_names);

  PyObject* const* data() const { return data_; }
  Py_ssize_t size() const { return size_; }
  Ref as_tuple() const;

 private:
  bool bind_keyword(PyCodeObject* code, PyObject* name, PyObject* value, PyObject* extra);
  bool fill_defaults(PyFunctionObject* function, PyCodeObject* code);

  static constexpr Py_ssize_t small_size = 16;
  PyObject* small_[small_size];
  std::vector<PyObject*> large_;
  PyObject* const* data_ = nullptr;
  PyObject** slots_ = nullptr;
  Py_ssize_t size_ = 0;
  Ref star_args_, star_kwargs_;
};

}  // namespace stator
