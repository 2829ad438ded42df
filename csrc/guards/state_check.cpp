// Torch's global state against a GlobalState (stator/guards/global_state.py).  See tensor_check.h.
#include "guards/tensor_check.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/PyInterpreter.h>

#include <cstring>
#include <vector>

#include "guards/raw_read.h"
#include "ref.h"

namespace stator {
namespace {

struct ExpectedMode {
  PyTypeObject* kind;
  PyObject* value;  // the device of a DeviceContext, else None
};

struct ExpectedAutocast {
  c10::DeviceType device;
  bool enabled;
  c10::ScalarType dtype;
};

bool scalar_type(PyObject* dtype, c10::ScalarType* out) {
  if (!THPDtype_Check(dtype)) {
    PyErr_SetString(PyExc_TypeError, "expected a torch.dtype");
    return false;
  }
  *out = reinterpret_cast<THPDtype*>(dtype)->scalar_type;
  return true;
}

class StateFacts final : public StateCheck {
 public:
  // All objects in the payload are kept alive by the program, which holds it.
  bool parse_payload(PyObject* payload) {
    PyObject *autocast, *dtype, *modes;
    int grad, inference, cache, deterministic, warn_only;
    long long disabled, dispatch, functorch;
    if (!PyArg_ParseTuple(payload, "ppO!pOppLO!LL", &grad, &inference, &PyTuple_Type, &autocast, &cache, &dtype,
                          &deterministic, &warn_only, &disabled, &PyTuple_Type, &modes, &dispatch, &functorch)) {
      return false;
    }
    grad_ = grad;
    inference_ = inference;
    cache_ = cache;
    deterministic_ = deterministic;
    warn_only_ = warn_only;
    disabled_ = disabled;
    dispatch_modes_ = dispatch;
    functorch_level_ = functorch;
    device_key_ = Ref::steal(PyUnicode_InternFromString("device"));
    if (!device_key_ || !scalar_type(dtype, &default_dtype_)) return false;
    device_hash_ = PyObject_Hash(device_key_.get());
    return parse_autocast(autocast) && parse_modes(modes);
  }

  bool matches() const override {
    if (c10::GradMode::is_enabled() != grad_ || c10::InferenceMode::is_enabled() != inference_) return false;
    for (const ExpectedAutocast& expected : autocast_) {
      if (at::autocast::is_autocast_enabled(expected.device) != expected.enabled ||
          at::autocast::get_autocast_dtype(expected.device) != expected.dtype) {
        return false;
      }
    }
    if (at::autocast::is_autocast_cache_enabled() != cache_) return false;
    if (c10::get_default_dtype_as_scalartype() != default_dtype_) return false;
    at::Context& context = at::globalContext();
    if (context.deterministicAlgorithms() != deterministic_ ||
        context.deterministicAlgorithmsWarnOnly() != warn_only_) {
      return false;
    }
    if (static_cast<int64_t>(at::impl::PythonTorchFunctionTLS::get_disabled_state()) != disabled_) return false;
    if (c10::impl::TorchDispatchModeTLS::stack_len() != dispatch_modes_) return false;
    // torch.jit.trace would record what a compiled graph does, or nothing of it: its calls are not compiled.
    if (c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer)) return false;
    return functorch_matches() && modes_match();
  }

 private:
  bool parse_autocast(PyObject* autocast) {
    const c10::DeviceType devices[] = {c10::DeviceType::CPU, c10::DeviceType::CUDA};
    if (PyTuple_GET_SIZE(autocast) != 2) {
      PyErr_SetString(PyExc_ValueError, "autocast state is for cpu and cuda");
      return false;
    }
    for (int i = 0; i < 2; ++i) {
      int enabled;
      PyObject* dtype;
      ExpectedAutocast expected{devices[i], false, c10::ScalarType::Undefined};
      if (!PyArg_ParseTuple(PyTuple_GET_ITEM(autocast, i), "pO", &enabled, &dtype) ||
          !scalar_type(dtype, &expected.dtype)) {
        return false;
      }
      expected.enabled = enabled != 0;
      autocast_.push_back(expected);
    }
    return true;
  }

