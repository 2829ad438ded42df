// Running the guard program.  See guard_program.h; building it is guard_program_build.cpp.
#include "guards/guard_program.h"

#include "guards/raw_read.h"

extern "C" int _PySet_NextEntry(PyObject* set, Py_ssize_t* pos, PyObject** key, Py_hash_t* hash);

namespace stator {

namespace {

// On 3.11 any allocation may start a collection, and its finalizers may free what we have borrowed; making an
// instance's dict or an iterator allocates.  From 3.12 on collections wait for the next bytecode.
class CollectionPause {
 public:
  explicit CollectionPause(bool wanted) : was_enabled_(wanted && needed && PyGC_Disable() == 1) {}
  CollectionPause(const CollectionPause&) = delete;
  CollectionPause& operator=(const CollectionPause&) = delete;
  ~CollectionPause() {
    if (was_enabled_) PyGC_Enable();
  }

 private:
  static constexpr bool needed = PY_VERSION_HEX < 0x030C0000;
  bool was_enabled_;
};

// References that a run holds.  The first few need no memory of their own: most programs hold one or two values.
class HeldReferences {
 public:
  void add(Ref held) {
    if (count_ < small_size) {
      small_[count_++] = std::move(held);
    } else {
      large_.push_back(std::move(held));
    }
  }
  void clear() {
    while (count_ > 0) small_[--count_].reset();
    large_.clear();
  }

 private:
  static constexpr size_t small_size = 8;
  Ref small_[small_size];
  size_t count_ = 0;
  std::vector<Ref> large_;
};

}  // namespace

// The values of one run.  Slots are borrowed unless listed in `owned`.
struct GuardProgram::Frame {
  PyObject* const* arguments;
  Py_ssize_t argument_count;
  PyObject** slots;
  bool keeps;  // what is read is held until the run ends
  HeldReferences owned;

  void keep(PyObject* object) { owned.add(Ref::borrow(object)); }

