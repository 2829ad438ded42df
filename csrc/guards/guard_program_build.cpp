// Building a guard program: parse the payloads, charge each read to a check, group facts, plan the steps.
// See guard_program.h.
#include <Python.h>
#include <structmember.h>

#include <algorithm>

#include "guards/guard_program.h"
#include "guards/raw_read.h"

namespace stator {
namespace {

bool is_keyed(PyObject* payload) {
  return PyTuple_Check(payload) && PyTuple_GET_SIZE(payload) == 2 && PyLong_Check(PyTuple_GET_ITEM(payload, 1));
}

bool refuse(const char* message) {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, message);
  return false;
}

bool has_fixed_type(PyObject* type) {
  // Instances of static types cannot be given another __class__; modules are the exception.
  auto* candidate = reinterpret_cast<PyTypeObject*>(type);
  return !PyType_HasFeature(candidate, Py_TPFLAGS_HEAPTYPE) && candidate != &PyModule_Type;
}

bool is_scalar(PyObject* object) {
  return PyLong_CheckExact(object) || PyBool_Check(object) || PyFloat_CheckExact(object) ||
         PyComplex_CheckExact(object) || PyUnicode_CheckExact(object) || PyBytes_CheckExact(object);
}

}  // namespace

std::vector<int> Check::nodes() const {
  std::vector<int> found = shape ? shape->nodes() : partition ? partition->nodes() : std::vector<int>();
  if (node >= 0) found.push_back(node);
  if (kind == Kind::alias || kind == Kind::not_alias) found.push_back(static_cast<int>(number));
  return found;
}

GuardProgram::~GuardProgram() { clear(); }

void GuardProgram::clear() {
  cleared_ = true;
  for (Node& node : nodes_) node.payload.reset();
  for (Check& check : checks_) check.payload.reset();
}

int GuardProgram::traverse(visitproc visit, void* arg) {
  for (Node& node : nodes_) Py_VISIT(node.payload.get());
  for (Check& check : checks_) Py_VISIT(check.payload.get());
  return 0;
}

namespace {

// Takes a tuple of plain values from the garbage collector's list, as its first visit would.  A program has thousands:
// the first collection after a capture visited them all.  `payload`: so with a tuple in it, which lower.py has made too;
// those of the program stay as they are, it could ask (gc.is_tracked).
void untrack_plain(PyObject* item, bool payload) {
  if (!PyTuple_CheckExact(item) || !PyObject_GC_IsTracked(item)) return;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(item); ++i) {
    PyObject* part = PyTuple_GET_ITEM(item, i);
    if (!part) return;
    bool is_tuple = PyTuple_CheckExact(part);
    if (is_tuple && payload) untrack_plain(part, false);
    if (is_tuple ? PyObject_GC_IsTracked(part) : PyObject_IS_GC(part)) return;
  }
  PyObject_GC_UnTrack(item);
}

}  // namespace

bool GuardProgram::build(PyObject* nodes, PyObject* checks, PyObject* wanted, Py_ssize_t argument_count,
                         Py_ssize_t packed) {
  argument_count_ = argument_count;
  packed_ = packed;
  Ref node_list = Ref::steal(PySequence_Fast(nodes, "nodes must be a sequence"));
  if (!node_list) return false;
  Ref check_list = Ref::steal(PySequence_Fast(checks, "checks must be a sequence"));
  if (!check_list) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(node_list.get()); ++i) {
    if (!parse_node(PySequence_Fast_GET_ITEM(node_list.get(), i))) return false;
    untrack_plain(PySequence_Fast_GET_ITEM(node_list.get(), i), nodes_.back().op == Op::key);
  }
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(check_list.get()); ++i) {
    if (!parse_check(PySequence_Fast_GET_ITEM(check_list.get(), i))) return false;
    bool of_key = checks_.back().kind == Kind::absent || checks_.back().kind == Kind::present;
    untrack_plain(PySequence_Fast_GET_ITEM(check_list.get(), i), of_key);
  }
  if (!parse_wanted(wanted)) return false;
  if (packed < 0 || packed > wanted_count()) return refuse("no more values can be packed than are wanted");
  charge_reads();
  group_facts();
  plan();
  scratch_.resize(nodes_.size());
  changing_.assign(nodes_.size(), 0);
  return true;
}

