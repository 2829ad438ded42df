// The guard program: a flat list of raw reads and checks, run at every call.
//
// In: nodes (op, parent, payload), checks (node, kind, payload) and wanted nodes, as lower.py makes them.
// Out, per call: -1 and the wanted values, or the number of the first failed check.
//
// Facts behind a version are grouped.  All reads and stable facts of one dict hang on one comparison of the
// dict's version; all attributes of one class, and its ancestors, on the type's version.  A mismatch rechecks the facts and, when
// they still hold, keeps the new version.  A fact is stable when the same object under the same version
// cannot change it: identity, immutable constants, presence and absence, keys, lengths.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "guards/partition_check.h"
#include "guards/shape_check.h"
#include "guards/tensor_check.h"
#include "ref.h"

namespace stator {

// The numbers of stator.guards.lower.Op.
enum class Op : int {
  arg = 0, pinned, dict_of, key, key_at, value_at, index, set_at, slot, attr, cell, type, call, items_left, count
};

// The numbers of stator.guards.guard.Kind.
enum class Kind : int {
  type = 0, id, equals, tensor, len, keys, absent, present, type_attr, alias, not_alias, not_id, cell_empty,
  slot_empty, global_state, fresh_call, set_equals, shape, values, type_field, partition, count
};

struct Node {
  Op op;
  int parent;
  Ref payload;
  PyObject* key = nullptr;      // borrowed from the payload: dict key, pinned object, name or callable
  Py_hash_t hash = 0;
  Py_ssize_t number = 0;        // argument or item index
  std::vector<int> arguments;   // of a call
  int first_check = 0;          // which check a failed read is charged to
  PyObject* cached = nullptr;   // borrowed; valid while its group's version is
};

struct ExpectedSet {
  std::unordered_set<PyObject*> objects;
  std::unordered_map<Py_hash_t, std::vector<PyObject*>> constants;
  Py_ssize_t size = 0;
};

struct Check {
  Kind kind;
  int node;
  Ref payload;
  PyObject* key = nullptr;      // borrowed from the payload
  PyObject* expected = nullptr; // borrowed; nullptr: the attribute is missing
  Py_hash_t hash = 0;
  Py_ssize_t number = 0;
  std::unique_ptr<TensorCheck> tensor;
  std::unique_ptr<ValuesCheck> values;
  std::unique_ptr<StateCheck> state;
  std::unique_ptr<ExpectedSet> set;
  std::unique_ptr<ShapeCheck> shape;
  std::unique_ptr<PartitionCheck> partition;

  // The nodes whose values it compares.
  std::vector<int> nodes() const;
};

struct DictGroup {
  int dict_node;
  std::vector<int> reads;   // nodes read from this dict
  std::vector<int> checks;  // stable facts about the dict or about those nodes
  bool ordered = false;     // some facts are about the order of the keys
  PyObject* dict = nullptr; // identity only, never dereferenced
  uint64_t version = 0;
};

struct TypeGroup {
  PyTypeObject* type;  // borrowed from a node
  std::vector<int> checks;
  unsigned version = 0;
};

enum class Action : uint8_t { read, check, dict_group, type_group };

struct Step {
  Action action;
  int index;
};

// What an entry's residual is called with: an argument each, the first `packed` of the wanted values as one tuple.
class WantedValues {
 public:
  WantedValues() = default;
  WantedValues(const WantedValues&) = delete;
  WantedValues& operator=(const WantedValues&) = delete;
  ~WantedValues();

  PyObject** data() { return values_; }  // data()[-1] may be written to
  Py_ssize_t size() const { return size_; }

  // Takes references.  A value that is not among the proven ones (nullptr), or where there are none, is in its slot.
  // False, with an exception set, when there is no memory.
  bool fill(PyObject* const* slots, const std::vector<int>& wanted, Py_ssize_t packed, PyObject* const* proven);

 private:
  static constexpr Py_ssize_t small_size = 32;
  // Owned references up to size_.  No array of Refs, which every call would have to zero and to walk.
  PyObject* small_[small_size + 1];
  std::vector<PyObject*> large_;
  PyObject** values_ = small_ + 1;
  Py_ssize_t size_ = 0;
};

class GuardProgram {
 public:
  ~GuardProgram();

