// The certificate: what the last successful run proved, as a flat list to prove again.
//
// In: a program that has just run, its slots filled.  Out: steps of one comparison each (this argument is the same
// object, this object has the same instance dict, this dict and this class have the same version), in an order in
// which every pointer is proven alive before it is looked into; what is not stable (tensors, cells, items) is read
// and checked as ever.  When all hold, every other slot is what it was.  When one fails, the whole program runs.
#include "guard_program.h"

#include "raw_read.h"

namespace stator {

namespace {

enum class Proof : uint8_t { same_slot, same_dict, version, same_type, type_version, step };

}  // namespace

struct GuardProgram::Certificate {
  struct Item {
    Proof proof;
    int index;
    PyObject* object;
    union {
      PyObject* expected;
      uint64_t version;
    };
  };
  std::vector<Item> items;
  bool valid = false;
};

void GuardProgram::CertificateDeleter::operator()(Certificate* certificate) const { delete certificate; }

// Nodes whose value other facts are cached behind: they must be proven to be the same object.
std::vector<char> GuardProgram::structural_nodes() const {
  std::vector<char> structural(nodes_.size(), 0);
  for (const DictGroup& group : dict_groups_) {
    // A keyword dict is made anew for every call: its facts are checked as ever.
    if (nodes_[group.dict_node].op != Op::arg) structural[group.dict_node] = 1;
  }
  for (const Node& node : nodes_) {
    if (node.op == Op::dict_of) structural[node.parent] = 1;
  }
  return structural;
}

void GuardProgram::certify() {
  if (!certificate_) certificate_.reset(new Certificate);
  Certificate& certificate = *certificate_;
  certificate.items.clear();
  std::vector<char> structural = structural_nodes();
  std::vector<char> fixed(nodes_.size(), 0);
  PyObject** slots = scratch_.data();
  auto add = [&](Proof proof, int index, PyObject* object, PyObject* expected) {
    Certificate::Item item{proof, index, object, {}};
    item.expected = expected;
    certificate.items.push_back(item);
  };
  auto settle = [&](int index) {  // a node that is read anew: the same object as before, where that matters
    if (!structural[index]) return;
    add(Proof::same_slot, index, slots[index], nullptr);
    fixed[index] = 1;
  };
  for (const Step& step : steps_) {
    if (step.action == Action::read) {
      const Node& node = nodes_[step.index];
      if (node.op == Op::pinned) {
        fixed[step.index] = 1;
      } else if (node.op == Op::dict_of && fixed[node.parent]) {
        add(Proof::same_dict, step.index, slots[node.parent], slots[step.index]);
        fixed[step.index] = 1;
      } else {
        add(Proof::step, static_cast<int>(&step - steps_.data()), nullptr, nullptr);
        settle(step.index);
      }
    } else if (step.action == Action::dict_group) {
      const DictGroup& group = dict_groups_[step.index];
      if (fixed[group.dict_node] && group.version != 0) {
        Certificate::Item item{Proof::version, step.index, group.dict, {}};
        item.version = group.version;
        certificate.items.push_back(item);
        for (int index : group.reads) fixed[index] = 1;
      } else {
        add(Proof::step, static_cast<int>(&step - steps_.data()), nullptr, nullptr);
        for (int index : group.reads) settle(index);
      }
    } else if (step.action == Action::type_group) {
      const TypeGroup& group = type_groups_[step.index];
      Certificate::Item item{Proof::type_version, step.index, reinterpret_cast<PyObject*>(group.type), {}};
      item.version = group.version;
      certificate.items.push_back(item);
    } else {
      const Check& check = checks_[step.index];
      if (check.kind == Kind::type && check.node >= 0 && fixed[check.node]) {
        add(Proof::same_type, step.index, slots[check.node], check.payload);
      } else if ((check.kind == Kind::alias || check.kind == Kind::not_alias) && fixed[check.node] &&
                 fixed[check.number]) {
        continue;  // both are the objects they were
      } else {
        add(Proof::step, static_cast<int>(&step - steps_.data()), nullptr, nullptr);
      }
    }
  }
  certificate.valid = true;
}

// A dict was written to: its facts are checked again and, where it holds the same objects, its version is kept.
bool GuardProgram::renew(DictGroup& group, Frame& frame, uint64_t& version) {
  std::vector<PyObject*> before;
  before.reserve(group.reads.size());
  for (int index : group.reads) before.push_back(frame_slot(frame, index));
  if (run_dict_group(group, frame) >= 0 || group.version == 0) return false;
  for (size_t i = 0; i < before.size(); ++i) {
    if (frame_slot(frame, group.reads[i]) != before[i]) return false;
  }
  version = group.version;
  return true;
}

bool GuardProgram::certificate_holds(Frame& frame) {
  if (!certificate_ || !certificate_->valid) return false;
  for (Certificate::Item& item : certificate_->items) {
    switch (item.proof) {
      case Proof::version:
        if (dict_version(item.object) != item.version && !renew(dict_groups_[item.index], frame, item.version)) {
          return false;
        }
        break;
      case Proof::same_dict:
        if (instance_dict(item.object) != item.expected) return false;
        break;
      case Proof::same_type:
        if (reinterpret_cast<PyObject*>(Py_TYPE(item.object)) != item.expected) return false;
        break;
      case Proof::type_version:
        if (item.version == 0 || type_version(reinterpret_cast<PyTypeObject*>(item.object)) != item.version) return false;
        break;
      case Proof::same_slot:
        if (frame_slot(frame, item.index) != item.object) return false;
        break;
      case Proof::step:
        if (run_step(steps_[item.index], frame) >= 0) return false;
        break;
    }
  }
  return true;
}

void GuardProgram::forget_certificate() {
  if (certificate_) certificate_->valid = false;
}

}  // namespace stator
