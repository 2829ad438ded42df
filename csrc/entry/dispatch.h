// Which of many entries to try first.
//
// In: a program that reads the values by which a function's entries differ (stator/cache/dispatch.py picks them).
// Out: the entry that took the last call with these values.  It is a guess: the entry's own guards decide.
#pragma once

#include <Python.h>

#include <cstdint>
#include <unordered_map>

#include "entry/entry.h"
#include "ref.h"

namespace stator {

class Dispatcher {
 public:
  bool is_ready() const { return static_cast<bool>(program_); }
  void set_program(PyObject* program);  // nullptr: none
  PyObject* program() const { return program_.get(); }

  // False when the values cannot be read: no guess.
  bool read(PyObject* const* arguments, Py_ssize_t count, uint64_t* fingerprint);
  EntryObject* guess(uint64_t fingerprint) const;  // borrowed, or nullptr
  void learn(uint64_t fingerprint, EntryObject* entry);
  void forget() { known_.clear(); }  // whenever an entry goes

 private:
  static constexpr size_t most_known = 4096;
  Ref program_;
  std::unordered_map<uint64_t, EntryObject*> known_;  // borrowed from the function's list
};

}  // namespace stator
