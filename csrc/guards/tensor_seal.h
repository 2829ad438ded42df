// Tensors proven before, proven again: their metadata compared as it lies in memory.
//
// In: tensors that have just passed their checks.  Out: whether each is the same object around the same TensorImpl
// with the same words of metadata (sizes, strides, offset, dtype, device, layout bits, dispatch keys) and requires_grad.
// A difference says only that the checks must be asked again.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

namespace stator {

class TensorSeals {
 public:
  // False: this tensor keeps facts elsewhere (many dimensions, symbolic sizes, a view's base) and cannot be sealed.
  bool add(PyObject* tensor);
  // Every object added must be proven alive by now.
  bool hold() const;
  void clear();
  size_t size() const { return seals_.size(); }

 private:
  static constexpr int words = 15;  // from SizesAndStrides to the key set

  struct Metadata {
    uint64_t words[TensorSeals::words];
  };
  struct Seal {
    PyObject* object;
    PyTypeObject* type;
    const char* impl;
    const void* autograd;   // AutogradMeta, or nullptr
    uint32_t metadata;      // tensors of one kind share theirs
    bool requires_grad;
  };

  static void fetch(const Seal& seal);
  uint32_t metadata_of(const char* impl);
  bool compare() const;
  bool compare_wide() const;  // by instructions that not every processor has

  std::vector<Seal> seals_;
  std::vector<Metadata> metadata_;
};

// Finds where this torch keeps a TensorImpl's fields.  Where they are not as expected, nothing is ever sealed.
void tensor_seal_init();

}  // namespace stator
