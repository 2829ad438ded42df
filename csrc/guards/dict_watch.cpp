// See dict_watch.h.  CPython calls the watcher with the GIL held, before each change of a dict that has its bit set.
#include "guards/dict_watch.h"

#include <iterator>
#include <unordered_map>

#include "guards/raw_read.h"
#include "pending_error.h"

namespace stator {

#if PY_VERSION_HEX >= 0x030C0000 && STATOR_DICT_VERSIONS

namespace {

struct Subscription {
  DictWatch* watch;
  uint32_t number;
};

// Below the version, in the same word, CPython keeps who watches the dict and, since 3.13, how often it was changed.
#if PY_VERSION_HEX >= 0x030D0000
constexpr int version_shift = 12;
#else
constexpr int version_shift = 8;
#endif

uint64_t version_of(PyObject* dict) { return *dict_version_place(dict) >> version_shift; }

int watcher_id = -1;
// Never destroyed: dicts die after static destructors have run.
std::unordered_multimap<PyObject*, Subscription>& subscriptions() {
  static auto* table = new std::unordered_multimap<PyObject*, Subscription>();
  return *table;
}

int on_event(PyDict_WatchEvent event, PyObject* dict, PyObject*, PyObject*) {
  auto [begin, end] = subscriptions().equal_range(dict);
  const bool dies = event == PyDict_EVENT_DEALLOCATED;
  for (auto each = begin; each != end; ++each) each->second.watch->note(each->second.number, dies);
  if (dies) subscriptions().erase(begin, end);
  return 0;
}

// Its bit stays in the dict for whoever else watches; the interpreter may be going down, and then refuses.
void unwatch(PyObject* dict) {
  PendingError error = PendingError::fetch();
  if (PyDict_Unwatch(watcher_id, dict) < 0) PyErr_Clear();
  error.restore();
}

}  // namespace

void dict_watch_init() {
  if (watcher_id < 0) watcher_id = PyDict_AddWatcher(on_event);
  if (watcher_id < 0) PyErr_Clear();  // all eight are taken
}

bool DictWatch::add(PyObject* dict) {
  if (watcher_id < 0) return false;
  if (PyDict_Watch(watcher_id, dict) < 0) {
    PyErr_Clear();
    return false;
  }
  auto number = static_cast<uint32_t>(dicts_.size());
  dicts_.push_back(dict);
  noted_.push_back(0);
  told_.push_back(0);
  changed_.reserve(dicts_.size());  // a note must not allocate
  subscriptions().insert({dict, {this, number}});
  return true;
}

void DictWatch::clear() {
  auto& table = subscriptions();
  for (size_t i = 0; i < dicts_.size(); ++i) {
    if (!dicts_[i]) continue;
    auto [begin, end] = table.equal_range(dicts_[i]);
    bool shared = begin != end && std::next(begin) != end;
    for (auto each = begin; each != end; ++each) {
      if (each->second.watch != this || each->second.number != i) continue;
      table.erase(each);
      break;
    }
    if (!shared) unwatch(dicts_[i]);
  }
  dicts_.clear();
  noted_.clear();
  told_.clear();
  changed_.clear();
  lost_ = false;
}

void DictWatch::note(uint32_t number, bool dies) {
  if (dies) {
    lost_ = true;
    dicts_[number] = nullptr;
  } else {
    told_[number] = version_of(dicts_[number]);
  }
  if (noted_[number]) return;
  noted_[number] = 1;
  changed_.push_back(number);
}

bool DictWatch::is_pending(uint32_t number) const { return told_[number] == version_of(dicts_[number]); }

PyObject* watch_count(PyObject*, PyObject*) { return PyLong_FromSize_t(subscriptions().size()); }

#else

void dict_watch_init() {}
PyObject* watch_count(PyObject*, PyObject*) { return PyLong_FromLong(0); }
bool DictWatch::add(PyObject*) { return false; }
void DictWatch::clear() {}
void DictWatch::note(uint32_t, bool) {}
bool DictWatch::is_pending(uint32_t) const { return false; }

#endif

std::vector<uint32_t> DictWatch::take_changed() {
  std::vector<uint32_t> taken(changed_);  // a copy: what is reserved stays
  for (uint32_t number : changed_) noted_[number] = 0;
  changed_.clear();
  return taken;
}

}  // namespace stator
