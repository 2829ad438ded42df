// Dicts that tell when they are written to (CPython 3.12 and 3.13; whether a told change has come is read off versions).
//
// In: dicts to watch, each under a number.  Out: the numbers of those that were written to since, and whether one has
// died.  Where CPython has no dict watchers, or others have taken all of them, nothing can be watched.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

namespace stator {

void dict_watch_init();
// How many dicts are watched now, each as often as somebody watches it; nullptr, with an exception set, without memory.
PyObject* watch_count(PyObject*, PyObject*);

class DictWatch {
 public:
  DictWatch() = default;
  DictWatch(const DictWatch&) = delete;
  DictWatch& operator=(const DictWatch&) = delete;
  ~DictWatch() { clear(); }

  // Starts to watch a dict; numbers count from 0.  False: it cannot be watched.
  bool add(PyObject* dict);
  void clear();
  size_t size() const { return dicts_.size(); }

  bool is_quiet() const { return changed_.empty() && !lost_; }
  bool has_lost() const { return lost_; }  // a dict has died, and its number with it
  // The dicts written to since the last call of this, each once.
  std::vector<uint32_t> take_changed();

  // Told by the interpreter, before the dict changes.
  void note(uint32_t number, bool dies);
  // Whether the change that was told of last is yet to come: another watcher's code runs in between.
  bool is_pending(uint32_t number) const;

 private:
  std::vector<PyObject*> dicts_;  // borrowed: a dict that dies says so first, and stands here as nullptr
  std::vector<char> noted_;
  std::vector<uint64_t> told_;  // the version that the dict had when it was noted last
  std::vector<uint32_t> changed_;
  bool lost_ = false;
};

}  // namespace stator