  // False with an exception set.
  bool build(PyObject* nodes, PyObject* checks, PyObject* wanted, Py_ssize_t argument_count, Py_ssize_t packed);

  // -1 and the wanted values in `out`, or the failed check; check_count() when a wanted value without a check
  // cannot be read.  `out` may be nullptr; an exception is set when there is no memory for it.
  Py_ssize_t run(PyObject* const* arguments, Py_ssize_t count, WantedValues* out);

  Py_ssize_t wanted_count() const { return static_cast<Py_ssize_t>(wanted_.size()); }
  Py_ssize_t check_count() const { return static_cast<Py_ssize_t>(checks_.size()); }
  Py_ssize_t node_count() const { return static_cast<Py_ssize_t>(nodes_.size()); }
  Py_ssize_t argument_count() const { return argument_count_; }

  int traverse(visitproc visit, void* arg);
  void clear();

 private:
  struct Frame;
  struct Certificate;
  class Certifier;
  struct CertificateDeleter {
    void operator()(Certificate* certificate) const;
  };

  bool parse_node(PyObject* item);
  bool parse_check(PyObject* item);
  bool parse_check_payload(Check& check);
  bool parse_wanted(PyObject* wanted);
  void charge_reads();
  void group_facts();
  DictGroup& group_for(int dict_node);
  void plan();
  void plan_node(int node);
  void plan_group(int group);
  bool is_stable(const Check& check) const;

  Py_ssize_t run_steps(Frame& frame);
  Py_ssize_t run_step(const Step& step, Frame& frame);
  static PyObject*& frame_slot(Frame& frame, int index);
  std::vector<char> structural_nodes() const;
  void certify();
  // -1: it holds.  A check that failed has failed.  `unproven`: what it leans on has changed, the program must run.
  static constexpr Py_ssize_t unproven = -2;
  Py_ssize_t run_certificate(Frame& frame);
  Py_ssize_t prove_certificate(Frame& frame);
  bool prove_watched(Frame& frame);
  Py_ssize_t prove_words(Frame& frame);
  Py_ssize_t prove_calls(Frame& frame);
  PyObject* const* proven_values() const;
  Py_ssize_t run_listed(const std::vector<int>& steps, Frame& frame);
  bool hangs_on_call(int node) const;
  static void hold(Frame& frame, PyObject* object);
  Py_ssize_t renew(DictGroup& group, Frame& frame);
  void forget_certificate();
  Py_ssize_t run_dict_group(DictGroup& group, Frame& frame);
  Py_ssize_t run_type_group(TypeGroup& group);
  bool read(const Node& node, int index, Frame& frame);
  bool holds(const Check& check, const Frame& frame) const;

  std::vector<Node> nodes_;
  std::vector<Check> checks_;
  std::vector<int> wanted_;
  std::vector<Step> steps_;
  std::vector<DictGroup> dict_groups_;
  std::vector<TypeGroup> type_groups_;
  std::unordered_map<int, int> group_of_dict_;        // node -> dict group
  std::unordered_map<PyObject*, int> group_of_type_;  // class -> type group
  std::vector<char> planned_node_, planned_check_, planned_group_;
  Py_ssize_t argument_count_ = 0;
  Py_ssize_t packed_ = 0;  // how many wanted values go into one tuple
  // A program that calls or allocates holds references to what it reads: a collection may run meanwhile.
  bool holds_references_ = false;
  std::vector<PyObject*> scratch_;
  bool scratch_in_use_ = false;
  std::unique_ptr<Certificate, CertificateDeleter> certificate_;  // about the slots in scratch_
  unsigned certified_in_vain_ = 0;  // successful runs since a certificate held
  std::vector<char> changing_;  // arguments that are another object from call to call
  bool cleared_ = false;  // by the garbage collector: nothing passes any more
};

// The Python type `stator._core.GuardProgram`.
extern PyTypeObject GuardProgram_Type;
GuardProgram* guard_program_of(PyObject* object);

}  // namespace stator