bool GuardProgram::parse_node(PyObject* item) {
  int op, parent;
  PyObject* payload;
  if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "iiO", &op, &parent, &payload)) {
    return refuse("a node is (op, parent, payload)");
  }
  int index = static_cast<int>(nodes_.size());
  if (op < 0 || op >= static_cast<int>(Op::count)) return refuse("unknown node op");
  bool is_root = op == int(Op::arg) || op == int(Op::pinned) || op == int(Op::call);
  if (is_root != (parent == -1) || parent >= index) return refuse("a node's parent must come before it");
  nodes_.emplace_back();
  Node& node = nodes_.back();
  node.op = static_cast<Op>(op);
  node.parent = parent;
  node.payload = Ref::borrow(payload);
  node.key = payload;
  switch (node.op) {
    case Op::arg:
    case Op::index:
    case Op::set_at:
    case Op::key_at:
    case Op::value_at:
    case Op::items_left:
      node.number = PyNumber_AsSsize_t(payload, PyExc_OverflowError);
      if (node.number < 0) return refuse("an index must not be negative");
      break;
    case Op::key:
      if (!is_keyed(payload)) return refuse("a key node wants (key, hash)");
      node.key = PyTuple_GET_ITEM(payload, 0);
      node.hash = PyLong_AsSsize_t(PyTuple_GET_ITEM(payload, 1));
      break;
    case Op::slot:
      if (!Py_IS_TYPE(payload, &PyMemberDescr_Type) ||
          reinterpret_cast<PyMemberDescrObject*>(payload)->d_member->type != T_OBJECT_EX) {
        return refuse("a slot node wants a __slots__ member descriptor");
      }
      break;
    case Op::attr:
      if (!PyUnicode_CheckExact(payload)) return refuse("an attr node wants a name");
      holds_references_ = true;
      break;
    case Op::call: {
      PyObject* arguments;
      if (!PyArg_ParseTuple(payload, "OO!", &node.key, &PyTuple_Type, &arguments)) return false;
      holds_references_ = true;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); ++i) {
        long argument = PyLong_AsLong(PyTuple_GET_ITEM(arguments, i));
        if (argument < 0 || argument >= index) return refuse("a call's arguments must come before it");
        node.arguments.push_back(static_cast<int>(argument));
      }
      break;
    }
    default:
      break;
  }
  return !PyErr_Occurred();
}

bool GuardProgram::parse_check(PyObject* item) {
  int node, kind;
  PyObject* payload;
  if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "iiO", &node, &kind, &payload)) {
    return refuse("a check is (node, kind, payload)");
  }
  if (kind < 0 || kind >= static_cast<int>(Kind::count)) return refuse("unknown check kind");
  if (node >= static_cast<int>(nodes_.size()) || (node < 0) != (kind == int(Kind::global_state))) {
    return refuse("a check must name a node that exists");
  }
  checks_.emplace_back();
  Check& check = checks_.back();
  check.kind = static_cast<Kind>(kind);
  check.node = node;
  check.payload = Ref::borrow(payload);
  return parse_check_payload(check) && !PyErr_Occurred();
}

