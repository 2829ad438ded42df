// See partition_check.h.
#include "guards/partition_check.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

namespace stator {
namespace {

bool refuse(const char* message) {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, message);
  return false;
}

uintptr_t number(const void* place) { return reinterpret_cast<uintptr_t>(place); }

// Whether C code alone answers for the buffer: a class written in Python may have a `__buffer__` of its own.
bool has_native_buffer(PyTypeObject* type) {
  if (!type->tp_as_buffer || !type->tp_as_buffer->bf_getbuffer) return false;
  PyTypeObject* native = type;
  while (native && PyType_HasFeature(native, Py_TPFLAGS_HEAPTYPE) &&
         !PyType_HasFeature(native, Py_TPFLAGS_IMMUTABLETYPE)) {
    native = native->tp_base;
  }
  return native && native->tp_as_buffer && native->tp_as_buffer->bf_getbuffer == type->tp_as_buffer->bf_getbuffer;
}

}  // namespace

bool PartitionCheck::parse(PyObject* payload, Py_ssize_t node_count) {
  PyObject *places, *groups, *begins;
  if (!PyTuple_Check(payload) ||
      !PyArg_ParseTuple(payload, "O!O!O!", &PyTuple_Type, &places, &PyTuple_Type, &groups, &PyTuple_Type, &begins)) {
    return refuse("a partition check wants (places, groups, begins)");
  }
  const Py_ssize_t count = PyTuple_GET_SIZE(places);
  if (PyTuple_GET_SIZE(groups) != count || PyTuple_GET_SIZE(begins) != count) {
    return refuse("a partition check wants a group and a begin for each place");
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    int node, address, written;
    PyObject* place = PyTuple_GET_ITEM(places, i);
    if (!PyTuple_Check(place) || !PyArg_ParseTuple(place, "iip", &node, &address, &written)) {
      return refuse("a place is (node, address, written)");
    }
    if (node < 0 || node >= node_count) return refuse("a partition check must name nodes that exist");
    if (address < 0 || address >= static_cast<int>(Address::count)) return refuse("unknown kind of address");
    long group = PyLong_AsLong(PyTuple_GET_ITEM(groups, i));
    PyObject* begin = PyTuple_GET_ITEM(begins, i);
    long long in_group = -1, in_storage = -1;
    if (PyErr_Occurred() || (begin != Py_None && !PyTuple_Check(begin)) ||
        (begin != Py_None && !PyArg_ParseTuple(begin, "LL", &in_group, &in_storage))) {
      return refuse("a begin is None or (byte of the group, byte of the storage)");
    }
    if (group < 0 || group > i) return refuse("a group is named by its first place");
    nodes_.push_back(node);
    addresses_.push_back(static_cast<Address>(address));
    written_.push_back(static_cast<char>(written));
    if (written) written_places_.push_back(static_cast<int>(i));
    groups_.push_back(static_cast<int>(group));
    begins_.push_back({in_group, in_storage});
    about_objects_ = about_objects_ && addresses_.back() == Address::object;
    all_apart_ = all_apart_ && group == i;
  }
  return true;
}

bool PartitionCheck::read(Address address, PyObject* object, Range& range) {
  range.offset = 0;
  if (address == Address::object) {
    range.begin = number(object);
    range.end = range.begin + 1;
    return true;
  }
  if (!THPVariable_Check(object)) {
    if (address != Address::memory || !has_native_buffer(Py_TYPE(object))) return false;
    Py_buffer view;
    if (PyObject_GetBuffer(object, &view, PyBUF_STRIDES) != 0) {
      PyErr_Clear();
      return false;
    }
    range.begin = range.end = number(view.buf);
    if (view.len != 0) {
      range.end += static_cast<uintptr_t>(view.itemsize);
      for (int dim = 0; dim < view.ndim; ++dim) {
        Py_ssize_t reach = (view.shape[dim] - 1) * view.strides[dim];
        (reach < 0 ? range.begin : range.end) += static_cast<uintptr_t>(reach);
      }
    }
    PyBuffer_Release(&view);
    return true;
  }
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (!tensor.defined()) return false;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->has_storage() || impl->has_symbolic_sizes_strides()) return false;
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (!storage) return false;
  const uintptr_t start = number(storage->_mutable_data_ptr_no_checks().get());
  if (start == 0) {  // a storage without memory: two tensors share it where they share the record of it
    range.begin = number(storage);
    range.end = range.begin + 1;
    return true;
  }
  if (address == Address::storage) {
    range.begin = start;
    range.end = start + std::max<uintptr_t>(storage->nbytes(), 1);
    return true;
  }
  const auto item = static_cast<int64_t>(impl->dtype().itemsize());
  range.offset = impl->storage_offset() * item;
  range.begin = range.end = start + static_cast<uintptr_t>(range.offset);
  c10::IntArrayRef sizes = impl->sizes_default(), strides = impl->strides_default();
  int64_t last = 0;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == 0) return true;
    last += (sizes[dim] - 1) * strides[dim];
  }
  range.end += static_cast<uintptr_t>((last + 1) * item);
  return true;
}

