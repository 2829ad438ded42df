// Making a certificate and proving it again.  See certificate.h.
#include "guards/certificate.h"

#include <algorithm>
#include <cstring>

#include "guards/raw_read.h"

namespace stator {

void GuardProgram::CertificateDeleter::operator()(Certificate* certificate) const { delete certificate; }

void GuardProgram::Certificate::clear() {
  valid = outdated = false;
  first.clear();
  early.clear();
  arguments.clear();
  classes.clear();
  facts.clear();
  words.clear();
  group_of_word.clear();
  watch.clear();
  watched.clear();
  tensors.clear();
  late.clear();
  calls.clear();
  values.clear();
}

void GuardProgram::Certificate::expect(int node, const void* place, uint64_t expected, int group) {
  Word word{static_cast<const uint64_t*>(place), expected};
  outdated = outdated || *word.place != expected;
  facts.push_back({word, node, group});
}

void GuardProgram::Certificate::expect_version(int node, PyObject* dict, int group) {
  const uint64_t* version = dict_version_place(dict);
  if (watch.add(dict)) {
    watched.push_back({version, *version, nullptr, 0, group});
  } else {
    expect(node, version, *version, group);
  }
}

void GuardProgram::Certificate::expect_length(int node, PyObject* object, uint64_t length) {
  const uint64_t *place = length_place(object), *version = PyDict_Check(object) ? dict_version_place(object) : nullptr;
  if (version && watch.add(object)) {
    outdated = outdated || *place != length;
    watched.push_back({version, *version, place, length, -1});
  } else {
    expect(node, place, length);
  }
}

// Sorts the steps of a program into the lists of its certificate.
class GuardProgram::Certifier {
 public:
  Certifier(GuardProgram& program, Certificate& certificate)
      : program_(program), certificate_(certificate), slots_(program.scratch_.data()),
        fixed_(program.nodes_.size(), 0), held_(program.nodes_.size(), 0), early_(program.nodes_.size(), 0), last_(program.nodes_.size(), 0),
        structural_(program.structural_nodes()) {}

  void run() {
    for (size_t i = 0; i < program_.steps_.size(); ++i) sort_step(static_cast<int>(i));
    lay_out();
    for (int node : program_.wanted_) certificate_.values.push_back(fixed_[node] ? slots_[node] : nullptr);
    certificate_.valid = !certificate_.outdated;
  }

 private:
  void sort_step(int number) {
    const Step& step = program_.steps_[number];
    switch (step.action) {
      case Action::read:
        sort_read(number, step.index);
        break;
      case Action::check:
        sort_check(number, program_.checks_[step.index]);
        break;
      case Action::dict_group:
        sort_dict_group(number, step.index);
        break;
      case Action::type_group: {
        const TypeGroup& group = program_.type_groups_[step.index];
        const unsigned* place = type_version_place(group.type);
        if (place && group.version != 0) {
          certificate_.classes.push_back({place, group.version, step.index});
        } else {
          keep(number, true);
        }
        break;
      }
    }
  }

  void keep(int number, bool early, bool last = false) {
    (last ? certificate_.calls : early ? certificate_.early : certificate_.late).push_back(number);
  }

  void sort_read(int number, int index) {
    const Node& node = program_.nodes_[index];
    if (node.op == Op::pinned) {
      fixed_[index] = held_[index] = early_[index] = 1;
    } else if (node.op == Op::call) {
      sort_call(number, index);
    } else if (node.op == Op::arg) {
      early_[index] = 1;
      certificate_.early.push_back(number);
      if (!structural_[index]) return;
      certificate_.arguments.push_back({index, slots_[index]});
      fixed_[index] = 1;
    } else if (fixed_[node.parent] && prove_read(node, index)) {
      fixed_[index] = 1;
    } else {
      early_[index] = early_[node.parent];
      last_[index] = last_[node.parent];
      keep(number, early_[index], last_[index]);
    }
  }

  void sort_call(int number, int index) {
    for (int argument : program_.nodes_[index].arguments) {
      if (program_.nodes_[argument].op == Op::pinned) continue;
      last_[index] = 1;
      certificate_.calls.push_back(number);
      return;
    }
    early_[index] = 1;
    certificate_.first.push_back(number);
  }

