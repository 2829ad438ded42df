// See dispatch.h.
#include "entry/dispatch.h"

#include <c10/core/GradMode.h>

#include "guards/guard_program.h"
#include "guards/raw_read.h"
#include "guards/tensor_check.h"

namespace stator {

namespace {

uint64_t mix(uint64_t seed, uint64_t value) {
  uint64_t mixed = (seed ^ value) * 0x9E3779B97F4A7C15ull;
  return mixed ^ (mixed >> 29);
}

uint64_t fingerprint_of(PyObject* value) {
  auto type = reinterpret_cast<uint64_t>(Py_TYPE(value));
  if (is_tensor(value)) return mix(type, tensor_fingerprint(value));
  if (hashes_quietly(value)) {
    Py_hash_t hash = PyObject_Hash(value);
    if (hash == -1) PyErr_Clear();
    return mix(type, static_cast<uint64_t>(hash));
  }
  Py_ssize_t length = raw_length(value);
  return mix(type, length >= 0 ? static_cast<uint64_t>(length) : reinterpret_cast<uint64_t>(value));
}

}  // namespace

void Dispatcher::set_program(PyObject* program) {
  forget();
  program_ = Ref::borrow(program);
}

bool Dispatcher::read(PyObject* const* arguments, Py_ssize_t count, uint64_t* fingerprint) {
  WantedValues values;
  Ref program = Ref::borrow(program_.get());  // a reader that it calls may set another one
  if (guard_program_of(program.get())->run(arguments, count, &values) >= 0) {
    PyErr_Clear();
    return false;
  }
  uint64_t mixed = c10::GradMode::is_enabled() ? 1 : 2;
  for (Py_ssize_t i = 0; i < values.size(); ++i) mixed = mix(mixed, fingerprint_of(values.data()[i]));
  *fingerprint = mixed;
  return true;
}

EntryObject* Dispatcher::guess(uint64_t fingerprint) const {
  auto found = known_.find(fingerprint);
  return found == known_.end() ? nullptr : found->second;
}

void Dispatcher::learn(uint64_t fingerprint, EntryObject* entry) {
  if (known_.size() >= most_known) known_.clear();
  known_[fingerprint] = entry;
}

}  // namespace stator
