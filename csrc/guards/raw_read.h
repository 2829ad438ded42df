// Reads of Python objects that never run the user's code.
//
// In: an object and what to read of it (a key, a position, a slot).  Out: the value, or nullptr with no
// exception set.  No `__eq__`, `__hash__`, `__getattr__` or property is ever called: keys are compared by
// identity or as exact builtin constants, and attributes are read through C descriptors of builtin types.
#pragma once

#include <Python.h>

#include <cstdint>

#include "ref.h"

#define STATOR_DICT_VERSIONS (PY_VERSION_HEX < 0x030E0000)  // 3.14 took the counter out of dicts

namespace stator {

// Looks up the types this file trusts and checks CPython's dict layout.  False with an exception set.
bool raw_read_init();

enum class Found { yes, no, unknown };

// A raw dict lookup with a known hash.  `unknown`: only the user's `__eq__` could tell.
Found dict_lookup(PyObject* dict, PyObject* key, Py_hash_t hash, PyObject** value);

// The version of a dict: changes with every modification, never repeats.  0: this dict has none (3.14: none has).
uint64_t dict_version(PyObject* dict);

// The version of a type: as for dicts; 0 while the type has none.
unsigned type_version(PyTypeObject* type);

// Where a class that was made as an object keeps its `__mro__`, `__bases__`, `__name__` or `__qualname__`. The version
// changes with the first two, and not with the names.
PyObject* const* type_field(PyTypeObject* type, PyObject* name);

// Exact same type and equal value, floats bit by bit; other objects by identity.
bool same_constant(PyObject* left, PyObject* right);

// Whether hashing it runs C code alone: exact numbers, strings, None and the like.
bool hashes_quietly(PyObject* object);

// The raw length of a list, tuple, dict, set, frozenset or deque (subclasses too); -1 for others.
Py_ssize_t raw_length(PyObject* object);

// Whether an iterator of a list, a tuple or a range has so many items left; false for other objects.
bool has_items(PyObject* iterator, Py_ssize_t count);

bool is_deque(PyObject* object);

// Borrowed references.
PyObject* instance_dict(PyObject* object);
PyObject* sequence_item(PyObject* object, Py_ssize_t index);  // lists and tuples
PyObject* set_item(PyObject* object, Py_ssize_t index);
PyObject* dict_key_at(PyObject* dict, Py_ssize_t index);
PyObject* dict_value_at(PyObject* dict, Py_ssize_t index);

// The address of a `__slots__` member inside the object; nullptr when the object is no instance of its owner.
PyObject** slot_address(PyObject* object, PyObject* member_descriptor);

// Where a fact lies in memory, for proving it again by one comparison; nullptr where it lies in no single place.
// Each place is inside the object given (or what it owns) and is to be read only while that is known to be alive.
const uint64_t* dict_version_place(PyObject* dict);
const unsigned* type_version_place(PyTypeObject* type);
const uint64_t* instance_dict_place(PyObject* object, PyObject* dict);  // holds `dict`, as instance_dict() found it
const uint64_t* length_place(PyObject* object);                        // of a list, dict or set
const uint64_t* function_attribute_place(PyObject* object, PyObject* name);
bool is_fixed_attribute(PyObject* object, PyObject* name);  // a C member that is never written again

// New references.
Ref deque_item(PyObject* object, Py_ssize_t index);
Ref trusted_attribute(PyObject* object, PyObject* name);

// Whether the keys of a dict, in iteration order, are these (constants by equality, objects by identity).
bool dict_keys_are(PyObject* dict, PyObject* keys);

}  // namespace stator
