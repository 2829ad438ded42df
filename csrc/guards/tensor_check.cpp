// See tensor_check.h.
#include "guards/tensor_check.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <vector>

namespace stator {
namespace {

// A protected, non-virtual read: `device()` itself may dispatch to a subclass's Python code.
struct Peek : c10::TensorImpl {
  static c10::Device device(const c10::TensorImpl* impl) { return (impl->*(&Peek::device_default))(); }
};

constexpr int64_t open_extent = -1;

struct Extents {
  std::vector<int64_t> values;

  bool parse(PyObject* tuple) {
    if (!PyTuple_Check(tuple)) {
      PyErr_SetString(PyExc_TypeError, "sizes and strides must be tuples");
      return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
      PyObject* item = PyTuple_GET_ITEM(tuple, i);
      values.push_back(item == Py_None ? open_extent : PyLong_AsLongLong(item));
      if (PyErr_Occurred()) return false;
    }
    return true;
  }

  bool match(c10::IntArrayRef actual) const {
    if (actual.size() != values.size()) return false;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != actual[i] && values[i] != open_extent) return false;
    }
    return true;
  }
};

class TensorFacts final : public TensorCheck {
 public:
  bool parse_payload(PyObject* payload) {
    PyObject *dtype, *device, *layout, *sizes, *strides, *keys, *offset, *type;
    int grad;
    if (!PyArg_ParseTuple(payload, "OOOOOOpOO", &type, &dtype, &device, &layout, &sizes, &strides, &grad, &keys,
                          &offset)) {
      return false;
    }
    if (!PyType_Check(type) || !THPVariableClass ||
        !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), reinterpret_cast<PyTypeObject*>(THPVariableClass)) ||
        !THPDtype_Check(dtype) || !THPDevice_Check(device) || !THPLayout_Check(layout)) {
      PyErr_SetString(PyExc_TypeError, "a tensor check wants (tensor type, dtype, device, layout, ...)");
      return false;
    }
    type_ = reinterpret_cast<PyTypeObject*>(type);  // kept alive by the payload, which the program holds
    dtype_ = reinterpret_cast<THPDtype*>(dtype)->scalar_type;
    device_ = reinterpret_cast<THPDevice*>(device)->device;
    layout_ = reinterpret_cast<THPLayout*>(layout)->layout;
    requires_grad_ = grad != 0;
    keys_ = PyLong_AsUnsignedLongLongMask(keys);
    has_strides_ = strides != Py_None;
    has_offset_ = offset != Py_None;
    if (has_offset_) offset_ = PyLong_AsLongLong(offset);
    return !PyErr_Occurred() && sizes_.parse(sizes) && (!has_strides_ || strides_.parse(strides));
  }

  bool matches(PyObject* object) const override {
    if (Py_TYPE(object) != type_) return false;
    const at::Tensor& tensor = THPVariable_Unpack(object);
    if (!tensor.defined()) return false;
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    // The key set decides most of the layout; only the compressed sparse layouts share their keys.
    if (impl->key_set().raw_repr() != keys_ || c10::typeMetaToScalarType(impl->dtype()) != dtype_) return false;
    if (impl->has_symbolic_sizes_strides() || Peek::device(impl) != device_) return false;
    if (!sizes_.match(impl->sizes_default())) return false;
    if (has_strides_ && !strides_.match(impl->strides_default())) return false;
    if (layout_ != c10::kStrided && !layout_matches(impl)) return false;
    if (has_offset_ && impl->storage_offset() != offset_) return false;
    return impl->requires_grad() == requires_grad_;
  }

  bool is_sealable() const override { return layout_ == c10::kStrided; }

 private:
  bool layout_matches(const c10::TensorImpl* impl) const {
    try {
      return impl->layout() == layout_;
    } catch (const std::exception&) {
      PyErr_Clear();  // a subclass that answers for its layout in Python, and raised
      return false;
    }
  }

  PyTypeObject* type_ = nullptr;
  uint64_t keys_ = 0;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  c10::Device device_ = c10::Device(c10::kCPU);
  c10::Layout layout_ = c10::kStrided;
  Extents sizes_, strides_;
  int64_t offset_ = 0;
  bool requires_grad_ = false, has_strides_ = false, has_offset_ = false;
};

