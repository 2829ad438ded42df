// See tensor_seal.h.
#include "tensor_seal.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>

namespace stator {
namespace {

// Protected members of TensorImpl, as places in it.
struct Layout : c10::TensorImpl {
  template <class Member>
  static const char* place(const c10::TensorImpl* impl, Member member) {
    return reinterpret_cast<const char*>(&(impl->*member));
  }
  static const char* storage(const c10::TensorImpl* impl) { return place(impl, &Layout::storage_); }
  static const char* extents(const c10::TensorImpl* impl) { return place(impl, &Layout::sizes_and_strides_); }
  static const char* keys(const c10::TensorImpl* impl) { return place(impl, &Layout::key_set_); }
};

bool layout_is_known = false;
size_t extents_offset = 0, autograd_offset = 0, requires_grad_offset = 0;

const void* autograd_of(const char* impl) {
  const void* meta;
  std::memcpy(&meta, impl + autograd_offset, sizeof meta);
  return meta;
}

typedef uint64_t Pair __attribute__((vector_size(16), aligned(8), may_alias));

// An odd number of words: pairs, and the last.
template <int count>
bool same_words(const uint64_t* expected, const char* actual) {
  Pair difference = {0, 0};
#if defined(__GNUC__)
#pragma GCC unroll 16
#endif
  for (int i = 0; i + 1 < count; i += 2) {
    difference |= *reinterpret_cast<const Pair*>(expected + i) ^ *reinterpret_cast<const Pair*>(actual + 8 * i);
  }
  uint64_t last;
  std::memcpy(&last, actual + 8 * (count - 1), sizeof last);
  return (difference[0] | difference[1] | (last ^ expected[count - 1])) == 0;
}

const torch::autograd::AutogradMeta* autograd_meta(const void* meta) {
  return static_cast<const torch::autograd::AutogradMeta*>(static_cast<const c10::AutogradMetaInterface*>(meta));
}

bool requires_grad_of(const void* meta) {
  return autograd_meta(meta)->requires_grad_ || autograd_meta(meta)->grad_fn_;
}

bool is_view(const void* meta) { return autograd_meta(meta)->is_view_; }

}  // namespace

void tensor_seal_init() {
  at::Tensor probe(c10::make_intrusive<c10::TensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>(), c10::Device(c10::kCPU)));
  const c10::TensorImpl* impl = probe.unsafeGetTensorImpl();
  auto* base = reinterpret_cast<const char*>(impl);
  extents_offset = static_cast<size_t>(Layout::extents(impl) - base);
  // autograd_meta_ is private: it stands behind storage_, which is shown below.
  autograd_offset = static_cast<size_t>(Layout::storage(impl) - base) + sizeof(c10::Storage);
  bool empty_before = autograd_of(base) == nullptr && impl->autograd_meta() == nullptr;
  const void* meta = torch::autograd::impl::materialize_autograd_meta(probe);
  auto* autograd = static_cast<const torch::autograd::AutogradMeta*>(impl->autograd_meta());
  requires_grad_offset =
      static_cast<size_t>(reinterpret_cast<const char*>(&autograd->requires_grad_) - static_cast<const char*>(meta));
  layout_is_known = empty_before && autograd_of(base) == static_cast<const c10::AutogradMetaInterface*>(impl->autograd_meta()) &&
                    meta != nullptr && Layout::keys(impl) - Layout::extents(impl) == 14 * 8 &&
                    sizeof(c10::impl::SizesAndStrides) == 11 * 8;
}

uint32_t TensorSeals::metadata_of(const char* impl) {
  for (size_t i = 0; i < metadata_.size(); ++i) {
    if (same_words<words>(metadata_[i].words, impl + extents_offset)) return static_cast<uint32_t>(i);
  }
  metadata_.emplace_back();
  std::memcpy(metadata_.back().words, impl + extents_offset, sizeof(Metadata));
  return static_cast<uint32_t>(metadata_.size() - 1);
}

bool TensorSeals::add(PyObject* object) {
  if (!layout_is_known || !THPVariable_Check(object)) return false;
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (!tensor.defined()) return false;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->has_symbolic_sizes_strides() || impl->sizes_default().size() > 5) return false;
  auto* base = reinterpret_cast<const char*>(impl);
  const void* meta = autograd_of(base);
  if (meta != static_cast<const c10::AutogradMetaInterface*>(impl->autograd_meta())) return false;
  if (meta && is_view(meta)) return false;  // its base decides whether it requires a gradient
  seals_.push_back({object, Py_TYPE(object), base, meta, metadata_of(base), meta && requires_grad_of(meta)});
  return true;
}

// The fields of a tensor lie in several cache lines, scattered over the heap: they are asked for some tensors ahead.
void TensorSeals::fetch(const Seal& seal) {
#if defined(__GNUC__)
  __builtin_prefetch(seal.object);
  __builtin_prefetch(seal.impl + extents_offset);
  __builtin_prefetch(seal.impl + extents_offset + 8 * (words - 1));
  if (seal.autograd) __builtin_prefetch(static_cast<const char*>(seal.autograd) + requires_grad_offset);
#endif
}

bool TensorSeals::hold() const {
  constexpr size_t ahead = 8;
  const size_t count = seals_.size();
  const Seal* seals = seals_.data();
  const Metadata* metadata = metadata_.data();
  for (size_t i = 0; i < count && i < ahead; ++i) fetch(seals[i]);
  for (size_t i = 0; i < count; ++i) {
    if (i + ahead < count) fetch(seals[i + ahead]);
    const Seal& seal = seals[i];
    // The object is alive; whether the other places are is shown by the one before.
    const at::Tensor& tensor = reinterpret_cast<THPVariable*>(seal.object)->cdata;
    if (Py_TYPE(seal.object) != seal.type) return false;
    if (reinterpret_cast<const char*>(tensor.unsafeGetTensorImpl()) != seal.impl) return false;
    if (!same_words<words>(metadata[seal.metadata].words, seal.impl + extents_offset)) return false;
    if (autograd_of(seal.impl) != seal.autograd) return false;
    if (seal.autograd && (is_view(seal.autograd) || requires_grad_of(seal.autograd) != seal.requires_grad)) return false;
  }
  return true;
}

void TensorSeals::clear() {
  seals_.clear();
  metadata_.clear();
}

}  // namespace stator