  // The words that show that reading this node again gives the same object.
  bool prove_read(const Node& node, int index) {
    PyObject *base = slots_[node.parent], *value = slots_[index];
    const void* place = nullptr;
    switch (node.op) {
      case Op::dict_of:
        place = instance_dict_place(base, value);
        break;
      case Op::slot:
        place = slot_address(base, node.key);
        if (place) certificate_.expect(node.parent, &base->ob_type, Py_TYPE(base));  // the slot belongs to a class
        break;
      case Op::cell:
        place = &reinterpret_cast<PyCellObject*>(base)->ob_ref;
        break;
      case Op::type:
        place = &base->ob_type;
        break;
      case Op::attr:
        if (is_fixed_attribute(base, node.key)) return held_[node.parent];
        place = function_attribute_place(base, node.key);
        if (place && value == Py_None && *static_cast<PyObject* const*>(place) == nullptr) value = nullptr;
        break;
      case Op::index: {
        if (PyTuple_Check(base)) return held_[index] = held_[node.parent];
        if (!PyList_Check(base) || node.number >= PyList_GET_SIZE(base)) return false;
        // A list that shrank keeps its memory: the length first, then where the items are.
        certificate_.expect(node.parent, length_place(base), static_cast<uint64_t>(PyList_GET_SIZE(base)));
        auto* list = reinterpret_cast<PyListObject*>(base);
        certificate_.expect(node.parent, &list->ob_item, list->ob_item);
        place = &PyList_GET_ITEM(base, node.number);
        break;
      }
      default:
        break;
    }
    if (place) certificate_.expect(node.parent, place, value);
    return place != nullptr;
  }

  void sort_dict_group(int number, int index) {
    const DictGroup& group = program_.dict_groups_[index];
    const uint64_t* place = fixed_[group.dict_node] && group.version != 0 && group.dict == slots_[group.dict_node]
                                ? dict_version_place(group.dict)
                                : nullptr;
    if (place) {
      certificate_.outdated = certificate_.outdated || dict_version(group.dict) != group.version;
      certificate_.expect_version(group.dict_node, group.dict, index);
      for (int node : group.reads) fixed_[node] = held_[node] = 1;
      return;
    }
    for (int node : group.reads) {
      early_[node] = early_[group.dict_node];
      last_[node] = last_[group.dict_node];
    }
    keep(number, early_[group.dict_node], last_[group.dict_node]);
  }

  void sort_check(int number, const Check& check) {
    if (is_proven(check)) return;
    bool early = true, last = false;
    for (int node : check.nodes()) {
      early = early && early_[node];
      last = last || last_[node];
    }
    keep(number, early, last);
  }

  // Whether words prove the check; they are added here.
  bool is_proven(const Check& check) {
    if (check.node < 0 || !fixed_[check.node]) return false;
    PyObject* value = slots_[check.node];
    const void* place = nullptr;
    uint64_t expected = 0;
    switch (check.kind) {
      case Kind::id:
      case Kind::not_id:
        return true;
      case Kind::equals:
        return held_[check.node] || value == check.payload.get();
      case Kind::alias:
      case Kind::not_alias:
        return fixed_[check.number];
      case Kind::partition: {  // the same objects; which memory a tensor has is asked at every call
        const std::vector<int>& nodes = check.partition->nodes();
        return check.partition->is_about_objects() &&
               std::all_of(nodes.begin(), nodes.end(), [&](int node) { return fixed_[node]; });
      }
      case Kind::type:
        place = &value->ob_type;
        expected = reinterpret_cast<uint64_t>(check.payload.get());
        break;
      case Kind::tensor:
        if (!check.tensor->matches(value)) certificate_.outdated = true;
        return check.tensor->is_sealable() && certificate_.tensors.add(value);
      case Kind::len:
        if (PyTuple_Check(value)) return held_[check.node];
        if (!length_place(value)) return false;
        certificate_.expect_length(check.node, value, static_cast<uint64_t>(check.number));
        return true;
      case Kind::type_field: {  // a name; the tuples hang on the version
        PyObject* const* field = PyType_Check(value) ? type_field(reinterpret_cast<PyTypeObject*>(value), check.key) : nullptr;
        if (!field || *field != check.expected) return false;  // an equal string that nobody keeps for us
        place = field;
        expected = reinterpret_cast<uint64_t>(check.expected);
        break;
      }
      case Kind::cell_empty:
        place = &reinterpret_cast<PyCellObject*>(value)->ob_ref;
        break;
      case Kind::slot_empty:
        place = slot_address(value, check.payload.get());
        if (place) certificate_.expect(check.node, &value->ob_type, Py_TYPE(value));
        break;
      default:
        break;
    }
    if (place) certificate_.expect(check.node, place, expected);
    return place != nullptr;
  }

