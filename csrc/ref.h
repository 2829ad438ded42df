// Ref: one owned reference to a Python object, given up where the scope ends.
//
// In: a new reference (`steal`) or a borrowed one (`borrow`); nullptr is no object.  Out: the pointer for C calls
// (`get`, `as`), or the reference itself (`release`).
//
// Move-only: another reference is taken by name.  Assignment and `reset` store the new value before they give up the
// old one, as Py_SETREF does: a finalizer that runs then meets no dead object.  Zeroed memory is an empty Ref, so that
// a struct made by tp_alloc may have Refs as fields; its tp_dealloc resets them.
#pragma once

#include <Python.h>

#include <type_traits>
#include <utility>

namespace stator {

class Ref {
 public:
  constexpr Ref() = default;
  // The caller's reference becomes ours.
  static Ref steal(PyObject* object) { return Ref(object); }
  // A reference of our own; the caller keeps its.
  static Ref borrow(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }
  template <class Struct>
  static Ref borrow(Struct* object) {
    return borrow(reinterpret_cast<PyObject*>(object));
  }

  Ref(Ref&& other) noexcept : object_(other.release()) {}
  Ref& operator=(Ref&& other) noexcept {
    Ref taken(std::move(other));
    std::swap(object_, taken.object_);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  template <class Struct>
  Struct* as() const {
    return reinterpret_cast<Struct*>(object_);
  }
  explicit operator bool() const { return object_ != nullptr; }

  // The reference is the caller's from here on.
  [[nodiscard]] PyObject* release() { return std::exchange(object_, nullptr); }
  void reset() { Ref dropped(std::move(*this)); }

 private:
  explicit Ref(PyObject* object) : object_(object) {}

  PyObject* object_ = nullptr;
};

static_assert(sizeof(Ref) == sizeof(PyObject*) && std::is_standard_layout_v<Ref>, "PyMemberDef reads it as a pointer");

// A new reference, for C calls that steal one and for functions that CPython calls.
inline PyObject* new_reference(PyObject* object) { return Ref::borrow(object).release(); }

}  // namespace stator
