// See argument_binding.h; the order of the steps follows initialize_locals in Python/ceval.c.
#include "entry/argument_binding.h"

#include <algorithm>

#include "guards/raw_read.h"

namespace stator {

BoundArguments::Outcome BoundArguments::bind(PyFunctionObject* function, PyObject* prefix, PyObject* const* args,
                                             Py_ssize_t count, PyObject* keyword_names) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  const Py_ssize_t positional = code->co_argcount;
  const Py_ssize_t named = positional + code->co_kwonlyargcount;
  const bool has_star_args = code->co_flags & CO_VARARGS;
  const bool has_star_kwargs = code->co_flags & CO_VARKEYWORDS;
  const Py_ssize_t prefix_count = prefix ? PyTuple_GET_SIZE(prefix) : 0;
  const Py_ssize_t keyword_count = keyword_names ? PyTuple_GET_SIZE(keyword_names) : 0;
  size_ = named + has_star_args + has_star_kwargs;

  if (!prefix_count && !keyword_count && count == positional && size_ == positional) {
    data_ = args;  // the common call: nothing to move
    return Outcome::yes;
  }
  const Py_ssize_t given = prefix_count + count;
  if (given > positional && !has_star_args) return Outcome::no;
  if (size_ <= small_size) {
    slots_ = small_;
    std::fill(small_, small_ + size_, nullptr);
  } else {
    large_.assign(static_cast<size_t>(size_), nullptr);
    slots_ = large_.data();
  }
  data_ = slots_;
  auto argument = [&](Py_ssize_t i) { return i < prefix_count ? PyTuple_GET_ITEM(prefix, i) : args[i - prefix_count]; };
  for (Py_ssize_t i = 0; i < std::min(given, positional); ++i) slots_[i] = argument(i);
  if (has_star_args) {
    Py_ssize_t rest = std::max<Py_ssize_t>(0, given - positional);
    star_args_ = Ref::steal(PyTuple_New(rest));
    if (!star_args_) return Outcome::error;
    for (Py_ssize_t i = 0; i < rest; ++i) {
      PyObject* item = argument(positional + i);
      PyTuple_SET_ITEM(star_args_.get(), i, new_reference(item));
    }
    slots_[named] = star_args_.get();
  }
  if (has_star_kwargs) {
    star_kwargs_ = Ref::steal(PyDict_New());
    if (!star_kwargs_) return Outcome::error;
    slots_[named + has_star_args] = star_kwargs_.get();
  }
  for (Py_ssize_t i = 0; i < keyword_count; ++i) {
    if (!bind_keyword(code, PyTuple_GET_ITEM(keyword_names, i), args[count + i], star_kwargs_.get())) {
      return PyErr_Occurred() ? Outcome::error : Outcome::no;
    }
  }
  return fill_defaults(function, code) ? Outcome::yes : Outcome::no;
}

bool BoundArguments::bind_keyword(PyCodeObject* code, PyObject* name, PyObject* value, PyObject* extra) {
  // A str subclass may bring its own __eq__: CPython binds that call itself.
  if (!PyUnicode_CheckExact(name)) return false;
  const Py_ssize_t named = code->co_argcount + code->co_kwonlyargcount;
  Py_ssize_t place = -1;
  for (Py_ssize_t i = code->co_posonlyargcount; place < 0 && i < named; ++i) {
    if (PyTuple_GET_ITEM(code->co_localsplusnames, i) == name) place = i;
  }
  for (Py_ssize_t i = code->co_posonlyargcount; place < 0 && i < named; ++i) {
    if (PyUnicode_Compare(PyTuple_GET_ITEM(code->co_localsplusnames, i), name) == 0) place = i;
  }
  if (place >= 0) {
    if (slots_[place]) return false;  // given twice
    slots_[place] = value;
    return true;
  }
  return extra && PyDict_SetItem(extra, name, value) == 0;
}

bool BoundArguments::fill_defaults(PyFunctionObject* function, PyCodeObject* code) {
  const Py_ssize_t positional = code->co_argcount;
  PyObject* defaults = function->func_defaults;
  const Py_ssize_t default_count = defaults ? PyTuple_GET_SIZE(defaults) : 0;
  for (Py_ssize_t i = 0; i < positional; ++i) {
    if (slots_[i]) continue;
    Py_ssize_t place = i - (positional - default_count);
    if (place < 0) return false;
    slots_[i] = PyTuple_GET_ITEM(defaults, place);
  }
  PyObject* keyword_defaults = function->func_kwdefaults;
  for (Py_ssize_t i = positional; i < positional + code->co_kwonlyargcount; ++i) {
    if (slots_[i]) continue;
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
    PyObject* value = nullptr;
    if (!keyword_defaults ||
        dict_lookup(keyword_defaults, name, PyObject_Hash(name), &value) != Found::yes) {
      return false;
    }
    slots_[i] = value;
  }
  return true;
}

Ref BoundArguments::as_tuple() const {
  Ref tuple = Ref::steal(PyTuple_New(size_));
  for (Py_ssize_t i = 0; tuple && i < size_; ++i) PyTuple_SET_ITEM(tuple.get(), i, new_reference(data_[i]));
  return tuple;
}

}  // namespace stator