  // The words of one object together, an object before what it holds, and what hangs together side by side: objects
  // made together lie together, so memory is walked rather than jumped through.
  void lay_out() {
    const int count = static_cast<int>(program_.nodes_.size());
    std::vector<int> next_sibling(count, -1), first_child(count, -1), next_fact(certificate_.facts.size(), -1);
    std::vector<int> first_fact(count, -1), pending;
    for (int i = count - 1; i >= 0; --i) {
      int parent = program_.nodes_[i].parent;
      if (parent < 0) continue;
      next_sibling[i] = first_child[parent];
      first_child[parent] = i;
    }
    for (int i = static_cast<int>(certificate_.facts.size()) - 1; i >= 0; --i) {
      next_fact[i] = first_fact[certificate_.facts[i].node];
      first_fact[certificate_.facts[i].node] = i;
    }
    for (int i = count - 1; i >= 0; --i) {
      if (program_.nodes_[i].parent < 0) pending.push_back(i);
    }
    while (!pending.empty()) {
      int node = pending.back();
      pending.pop_back();
      if (next_sibling[node] >= 0) pending.push_back(next_sibling[node]);
      if (first_child[node] >= 0) pending.push_back(first_child[node]);
      for (int i = first_fact[node]; i >= 0; i = next_fact[i]) {
        certificate_.words.push_back(certificate_.facts[i].word);
        certificate_.group_of_word.push_back(certificate_.facts[i].group);
      }
    }
    certificate_.facts.clear();
  }