bool PartitionCheck::matches(PyObject* const* slots) const {
  const size_t pairs = written_places_.size() * nodes_.size();
  constexpr size_t few_objects = 8192, few_ranges = 512;
  if (about_objects_ && all_apart_ && pairs <= few_objects) return are_other_objects(slots);
  c10::SmallVector<Range, 16> ranges;
  try {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Range range;
      if (!read(addresses_[i], slots[nodes_[i]], range)) return false;
      ranges.push_back(range);
    }
  } catch (const std::exception&) {  // a kind of TensorImpl that has no sizes or storage to show
    return false;
  }
  return all_apart_ && pairs <= few_ranges ? matches_all_apart(ranges.data()) : matches_groups(ranges.data());
}

// No written place holds the object of any other.
bool PartitionCheck::are_other_objects(PyObject* const* slots) const {
  for (int written : written_places_) {
    const PyObject* mine = slots[nodes_[written]];
    size_t met = 0;
    for (int node : nodes_) met += slots[node] == mine;
    if (met != 1) return false;
  }
  return true;
}

// No written place overlaps with any other.
bool PartitionCheck::matches_all_apart(const Range* ranges) const {
  const int count = static_cast<int>(nodes_.size());
  for (int written : written_places_) {
    const Range mine = ranges[written];
    if (mine.begin == mine.end) continue;
    for (int other = 0; other < count; ++other) {
      if (ranges[other].begin < mine.end && mine.begin < ranges[other].end && other != written &&
          ranges[other].begin != ranges[other].end) {
        return false;
      }
    }
  }
  return true;
}

// Sorted by where they begin, places that overlap stand together.
bool PartitionCheck::matches_groups(const Range* ranges) const {
  const size_t count = nodes_.size();
  c10::SmallVector<int, 16> order, groups;
  for (size_t i = 0; i < count; ++i) {
    groups.push_back(static_cast<int>(i));
    if (ranges[i].begin != ranges[i].end) order.push_back(static_cast<int>(i));
  }
  std::sort(order.begin(), order.end(), [&](int left, int right) { return ranges[left].begin < ranges[right].begin; });
  for (size_t first = 0, next; first < order.size(); first = next) {
    uintptr_t reach = ranges[order[first]].end;
    int lowest = order[first];
    bool written = written_[order[first]];
    for (next = first + 1; next < order.size() && ranges[order[next]].begin < reach; ++next) {
      reach = std::max(reach, ranges[order[next]].end);
      lowest = std::min(lowest, order[next]);
      written = written || written_[order[next]];
    }
    if (!written || next == first + 1) continue;
    for (size_t i = first; i < next; ++i) {
      groups[order[i]] = lowest;
      const Range& range = ranges[order[i]];
      const Begin found{static_cast<int64_t>(range.begin - ranges[order[first]].begin), range.offset};
      const Begin& expected = begins_[order[i]];
      if (expected.in_group >= 0 &&
          (expected.in_group != found.in_group || expected.in_storage != found.in_storage)) {
        return false;
      }
    }
  }
  return std::equal(groups.begin(), groups.end(), groups_.begin());
}

}  // namespace stator
