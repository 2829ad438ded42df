// See tensor_seal.h.
#include "guards/tensor_seal.h"

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
bool has_wide_words = false;
size_t extents_offset = 0, autograd_offset = 0;

const void* autograd_of(const char* impl) {
  const void* meta;
  std::memcpy(&meta, impl + autograd_offset, sizeof meta);
  return meta;
}

typedef uint64_t Quad __attribute__((vector_size(32), aligned(8), may_alias));

// Adds what differs between 15 words and 15 words: three fours and the last four, which overlap by one.
inline __attribute__((always_inline)) void add_difference(const uint64_t* expected, const char* actual, Quad& found) {
#pragma GCC unroll 4
  for (int first : {0, 4, 8, 11}) {
    found |= *reinterpret_cast<const Quad*>(expected + first) ^ *reinterpret_cast<const Quad*>(actual + 8 * first);
  }
}

const torch::autograd::AutogradMeta* autograd_meta(const void* meta) {
  return static_cast<const torch::autograd::AutogradMeta*>(static_cast<const c10::AutogradMetaInterface*>(meta));
}

bool requires_grad_of(const void* meta) {
  return autograd_meta(meta)->requires_grad_ || autograd_meta(meta)->grad_fn_;
}

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
  layout_is_known = empty_before && autograd_of(base) == static_cast<const c10::AutogradMetaInterface*>(impl->autograd_meta()) &&
                    meta != nullptr && Layout::keys(impl) - Layout::extents(impl) == 14 * 8 &&
                    sizeof(c10::impl::SizesAndStrides) == 11 * 8;
#if defined(__x86_64__)
  has_wide_words = __builtin_cpu_supports("avx2") != 0;
#endif
}

uint32_t TensorSeals::metadata_of(const char* impl) {
  for (size_t i = 0; i < metadata_.size(); ++i) {
    if (std::memcmp(metadata_[i].words, impl + extents_offset, sizeof(Metadata)) == 0) return static_cast<uint32_t>(i);
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
  if (meta && autograd_meta(meta)->is_view_) return false;  // its base decides whether it requires a gradient
  seals_.push_back({object, Py_TYPE(object), base, meta, metadata_of(base), meta && requires_grad_of(meta)});
  return true;
}

// The fields of a tensor lie in several cache lines, scattered over the heap: they are asked for some tensors ahead.
inline void TensorSeals::fetch(const Seal& seal) {
  __builtin_prefetch(seal.object);
  __builtin_prefetch(seal.impl + autograd_offset);
  __builtin_prefetch(seal.impl + extents_offset);
  __builtin_prefetch(seal.impl + extents_offset + 8 * (words - 1));
  if (seal.autograd) __builtin_prefetch(&autograd_meta(seal.autograd)->requires_grad_);
}

inline __attribute__((always_inline)) bool TensorSeals::compare() const {
  constexpr size_t ahead = 8;
  const size_t count = seals_.size();
  const Seal* seals = seals_.data();
  const Metadata* metadata = metadata_.data();
  Quad differing = {0, 0, 0, 0};
  for (size_t i = 0; i < count; ++i) {
    if (i + ahead < count) fetch(seals[i + ahead]);
    const Seal& seal = seals[i];
    // The object is alive; whether the other places are is shown by the one before.  Words decide about no other place:
    // they are added up.
    const at::Tensor& tensor = reinterpret_cast<THPVariable*>(seal.object)->cdata;
    if (Py_TYPE(seal.object) != seal.type) return false;
    if (reinterpret_cast<const char*>(tensor.unsafeGetTensorImpl()) != seal.impl) return false;
    add_difference(metadata[seal.metadata].words, seal.impl + extents_offset, differing);
    if (autograd_of(seal.impl) != seal.autograd) return false;
    if (seal.autograd &&
        (autograd_meta(seal.autograd)->is_view_ || requires_grad_of(seal.autograd) != seal.requires_grad)) {
      return false;
    }
  }
  return (differing[0] | differing[1] | differing[2] | differing[3]) == 0;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) bool TensorSeals::compare_wide() const { return compare(); }
#else
bool TensorSeals::compare_wide() const { return compare(); }
#endif

bool TensorSeals::hold() const { return has_wide_words ? compare_wide() : compare(); }

void TensorSeals::clear() {
  seals_.clear();
  metadata_.clear();
}

}  // namespace stator