class TensorContents final : public ValuesCheck {
 public:
  bool parse_payload(PyObject* payload) {
    PyObject *dtype, *sizes, *data;
    if (!PyArg_ParseTuple(payload, "OOS", &dtype, &sizes, &data)) return false;
    if (!THPDtype_Check(dtype)) {
      PyErr_SetString(PyExc_TypeError, "a check of values wants (dtype, sizes, bytes)");
      return false;
    }
    data_ = PyBytes_AS_STRING(data);
    dtype_ = reinterpret_cast<THPDtype*>(dtype)->scalar_type;
    item_size_ = c10::elementSize(dtype_);
    return sizes_.parse(sizes);  // the bytes are kept alive by the payload, which the program holds
  }

  bool matches(PyObject* object) const override {
    if (!THPVariable_Check(object)) return false;
    const at::Tensor& tensor = THPVariable_Unpack(object);
    if (!tensor.defined()) return false;
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (impl->has_symbolic_sizes_strides() || !impl->has_storage() || !Peek::device(impl).is_cpu()) return false;
    if (c10::typeMetaToScalarType(impl->dtype()) != dtype_ || !sizes_.match(impl->sizes_default())) return false;
    const auto* start = static_cast<const char*>(impl->storage().data());
    if (!start) return impl->numel() == 0;
    const char* expected = data_;
    return same(start + impl->storage_offset() * item_size_, impl->sizes_default(), impl->strides_default(), 0, expected);
  }

 private:
  bool same(const char* at, c10::IntArrayRef sizes, c10::IntArrayRef strides, size_t dim, const char*& expected) const {
    if (dim == sizes.size()) {
      if (std::memcmp(at, expected, item_size_) != 0) return false;
      expected += item_size_;
      return true;
    }
    if (dim + 1 == sizes.size() && strides[dim] == 1) {
      if (std::memcmp(at, expected, sizes[dim] * item_size_) != 0) return false;
      expected += sizes[dim] * item_size_;
      return true;
    }
    for (int64_t i = 0; i < sizes[dim]; ++i) {
      if (!same(at + i * strides[dim] * static_cast<int64_t>(item_size_), sizes, strides, dim + 1, expected)) return false;
    }
    return true;
  }

  const char* data_ = nullptr;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  size_t item_size_ = 1;
  Extents sizes_;
};

template <typename T>
T read_as(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

PyObject* plain_tensor(PyObject*, PyObject* object) {
  if (!THPVariable_Check(object)) Py_RETURN_NONE;
  const at::Tensor& tensor = THPVariable_Unpack(object);
  constexpr c10::DispatchKeySet special({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                         c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchBatched,
                                         c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Python,
                                         c10::DispatchKey::ZeroTensor});
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_meta() || tensor.is_quantized() ||
      tensor.is_nested() || tensor.key_set().has_any(special) || tensor.is_inference() ||
      tensor.unsafeGetTensorImpl()->is_python_dispatch() || tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() ||
      !tensor.has_storage() || tensor.dim() == 0 || !tensor.is_contiguous() || tensor.storage_offset() != 0 ||
      !tensor.is_leaf() || tensor.is_view() || tensor.grad().defined()) {
    Py_RETURN_NONE;
  }
  const void* address = tensor.storage().data();
  size_t nbytes = tensor.storage().nbytes();
  if (!address || nbytes != tensor.numel() * tensor.element_size()) Py_RETURN_NONE;
  return Py_BuildValue("(Nn)", PyLong_FromVoidPtr(const_cast<void*>(address)), static_cast<Py_ssize_t>(nbytes));
}

namespace {

// Whether each is a leaf without hooks of C++; `listed`: hooks in its two dicts are allowed.
PyObject* leaves_without_hooks(PyObject* const* args, Py_ssize_t count, bool listed) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!THPVariable_Check(args[i])) Py_RETURN_FALSE;
    auto* object = reinterpret_cast<THPVariable*>(args[i]);
    const at::Tensor& tensor = THPVariable_Unpack(args[i]);
    for (PyObject* hooks : {object->backward_hooks, object->post_accumulate_grad_hooks}) {
      if (!listed && hooks && hooks != Py_None && PyObject_Size(hooks) != 0) {
        PyErr_Clear();
        Py_RETURN_FALSE;
      }
    }
    if (!tensor.defined() || !tensor.is_leaf()) Py_RETURN_FALSE;
    if (!torch::autograd::impl::get_autograd_meta(tensor)) continue;
    size_t ours = object->backward_hooks && object->backward_hooks != Py_None;
    if (torch::autograd::impl::hooks(tensor).size() > ours) Py_RETURN_FALSE;
    auto accumulator = torch::autograd::impl::try_get_grad_accumulator(tensor);
    if (accumulator && !(accumulator->pre_hooks().empty() && accumulator->post_hooks().empty())) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

}  // namespace

