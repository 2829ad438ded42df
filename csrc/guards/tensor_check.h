// Tensor metadata and torch's global state, compared without calling Python.
//
// In: the payloads that stator/guards/lower.py makes.  Out: yes or no for a tensor, or for now.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>

#include "ref.h"

namespace stator {

class TensorCheck {
 public:
  // From (type, dtype, device, layout, sizes, strides, requires_grad, dispatch_keys, storage_offset);
  // nullptr with an exception set when the payload is malformed.
  static std::unique_ptr<TensorCheck> parse(PyObject* payload);
  virtual ~TensorCheck() = default;
  virtual bool matches(PyObject* object) const = 0;
  // Whether all it asks of a strided tensor is what TensorSeals compares.
  virtual bool is_sealable() const = 0;
};

// The contents of a dense tensor in the CPU's memory.
class ValuesCheck {
 public:
  // From (dtype, sizes, bytes); nullptr with an exception set when the payload is malformed.
  static std::unique_ptr<ValuesCheck> parse(PyObject* payload);
  virtual ~ValuesCheck() = default;
  virtual bool matches(PyObject* object) const = 0;
};

class StateCheck {
 public:
  // From the tuple that lower.py makes of a GlobalState.
  static std::unique_ptr<StateCheck> parse(PyObject* payload);
  virtual ~StateCheck() = default;
  virtual bool matches() const = 0;
};

bool is_tensor(PyObject* object);

// A number that tensors of one dtype, device and shape share.
uint64_t tensor_fingerprint(PyObject* tensor);

// tensor_item(tensor, place): an element of a small integer tensor in the CPU's memory, counted in reading order.
PyObject* tensor_item(PyObject* module, PyObject* const* args, Py_ssize_t count);

// plain_tensor(tensor): the address and the bytes of the memory of a dense leaf that shows all of it, row by row, and is
// of no special kind; None for any other tensor.
PyObject* plain_tensor(PyObject* module, PyObject* object);

// plain_leaves(*tensors): whether each is a leaf, and accumulating its gradient calls no hook of any kind.
PyObject* plain_leaves(PyObject* module, PyObject* const* args, Py_ssize_t count);

// leaves_with_listed_hooks(*tensors): whether each is a leaf whose hooks are all in its two dicts of Python.
PyObject* leaves_with_listed_hooks(PyObject* module, PyObject* const* args, Py_ssize_t count);

// attention_kernels(): which kernels scaled_dot_product_attention may choose, and in which order, as one number.
PyObject* attention_kernels(PyObject* module, PyObject* unused);

// saved_hooks_of_program(): whether hooks on saved tensors are on that are not functions of torch's own modules.
PyObject* saved_hooks_of_program(PyObject* module, PyObject* unused);

// `grad` or `_base` of a tensor (None when there is none), nothing for other names.
Ref tensor_attribute(PyObject* tensor, PyObject* name);

}  // namespace stator