  // What a read made, where it found no object that something else holds.  False: nothing.
  bool take(int index, Ref made) {
    if (!made) return false;
    slots[index] = made.get();
    owned.add(std::move(made));
    return true;
  }
};

WantedValues::~WantedValues() {
  for (Py_ssize_t i = 0; i < size_; ++i) Ref dropped = Ref::steal(values_[i]);
}

bool WantedValues::fill(PyObject* const* slots, const std::vector<int>& wanted, Py_ssize_t packed,
                        PyObject* const* proven) {
  const auto count = static_cast<Py_ssize_t>(wanted.size());
  const Py_ssize_t room = count - packed + (packed > 0 ? 1 : 0);
  if (room > small_size) {
    large_.resize(static_cast<size_t>(room) + 1);
    values_ = large_.data() + 1;
  }
  auto value_of = [&](Py_ssize_t i) {
    PyObject* value = proven ? proven[i] : nullptr;
    if (!value) value = slots[wanted[static_cast<size_t>(i)]];
    return new_reference(value);
  };
  if (packed > 0) {
    Ref tuple = Ref::steal(PyTuple_New(packed));
    if (!tuple) return false;
    for (Py_ssize_t i = 0; i < packed; ++i) PyTuple_SET_ITEM(tuple.get(), i, value_of(i));
    values_[size_++] = tuple.release();
  }
  for (Py_ssize_t i = packed; i < count; ++i) values_[size_++] = value_of(i);
  return true;
}

Py_ssize_t GuardProgram::run(PyObject* const* arguments, Py_ssize_t count, WantedValues* out) {
  if (cleared_) return 0;
  // The certificate speaks of the scratch buffer; a call inside a call, or on another thread, gets its own slots.
  const bool uses_scratch = !scratch_in_use_;
  std::vector<PyObject*> other;
  if (!uses_scratch) other.resize(nodes_.size());
  Frame frame{arguments, count, uses_scratch ? scratch_.data() : other.data(), holds_references_, {}};
  if (uses_scratch) scratch_in_use_ = true;
  Py_ssize_t failed = uses_scratch ? run_certificate(frame) : unproven;
  PyObject* const* proven = failed == -1 ? proven_values() : nullptr;
  if (failed == unproven) {
    // A program that calls out may run for long: it holds references instead.
    CollectionPause pause(!holds_references_);
    failed = run_steps(frame);
    if (failed < 0 && uses_scratch) certify();
  }
  if (failed < 0 && out) {
    CollectionPause pause(packed_ > 0);  // the tuple is made before it holds what the slots borrow
    if (!out->fill(frame.slots, wanted_, packed_, proven)) failed = check_count();
  }
  if (uses_scratch) scratch_in_use_ = false;
  return failed;
}

Py_ssize_t GuardProgram::run_certificate(Frame& frame) {
  Py_ssize_t failed;
  {
    CollectionPause pause(true);
    frame.keeps = false;
    failed = prove_certificate(frame);
    frame.keeps = holds_references_;
    if (failed == -1) failed = prove_calls(frame);
  }
  if (failed == unproven) {
    forget_certificate();
    frame.owned.clear();
  }
  return failed;
}

void GuardProgram::hold(Frame& frame, PyObject* object) { frame.keep(object); }

Py_ssize_t GuardProgram::run_steps(Frame& frame) {
  for (const Step& step : steps_) {
    Py_ssize_t failed = run_step(step, frame);
    if (failed >= 0) return failed;
  }
  return -1;
}

Py_ssize_t GuardProgram::run_step(const Step& step, Frame& frame) {
  switch (step.action) {
    case Action::read: {
      const Node& node = nodes_[step.index];
      return read(node, step.index, frame) ? -1 : node.first_check;
    }
    case Action::check:
      return holds(checks_[step.index], frame) ? -1 : step.index;
    case Action::dict_group:
      return run_dict_group(dict_groups_[step.index], frame);
    case Action::type_group:
      return run_type_group(type_groups_[step.index]);
  }
  return -1;
}

PyObject*& GuardProgram::frame_slot(Frame& frame, int index) { return frame.slots[index]; }

Py_ssize_t GuardProgram::run_dict_group(DictGroup& group, Frame& frame) {
  PyObject* dict = frame.slots[group.dict_node];
  if (!PyDict_Check(dict)) return nodes_[group.dict_node].first_check;
  uint64_t version = dict_version(dict);
  if (version != 0 && version == group.version && dict == group.dict) {
    for (int index : group.reads) {
      frame.slots[index] = nodes_[index].cached;
      if (frame.keeps) frame.keep(nodes_[index].cached);
    }
    return -1;
  }
  group.version = 0;
  for (int index : group.reads) {
    Node& node = nodes_[index];
    if (!read(node, index, frame)) return node.first_check;
    node.cached = frame.slots[index];
  }
  for (int index : group.checks) {
    if (!holds(checks_[index], frame)) return index;
  }
  // An OrderedDict changes its order (move_to_end) without changing its version.
  if (!(group.ordered && PyODict_Check(dict))) {
    group.dict = dict;
    group.version = version;
  }
  return -1;
}

namespace {

// Whether a class holds what it held in one of its own fields: the same classes, or an equal name.
bool type_field_is(PyTypeObject* type, const Check& check) {
  PyObject* const* field = type_field(type, check.key);
  if (!field || !*field) return false;
  if (*field == check.expected) return true;
  if (!PyTuple_Check(*field)) return same_constant(*field, check.expected);
  if (!PyTuple_Check(check.expected) || PyTuple_GET_SIZE(*field) != PyTuple_GET_SIZE(check.expected)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(*field); ++i) {
    if (PyTuple_GET_ITEM(*field, i) != PyTuple_GET_ITEM(check.expected, i)) return false;
  }
  return true;
}

}  // namespace

Py_ssize_t GuardProgram::run_type_group(TypeGroup& group) {
  unsigned version = type_version(group.type);
  if (version != 0 && version == group.version) return -1;
  group.version = 0;
  for (int index : group.checks) {
    const Check& check = checks_[index];
    PyObject* found = _PyType_Lookup(group.type, check.key);  // of a field too: a class has no version before
    bool same = check.kind == Kind::type_field ? type_field_is(group.type, check) : found == check.expected;
    if (!same) return index;
  }
  // The lookups above gave the type a version when it can have one.
  group.version = type_version(group.type);
  return -1;
}

bool GuardProgram::read(const Node& node, int index, Frame& frame) {
  PyObject* base = node.parent >= 0 ? frame.slots[node.parent] : nullptr;
  PyObject* value = nullptr;
  switch (node.op) {
    case Op::arg:
      value = node.number < frame.argument_count ? frame.arguments[node.number] : nullptr;
      break;
    case Op::pinned:
      value = node.key;
      break;
    case Op::dict_of:
      value = instance_dict(base);
      break;
    case Op::key:
      if (!PyDict_Check(base) || dict_lookup(base, node.key, node.hash, &value) != Found::yes) value = nullptr;
      break;
    case Op::key_at:
      value = PyDict_Check(base) ? dict_key_at(base, node.number) : nullptr;
      break;
    case Op::value_at:
      value = PyDict_Check(base) ? dict_value_at(base, node.number) : nullptr;
      break;
    case Op::index:
      if (is_deque(base)) return frame.take(index, deque_item(base, node.number));
      value = sequence_item(base, node.number);
      break;
    case Op::set_at:
      value = set_item(base, node.number);
      break;
    case Op::slot: {
      PyObject** address = slot_address(base, node.key);
      value = address ? *address : nullptr;
      break;
    }
    case Op::attr:
      return frame.take(index, is_tensor(base) ? tensor_attribute(base, node.key) : trusted_attribute(base, node.key));
    case Op::cell:
      value = PyCell_Check(base) ? PyCell_GET(base) : nullptr;
      break;
    case Op::type:
      value = reinterpret_cast<PyObject*>(Py_TYPE(base));
      break;
    case Op::items_left:
      value = has_items(base, node.number) ? Py_True : Py_False;
      break;
    case Op::call: {
      std::vector<PyObject*> arguments;
      for (int argument : node.arguments) arguments.push_back(frame.slots[argument]);
      Ref made = Ref::steal(PyObject_Vectorcall(node.key, arguments.data(), arguments.size(), nullptr));
      if (!made) PyErr_Clear();
      return frame.take(index, std::move(made));
    }
    case Op::count:
      break;
  }
  if (!value) return false;
  frame.slots[index] = value;
  if (frame.keeps) frame.keep(value);
  return true;
}

namespace {

bool same_set(PyObject* object, const ExpectedSet& expected) {
  if (!PyAnySet_Check(object) || PySet_GET_SIZE(object) != expected.size) return false;
  Py_ssize_t pos = 0;
  PyObject* element;
  Py_hash_t hash;
  while (_PySet_NextEntry(object, &pos, &element, &hash)) {
    if (expected.objects.count(element)) continue;
    auto candidates = expected.constants.find(hash);
    bool found = false;
    if (candidates != expected.constants.end()) {
      for (PyObject* candidate : candidates->second) found = found || same_constant(element, candidate);
    }
    if (!found) return false;
  }
  return true;
}

bool key_is(PyObject* dict, const Check& check, Found wanted) {
  PyObject* value = nullptr;
  return PyDict_Check(dict) && dict_lookup(dict, check.key, check.hash, &value) == wanted;
}

}  // namespace

bool GuardProgram::holds(const Check& check, const Frame& frame) const {
  PyObject* value = check.node >= 0 ? frame.slots[check.node] : nullptr;
  switch (check.kind) {
    case Kind::type:
      return reinterpret_cast<PyObject*>(Py_TYPE(value)) == check.payload.get();
    case Kind::id:
      return value == check.payload.get();
    case Kind::not_id:
      return value != check.payload.get();
    case Kind::equals:
    case Kind::fresh_call:
      return same_constant(value, check.payload.get());
    case Kind::tensor:
      return check.tensor->matches(value);
    case Kind::len:
      return raw_length(value) == check.number;
    case Kind::keys:
      return PyDict_Check(value) && dict_keys_are(value, check.payload.get());
    case Kind::absent:
      return key_is(value, check, Found::no);
    case Kind::present:
      return key_is(value, check, Found::yes);
    case Kind::type_attr:
      return PyType_Check(value) &&
             _PyType_Lookup(reinterpret_cast<PyTypeObject*>(value), check.key) == check.expected;
    case Kind::type_field:
      return PyType_Check(value) && type_field_is(reinterpret_cast<PyTypeObject*>(value), check);
    case Kind::alias:
      return value == frame.slots[check.number];
    case Kind::not_alias:
      return value != frame.slots[check.number];
    case Kind::cell_empty:
      return PyCell_Check(value) && PyCell_GET(value) == nullptr;
    case Kind::slot_empty: {
      PyObject** address = slot_address(value, check.payload.get());
      return address && !*address;
    }
    case Kind::global_state:
      return check.state->matches();
    case Kind::set_equals:
      return same_set(value, *check.set);
    case Kind::shape:
      return check.shape->matches(frame.slots);
    case Kind::values:
      return check.values->matches(value);
    case Kind::partition:
      return check.partition->matches(frame.slots);
    case Kind::count:
      break;
  }
  return false;
}

}  // namespace stator
