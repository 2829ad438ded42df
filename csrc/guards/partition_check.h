// Which places share an address, compared with which did.
//
// In: the payload that stator/guards/lower.py makes of a Partition: places (node, address, written), the group of
// each place and, of memory that was shared, where it began.  Out: yes or no for the values that the nodes have now.
//
// An address is a range of bytes: the object itself, the storage of a tensor, or the bytes that a tensor or buffer
// uses.  Places whose ranges overlap, directly or through others, are one group; groups without a written place do not
// count.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

namespace stator {

// The numbers of stator.guards.partition.Address.
enum class Address : int { object = 0, storage, memory, count };

class PartitionCheck {
 public:
  // False with an exception set when the payload is malformed.
  bool parse(PyObject* payload, Py_ssize_t node_count);
  // `slots` holds the values of the nodes; a value without such an address does not match.
  bool matches(PyObject* const* slots) const;
  const std::vector<int>& nodes() const { return nodes_; }
  // Whether the same objects always give the same answer.
  bool is_about_objects() const { return about_objects_; }

 private:
  struct Range {
    uintptr_t begin, end;  // begin == end: no memory
    int64_t offset;        // of `begin` in the storage
  };
  struct Begin {
    int64_t in_group, in_storage;  // -1: any
  };

  static bool read(Address address, PyObject* object, Range& range);
  bool are_other_objects(PyObject* const* slots) const;
  bool matches_all_apart(const Range* ranges) const;
  bool matches_groups(const Range* ranges) const;

  std::vector<int> nodes_;
  std::vector<Address> addresses_;
  std::vector<char> written_;
  std::vector<int> written_places_;
  std::vector<int> groups_;  // the first place of the group, by place
  std::vector<Begin> begins_;
  bool about_objects_ = true;
  bool all_apart_ = true;
};

}  // namespace stator