PyObject* plain_leaves(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return leaves_without_hooks(args, count, false);
}

PyObject* leaves_with_listed_hooks(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return leaves_without_hooks(args, count, true);
}

PyObject* tensor_item(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2 || !THPVariable_Check(args[0]) || !PyLong_Check(args[1])) {
    PyErr_SetString(PyExc_TypeError, "tensor_item wants a tensor and the place of an element");
    return nullptr;
  }
  const at::Tensor& tensor = THPVariable_Unpack(args[0]);
  int64_t place = PyLong_AsLongLong(args[1]);
  const c10::TensorImpl* impl = tensor.defined() ? tensor.unsafeGetTensorImpl() : nullptr;
  if (!impl || impl->has_symbolic_sizes_strides() || !impl->has_storage() || !Peek::device(impl).is_cpu() ||
      place < 0 || place >= impl->numel() || !impl->storage().data()) {
    PyErr_SetString(PyExc_ValueError, "no such element in the CPU's memory");
    return nullptr;
  }
  c10::IntArrayRef sizes = impl->sizes_default(), strides = impl->strides_default();
  int64_t offset = impl->storage_offset();
  for (size_t dim = sizes.size(); dim-- > 0; place /= sizes[dim]) offset += place % sizes[dim] * strides[dim];
  const auto* start = static_cast<const char*>(impl->storage().data());
  const char* at = start + offset * static_cast<int64_t>(impl->dtype().itemsize());
  switch (c10::typeMetaToScalarType(impl->dtype())) {
    case c10::ScalarType::Long: return PyLong_FromLongLong(read_as<int64_t>(at));
    case c10::ScalarType::Int: return PyLong_FromLongLong(read_as<int32_t>(at));
    case c10::ScalarType::Short: return PyLong_FromLongLong(read_as<int16_t>(at));
    case c10::ScalarType::Char: return PyLong_FromLongLong(read_as<int8_t>(at));
    case c10::ScalarType::Byte: return PyLong_FromLongLong(read_as<uint8_t>(at));
    default: PyErr_SetString(PyExc_TypeError, "not an integer tensor"); return nullptr;
  }
}

std::unique_ptr<ValuesCheck> ValuesCheck::parse(PyObject* payload) {
  auto contents = std::make_unique<TensorContents>();
  if (!contents->parse_payload(payload)) return nullptr;
  return contents;
}

std::unique_ptr<TensorCheck> TensorCheck::parse(PyObject* payload) {
  auto facts = std::make_unique<TensorFacts>();
  if (!facts->parse_payload(payload)) return nullptr;
  return facts;
}

bool is_tensor(PyObject* object) { return THPVariable_Check(object); }

uint64_t tensor_fingerprint(PyObject* object) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (!tensor.defined()) return 0;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->has_symbolic_sizes_strides()) return 1;
  uint64_t mixed = impl->key_set().raw_repr() ^ static_cast<uint64_t>(c10::typeMetaToScalarType(impl->dtype()));
  auto add = [&](int64_t value) { mixed = (mixed ^ static_cast<uint64_t>(value)) * 0x100000001B3ull + 1; };
  for (int64_t size : impl->sizes_default()) add(size);
  for (int64_t stride : impl->strides_default()) add(stride);
  add(impl->requires_grad());
  return mixed;
}

Ref tensor_attribute(PyObject* object, PyObject* name) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (PyUnicode_CompareWithASCIIString(name, "grad") == 0) {
    // Not Tensor::grad(), which warns about non-leaf tensors.
    return Ref::steal(THPVariable_Wrap(tensor.unsafeGetTensorImpl()->grad()));
  }
  if (PyUnicode_CompareWithASCIIString(name, "_base") == 0) {
    return tensor.is_view() ? Ref::steal(THPVariable_Wrap(tensor._base())) : Ref::borrow(Py_None);
  }
  return Ref();
}

}  // namespace stator