bool GuardProgram::parse_check_payload(Check& check) {
  PyObject* payload = check.payload.get();
  switch (check.kind) {
    case Kind::type:
      return PyType_Check(payload) || refuse("a type check wants a type");
    case Kind::tensor:
      check.tensor = TensorCheck::parse(payload);
      return check.tensor != nullptr;
    case Kind::values:
      check.values = ValuesCheck::parse(payload);
      return check.values != nullptr;
    case Kind::global_state:
      check.state = StateCheck::parse(payload);
      return check.state != nullptr;
    case Kind::shape:
      check.shape = std::make_unique<ShapeCheck>();
      return check.shape->parse(payload, node_count());
    case Kind::partition:
      check.partition = std::make_unique<PartitionCheck>();
      return check.partition->parse(payload, node_count());
    case Kind::len:
    case Kind::alias:
    case Kind::not_alias:
      check.number = PyNumber_AsSsize_t(payload, PyExc_OverflowError);
      if (check.number == -1 && PyErr_Occurred()) return false;
      return check.kind == Kind::len || (check.number >= 0 && check.number < node_count()) ||
             refuse("an alias check must name a node that exists");
    case Kind::keys:
      return PyTuple_CheckExact(payload) || refuse("a keys check wants a tuple");
    case Kind::absent:
    case Kind::present:
      if (!is_keyed(payload)) return refuse("a membership check wants (key, hash)");
      check.key = PyTuple_GET_ITEM(payload, 0);
      check.hash = PyLong_AsSsize_t(PyTuple_GET_ITEM(payload, 1));
      return true;
    case Kind::type_attr:
      if (!PyTuple_Check(payload) || PyTuple_GET_SIZE(payload) < 1 ||
          !PyUnicode_CheckExact(PyTuple_GET_ITEM(payload, 0))) {
        return refuse("a type attribute check wants (name,) or (name, expected)");
      }
      check.key = PyTuple_GET_ITEM(payload, 0);
      check.expected = PyTuple_GET_SIZE(payload) > 1 ? PyTuple_GET_ITEM(payload, 1) : nullptr;
      return true;
    case Kind::type_field:
      if (!PyTuple_Check(payload) || PyTuple_GET_SIZE(payload) != 2) return refuse("a field check wants (name, expected)");
      check.key = PyTuple_GET_ITEM(payload, 0);
      check.expected = PyTuple_GET_ITEM(payload, 1);
      return PyUnicode_CheckExact(check.key) || refuse("a field check wants the field's name");
    case Kind::slot_empty:
      return Py_IS_TYPE(payload, &PyMemberDescr_Type) || refuse("a slot check wants a member descriptor");
    case Kind::set_equals: {
      if (!PyTuple_CheckExact(payload)) return refuse("a set check wants a tuple of elements");
      check.set = std::make_unique<ExpectedSet>();
      check.set->size = PyTuple_GET_SIZE(payload);
      for (Py_ssize_t i = 0; i < check.set->size; ++i) {
        PyObject* element = PyTuple_GET_ITEM(payload, i);
        check.set->objects.insert(element);
        // Other objects count by identity, and their __hash__ is not ours to call.
        if (is_scalar(element) || PyTuple_CheckExact(element)) {
          check.set->constants[PyObject_Hash(element)].push_back(element);
        }
      }
      return true;
    }
    default:
      return true;
  }
}

bool GuardProgram::parse_wanted(PyObject* wanted) {
  Ref list = Ref::steal(PySequence_Fast(wanted, "wanted must be a sequence"));
  if (!list) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
    long node = PyLong_AsLong(PySequence_Fast_GET_ITEM(list.get(), i));
    if (node < 0 || node >= node_count()) return refuse("a wanted node must exist");
    wanted_.push_back(static_cast<int>(node));
  }
  return true;
}

// A failed read counts as the failure of the first check under it.
void GuardProgram::charge_reads() {
  for (Node& node : nodes_) node.first_check = static_cast<int>(checks_.size());
  for (size_t i = 0; i < checks_.size(); ++i) {
    for (int node : checks_[i].nodes()) {
      nodes_[node].first_check = std::min(nodes_[node].first_check, static_cast<int>(i));
    }
  }
  for (int i = static_cast<int>(nodes_.size()) - 1; i >= 0; --i) {
    auto charge = [&](int parent) {
      nodes_[parent].first_check = std::min(nodes_[parent].first_check, nodes_[i].first_check);
    };
    if (nodes_[i].parent >= 0) charge(nodes_[i].parent);
    for (int argument : nodes_[i].arguments) charge(argument);
  }
}

// Whether the same object under an unchanged dict version keeps the fact true.
bool GuardProgram::is_stable(const Check& check) const {
  switch (check.kind) {
    case Kind::id:
    case Kind::not_id:
    case Kind::equals:
      return true;
    case Kind::type:
      return has_fixed_type(check.payload.get());
    default:
      return false;
  }
}

