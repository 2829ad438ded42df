// The certificate: what the last successful run proved, as flat lists to prove again.
//
// In: a program that has just run, its slots filled.  Out: words of memory that must read as they did (this object has
// the same class and instance dict, this dict the same version, this list the same length), in an order in which every
// place is proven alive before it is read; class versions; tensors sealed by their metadata; and the steps that are
// run as ever, those about the call's own arguments first.  When all hold, every other slot is what it was.  When
// one does not, the whole program runs.
#pragma once

#include <cstdint>
#include <vector>

#include "guards/dict_watch.h"
#include "guards/guard_program.h"
#include "guards/tensor_seal.h"

namespace stator {

struct GuardProgram::Certificate {
  struct Word {
    const uint64_t* place;
    uint64_t expected;
  };
  struct Fact {  // a word while the certificate is being made
    Word word;
    int node;   // whose object it lies in
    int group;  // the dict group whose version it is, or -1
  };
  struct Watched {
    const uint64_t* version;
    uint64_t seen;
    const uint64_t* length;  // where the fact is a group's: nullptr
    uint64_t expected;
    int group;
  };
  struct ClassVersion {
    const unsigned* place;
    unsigned expected;
    int group;
  };
  struct Argument {
    int node;
    PyObject* object;
  };

  std::vector<int> first;             // steps that run a reader of nothing but pinned objects
  std::vector<int> early;             // steps about arguments and torch's state
  std::vector<Argument> arguments;    // the same objects as before
  std::vector<ClassVersion> classes;
  std::vector<Fact> facts;
  std::vector<Word> words;
  std::vector<int> group_of_word;     // the dict group whose version it is, or -1
  DictWatch watch;                    // dicts that say when they change
  std::vector<Watched> watched;       // what to look at then, by their numbers
  TensorSeals tensors;
  std::vector<int> late;              // steps about what the words have proven alive
  std::vector<int> calls;             // steps that run other readers: last, for one may let another thread in
  std::vector<PyObject*> values;      // of the wanted nodes, side by side; nullptr: read by a step
  bool valid = false;
  bool outdated = false;  // a reader let another thread change something since it was checked

  void clear();
  // The word at this place, in the object of this node, is what a check has found it to be, and must stay so.
  void expect(int node, const void* place, uint64_t expected, int group = -1);
  void expect(int node, const void* place, const void* expected) {
    expect(node, place, reinterpret_cast<uint64_t>(expected));
  }
  // What a dict cannot change without a new version: watched where that is possible, else a word.
  void expect_version(int node, PyObject* dict, int group);
  void expect_length(int node, PyObject* object, uint64_t length);
};

}  // namespace stator