  bool parse_modes(PyObject* modes) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(modes); ++i) {
      PyObject *kind, *device;
      if (!PyArg_ParseTuple(PyTuple_GET_ITEM(modes, i), "O!O", &PyType_Type, &kind, &device)) return false;
      modes_.push_back({reinterpret_cast<PyTypeObject*>(kind), device});
    }
    return true;
  }

  // functorch includes its front mode key exactly while its stack is not empty.  Its own header needs a
  // library that torch does not ship, so the depth of a stack in use is asked of torch's binding.
  bool functorch_matches() const {
    bool active = c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
    if (!active || functorch_level_ == 0) return active == (functorch_level_ != 0);
    Ref module = Ref::steal(PyImport_ImportModule("torch._C._functorch"));
    Ref stack = Ref::steal(module ? PyObject_CallMethod(module.get(), "get_interpreter_stack", nullptr) : nullptr);
    if (!stack) PyErr_Clear();
    return stack && PyList_Check(stack.get()) && PyList_GET_SIZE(stack.get()) == functorch_level_;
  }

  bool modes_match() const {
    using TLS = at::impl::PythonTorchFunctionTLS;
    if (TLS::stack_len() != static_cast<int64_t>(modes_.size())) return false;
    for (size_t i = 0; i < modes_.size(); ++i) {
      PyObject* mode = TLS::get_stack_at(static_cast<int64_t>(i))->ptr(getPyInterpreter());
      if (!mode_matches(mode, modes_[i])) return false;
    }
    return true;
  }

  bool mode_matches(PyObject* mode, const ExpectedMode& expected) const {
    if (Py_TYPE(mode) != expected.kind) return false;
    if (expected.value == Py_None) return true;  // what was read of it has guards of its own
    PyObject* dict = instance_dict(mode);
    PyObject* device = nullptr;
    return dict && dict_lookup(dict, device_key_.get(), device_hash_, &device) == Found::yes &&
           same_constant(device, expected.value);
  }

  bool grad_, inference_, cache_, deterministic_, warn_only_;
  int64_t disabled_, dispatch_modes_, functorch_level_;
  c10::ScalarType default_dtype_;
  std::vector<ExpectedAutocast> autocast_;
  std::vector<ExpectedMode> modes_;
  Ref device_key_;
  Py_hash_t device_hash_ = 0;
};

}  // namespace

PyObject* attention_kernels(PyObject* /*module*/, PyObject* /*unused*/) {
  at::Context& context = at::globalContext();
  uint64_t answer = 0;
  for (at::SDPBackend kernel : context.sDPPriorityOrder()) answer = answer << 4 | (static_cast<uint64_t>(kernel) & 15);
  for (bool allowed : {context.userEnabledFlashSDP(), context.userEnabledMemEfficientSDP(), context.userEnabledMathSDP(),
                       context.userEnabledCuDNNSDP(), context.userEnabledOverrideableSDP()}) {
    answer = answer << 1 | static_cast<uint64_t>(allowed);
  }
  return PyLong_FromUnsignedLongLong(answer);
}

PyObject* saved_hooks_of_program(PyObject* /*module*/, PyObject* /*unused*/) {
  const auto& stack = at::SavedTensorDefaultHooks::get_tls_state().stack;
  if (stack.empty()) Py_RETURN_FALSE;
  PyObject* pack = stack.top().first.ptr(getPyInterpreter());
  if (!PyFunction_Check(pack)) Py_RETURN_TRUE;
  PyObject* name = PyDict_GetItemString(PyFunction_GET_GLOBALS(pack), "__name__");
  const char* text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (!text) PyErr_Clear();
  return PyBool_FromLong(!text || std::strncmp(text, "torch.", 6) != 0);
}

std::unique_ptr<StateCheck> StateCheck::parse(PyObject* payload) {
  auto facts = std::make_unique<StateFacts>();
  if (!facts->parse_payload(payload)) return nullptr;
  return facts;
}

}  // namespace stator