namespace {

bool reads_dict(Op op) { return op == Op::key || op == Op::key_at || op == Op::value_at; }

}  // namespace

DictGroup& GuardProgram::group_for(int dict_node) {
  auto [place, is_new] = group_of_dict_.try_emplace(dict_node, static_cast<int>(dict_groups_.size()));
  if (is_new) dict_groups_.push_back({dict_node, {}, {}});
  return dict_groups_[place->second];
}

// Puts the reads and stable facts of each dict, and the attributes of each pinned class, behind one version.
void GuardProgram::group_facts() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!reads_dict(nodes_[i].op)) continue;
    DictGroup& group = group_for(nodes_[i].parent);
    group.reads.push_back(static_cast<int>(i));
    group.ordered = group.ordered || nodes_[i].op != Op::key;
  }
  for (size_t i = 0; i < checks_.size(); ++i) {
    const Check& check = checks_[i];
    if (check.node < 0) continue;
    const Node& node = nodes_[check.node];
    int index = static_cast<int>(i);
    if (check.kind == Kind::absent || check.kind == Kind::present || check.kind == Kind::keys) {
      DictGroup& group = group_for(check.node);
      group.checks.push_back(index);
      group.ordered = group.ordered || check.kind == Kind::keys;
    } else if (reads_dict(node.op) && is_stable(check)) {
      group_for(node.parent).checks.push_back(index);
    } else if ((check.kind == Kind::type_attr || (check.kind == Kind::type_field && PyTuple_Check(check.expected))) &&
               node.op == Op::pinned && PyType_Check(node.key)) {
      auto [place, is_new] = group_of_type_.try_emplace(node.key, static_cast<int>(type_groups_.size()));
      if (is_new) type_groups_.push_back({reinterpret_cast<PyTypeObject*>(node.key), {}});
      type_groups_[place->second].checks.push_back(index);
    }
  }
}

// The steps in the order of the checks, each read just before the first check that needs it.
void GuardProgram::plan() {
  planned_node_.assign(nodes_.size(), 0);
  planned_check_.assign(checks_.size(), 0);
  planned_group_.assign(dict_groups_.size(), 0);
  std::vector<int> dict_group_of(checks_.size(), -1), type_group_of(checks_.size(), -1);
  for (size_t g = 0; g < dict_groups_.size(); ++g) {
    for (int check : dict_groups_[g].checks) dict_group_of[check] = static_cast<int>(g);
  }
  for (size_t g = 0; g < type_groups_.size(); ++g) {
    for (int check : type_groups_[g].checks) type_group_of[check] = static_cast<int>(g);
  }
  for (size_t i = 0; i < checks_.size(); ++i) {
    if (planned_check_[i]) continue;
    if (dict_group_of[i] >= 0) {
      plan_group(dict_group_of[i]);
    } else if (type_group_of[i] >= 0) {
      steps_.push_back({Action::type_group, type_group_of[i]});
      for (int member : type_groups_[type_group_of[i]].checks) planned_check_[member] = 1;
    } else {
      for (int node : checks_[i].nodes()) plan_node(node);
      steps_.push_back({Action::check, static_cast<int>(i)});
    }
  }
  for (int node : wanted_) plan_node(node);
}

void GuardProgram::plan_node(int index) {
  if (planned_node_[index]) return;
  const Node& node = nodes_[index];
  if (reads_dict(node.op)) {
    plan_group(group_of_dict_.at(node.parent));
    return;
  }
  planned_node_[index] = 1;
  if (node.parent >= 0) plan_node(node.parent);
  for (int argument : node.arguments) plan_node(argument);
  steps_.push_back({Action::read, index});
}

void GuardProgram::plan_group(int index) {
  if (planned_group_[index]) return;
  planned_group_[index] = 1;
  const DictGroup& group = dict_groups_[index];
  plan_node(group.dict_node);
  steps_.push_back({Action::dict_group, index});
  for (int node : group.reads) planned_node_[node] = 1;
  for (int check : group.checks) planned_check_[check] = 1;
}

}  // namespace stator