  GuardProgram& program_;
  Certificate& certificate_;
  PyObject** slots_;
  std::vector<char> fixed_;  // at the address it was, once the words before it hold
  // Fixed, and held by what proves it: a dict of a known version, a tuple that is held itself.  At the address of any other
  // object there may be a new one of another value: a number in a list is freed, and the next number takes its place.
  std::vector<char> held_;
  std::vector<char> early_;  // read by the early steps, or pinned
  std::vector<char> last_;   // hangs on a call that looks at other values
  std::vector<char> structural_;
};

// Nodes whose value other facts are cached behind: worth proving to be the same object.
std::vector<char> GuardProgram::structural_nodes() const {
  std::vector<char> structural(nodes_.size(), 0);
  for (const DictGroup& group : dict_groups_) {
    // A keyword dict is made anew for every call: its facts are checked as ever.
    if (nodes_[group.dict_node].op != Op::arg) structural[group.dict_node] = 1;
  }
  for (const Node& node : nodes_) {
    // Cells of closures pass from one resume point to the next: the functions in them are read word by word.
    if (node.op == Op::dict_of || node.op == Op::cell) structural[node.parent] = 1;
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (changing_[i]) structural[i] = 0;
  }
  return structural;
}

// A certificate costs more than a run: where the last ones were of no use, most runs go without.
void GuardProgram::certify() {
  constexpr unsigned patience = 4, pause = 32;
  if (++certified_in_vain_ > patience && certified_in_vain_ % pause != 0) return;
  if (!certificate_) certificate_.reset(new Certificate);
  certificate_->clear();
  Certifier(*this, *certificate_).run();
}

// A dict was written to: its facts are checked again and, where it holds the same objects, its version is kept.
Py_ssize_t GuardProgram::renew(DictGroup& group, Frame& frame) {
  std::vector<PyObject*> before;
  before.reserve(group.reads.size());
  for (int index : group.reads) before.push_back(frame_slot(frame, index));
  Py_ssize_t failed = run_dict_group(group, frame);
  if (failed < 0 && group.version == 0) failed = unproven;
  for (size_t i = 0; i < before.size(); ++i) {
    PyObject*& slot = frame_slot(frame, group.reads[i]);
    if (failed < 0 && slot != before[i]) failed = unproven;
    slot = before[i];  // what the certificate was made from
  }
  return failed;
}

Py_ssize_t GuardProgram::run_listed(const std::vector<int>& steps, Frame& frame) {
  for (int step : steps) {
    Py_ssize_t failed = run_step(steps_[step], frame);
    if (failed >= 0) return failed;
  }
  return -1;
}

Py_ssize_t GuardProgram::prove_certificate(Frame& frame) {
  if (!certificate_ || !certificate_->valid) return unproven;
  Certificate& certificate = *certificate_;
  Py_ssize_t failed = run_listed(certificate.first, frame);
  if (failed < 0) failed = run_listed(certificate.early, frame);
  if (failed >= 0) return failed;
  for (const Certificate::Argument& argument : certificate.arguments) {
    if (frame_slot(frame, argument.node) == argument.object) continue;
    changing_[argument.node] = 1;  // the next certificate does not lean on it
    return unproven;
  }
  for (Certificate::ClassVersion& version : certificate.classes) {
    if (*version.place == version.expected) continue;
    TypeGroup& group = type_groups_[version.group];
    failed = run_type_group(group);
    if (failed >= 0) return failed;
    if (group.version == 0) return unproven;
    version.expected = group.version;
  }
  if (!prove_watched(frame)) return unproven;
  failed = prove_words(frame);
  if (failed != -1) return failed;
  return certificate.tensors.hold() ? run_listed(certificate.late, frame) : unproven;
}

Py_ssize_t GuardProgram::prove_words(Frame& frame) {
  constexpr size_t ahead = 16;
  const size_t count = certificate_->words.size();
  Certificate::Word* words = certificate_->words.data();
  for (size_t i = 0; i < count; ++i) {
#if defined(__GNUC__)
    if (i + ahead < count) __builtin_prefetch(words[i + ahead].place);
#endif
    if (*words[i].place == words[i].expected) continue;
    int group = certificate_->group_of_word[i];
    if (group < 0) return unproven;
    Py_ssize_t failed = renew(dict_groups_[group], frame);
    if (failed != -1) return failed;
    words[i].expected = *words[i].place;
  }
  return -1;
}

// Dicts that were written to are looked at again; all others are what they were.  A fact that does not hold decides
// nothing here: the way to its dict may have changed too, and that is for the program to see.
bool GuardProgram::prove_watched(Frame& frame) {
  Certificate& certificate = *certificate_;
  if (certificate.watch.is_quiet()) return true;
  if (certificate.watch.has_lost()) return false;
  for (uint32_t number : certificate.watch.take_changed()) {
    Certificate::Watched& watched = certificate.watched[number];
    if (certificate.watch.is_pending(number)) {
      certificate.watch.note(number, false);  // it is about to be written to
    }
    if (*watched.version == watched.seen) continue;
    watched.seen = *watched.version;
    if (watched.group >= 0 ? renew(dict_groups_[watched.group], frame) != -1 : *watched.length != watched.expected) {
      return false;
    }
  }
  return true;
}

// The steps that run readers of other values.  While one runs another thread may too: what the caller wants is held.
Py_ssize_t GuardProgram::prove_calls(Frame& frame) {
  certified_in_vain_ = 0;
  if (certificate_->calls.empty()) return -1;
  for (int index : wanted_) {
    if (!hangs_on_call(index)) hold(frame, frame_slot(frame, index));
  }
  return run_listed(certificate_->calls, frame);
}

bool GuardProgram::hangs_on_call(int index) const {
  while (nodes_[index].parent >= 0) index = nodes_[index].parent;
  return nodes_[index].op == Op::call;
}

PyObject* const* GuardProgram::proven_values() const { return certificate_->values.data(); }

void GuardProgram::forget_certificate() {
  if (certificate_) certificate_->valid = false;
}

}  // namespace stator
