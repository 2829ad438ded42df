// See raw_read.h.  The only file besides the hook that knows CPython's struct layouts.
#include "guards/raw_read.h"

#include <structmember.h>

#include <cstring>
#include <unordered_set>
#include <utility>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030F0000
#error "stator supports CPython 3.11 to 3.14"
#endif

// Exported by 3.13 and 3.14 too, but declared only in their internal headers.
extern "C" int _PySet_NextEntry(PyObject* set, Py_ssize_t* pos, PyObject** key, Py_hash_t* hash);

namespace stator {
namespace {

PyTypeObject* deque_type = nullptr;
// Types whose == runs no Python code when both sides are exactly of these types.
std::unordered_set<PyTypeObject*> plain_types;
// Types whose getset and member descriptors may be read.
std::unordered_set<PyTypeObject*> trusted_types;
PyTypeObject* size_type = nullptr;
PyTypeObject* device_type = nullptr;

// struct _dictkeysobject of 3.11 to 3.14 (see Include/internal/pycore_dict.h).
struct DictKeys {
  Py_ssize_t refcount;
  uint8_t log2_size;
  uint8_t log2_index_bytes;
  uint8_t kind;
  uint32_t version;
  Py_ssize_t usable;
  Py_ssize_t entry_count;
};
struct DictEntry {
  Py_hash_t hash;
  PyObject* key;
  PyObject* value;
};
constexpr uint8_t general_keys = 0;

const DictKeys* keys_of(PyObject* dict) {
  return reinterpret_cast<const DictKeys*>(reinterpret_cast<PyDictObject*>(dict)->ma_keys);
}

Py_ssize_t entry_index(const DictKeys* keys, size_t slot) {
  const char* indices = reinterpret_cast<const char*>(keys + 1);
  if (keys->log2_size < 8) return reinterpret_cast<const int8_t*>(indices)[slot];
  if (keys->log2_size < 16) return reinterpret_cast<const int16_t*>(indices)[slot];
  if (keys->log2_size < 32) return reinterpret_cast<const int32_t*>(indices)[slot];
  return static_cast<Py_ssize_t>(reinterpret_cast<const int64_t*>(indices)[slot]);
}

bool is_plain(PyTypeObject* type) { return plain_types.count(type) != 0; }

bool compares_by_identity(PyTypeObject* type) {
  return type->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

bool is_tuple_like(PyTypeObject* type) { return type == &PyTuple_Type || type == size_type; }

// Whether a dict would take `own` and `key` (of equal hash) for the same key.
Found same_key(PyObject* own, PyObject* key) {
  if (own == key) return Found::yes;
  PyTypeObject *left = Py_TYPE(own), *right = Py_TYPE(key);
  if (is_tuple_like(left) && is_tuple_like(right)) {
    if (PyTuple_GET_SIZE(own) != PyTuple_GET_SIZE(key)) return Found::no;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(own); ++i) {
      Found found = same_key(PyTuple_GET_ITEM(own, i), PyTuple_GET_ITEM(key, i));
      if (found != Found::yes) return found;
    }
    return Found::yes;
  }
  bool left_known = is_plain(left) || is_tuple_like(left);
  bool right_known = is_plain(right) || is_tuple_like(right);
  if (left_known && right_known) {
    if (is_tuple_like(left) || is_tuple_like(right)) return Found::no;
    int equal = PyObject_RichCompareBool(own, key, Py_EQ);
    if (equal < 0) PyErr_Clear();
    return equal < 0 ? Found::unknown : equal ? Found::yes : Found::no;
  }
  bool left_quiet = left_known || compares_by_identity(left);
  bool right_quiet = right_known || compares_by_identity(right);
  return left_quiet && right_quiet ? Found::no : Found::unknown;
}

// CPython's probe sequence (Objects/dictobject.c, dictkeys_generic_lookup) with our comparison.
Found probe(const DictKeys* keys, PyObject* key, Py_hash_t hash, PyObject** value) {
  const char* indices = reinterpret_cast<const char*>(keys + 1);
  const DictEntry* entries =
      reinterpret_cast<const DictEntry*>(indices + (size_t(1) << keys->log2_index_bytes));
  size_t mask = (size_t(1) << keys->log2_size) - 1;
  size_t perturb = static_cast<size_t>(hash);
  size_t slot = perturb & mask;
  for (;;) {
    Py_ssize_t index = entry_index(keys, slot);
    if (index == -1) return Found::no;  // DKIX_EMPTY
    if (index >= 0 && entries[index].hash == hash) {
      Found found = same_key(entries[index].key, key);
      if (found == Found::yes) *value = entries[index].value;
      if (found != Found::no) return found;
    }
    perturb >>= 5;
    slot = (slot * 5 + perturb + 1) & mask;
  }
}

bool same_float(double left, double right) { return std::memcmp(&left, &right, sizeof left) == 0; }

bool same_frozenset(PyObject* left, PyObject* right) {
  if (PySet_GET_SIZE(left) != PySet_GET_SIZE(right)) return false;
  Py_ssize_t pos = 0;
  PyObject* key;
  Py_hash_t hash;
  while (_PySet_NextEntry(left, &pos, &key, &hash)) {
    Py_ssize_t other_pos = 0;
    PyObject* other;
    Py_hash_t other_hash;
    bool found = false;
    while (!found && _PySet_NextEntry(right, &other_pos, &other, &other_hash)) {
      found = hash == other_hash && same_constant(key, other);
    }
    if (!found) return false;
  }
  return true;
}

bool same_range(PyObject* left, PyObject* right) {
  for (const char* name : {"start", "stop", "step"}) {
    Ref a = Ref::steal(PyObject_GetAttrString(left, name));
    Ref b = Ref::steal(PyObject_GetAttrString(right, name));
    if (!a || !b || !same_constant(a.get(), b.get())) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

// Function attributes straight from the struct: their getters raise audit events, which may run Python.
PyObject** function_field(PyObject* object, PyObject* name) {
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return nullptr;
  if (!std::strcmp(text, "__closure__")) return &function->func_closure;
  if (!std::strcmp(text, "__defaults__")) return &function->func_defaults;
  if (!std::strcmp(text, "__kwdefaults__")) return &function->func_kwdefaults;
  if (!std::strcmp(text, "__code__")) return &function->func_code;
  if (!std::strcmp(text, "__globals__")) return &function->func_globals;
  return nullptr;
}

// The i-th key of an OrderedDict is not the i-th of its hash table once move_to_end was called.
PyObject* ordered_key_at(PyObject* dict, Py_ssize_t index) {
  Ref iterator = Ref::steal(PyODict_Type.tp_iter(dict));
  Ref key;
  for (Py_ssize_t i = 0; iterator && i <= index; ++i) {
    key = Ref::steal(Py_TYPE(iterator.get())->tp_iternext(iterator.get()));
    if (!key) break;
  }
  PyErr_Clear();
  return key.get();  // the dict keeps it alive
}

PyObject* class_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  // Builtin types keep theirs in the interpreter's state, which keeps it alive as other types do.
  return Ref::steal(PyType_GetDict(type)).get();
#else
  return type->tp_dict;
#endif
}

bool add_type(const char* module_name, const char* name, std::unordered_set<PyTypeObject*>& types,
              PyTypeObject** out = nullptr) {
  Ref module = Ref::steal(PyImport_ImportModule(module_name));
  Ref found = Ref::steal(module ? PyObject_GetAttrString(module.get(), name) : nullptr);
  if (!found) return false;
  // Builtin types live as long as the process; the reference is kept on purpose.
  auto* type = reinterpret_cast<PyTypeObject*>(found.release());
  types.insert(type);
  if (out) *out = type;
  return true;
}

// Our mirror of the dict layout must agree with the interpreter that runs us.
bool check_dict_layout() {
  Ref made = Ref::steal(Py_BuildValue("{i:s,s:s,(ii):s,d:s}", 1, "a", "x", "b", 1, 2, "c", 2.5, "d"));
  Ref absent = Ref::steal(PyLong_FromLong(7));
  if (!made || !absent) return false;
  PyObject* dict = made.get();
  bool good = keys_of(dict)->kind == general_keys;
  Py_ssize_t pos = 0;
  PyObject *key, *value, *found = nullptr;
  while (good && PyDict_Next(dict, &pos, &key, &value)) {
    good = probe(keys_of(dict), key, PyObject_Hash(key), &found) == Found::yes && found == value;
  }
  good = good && probe(keys_of(dict), absent.get(), 7, &found) == Found::no;
  if (!good && !PyErr_Occurred()) {
    PyErr_SetString(PyExc_ImportError, "stator._core was built for another layout of CPython's dict");
  }
  return good;
}

}  // namespace

bool raw_read_init() {
  plain_types = {&PyLong_Type,    &PyBool_Type,  &PyFloat_Type,    &PyComplex_Type,
                 &PyUnicode_Type, &PyBytes_Type, Py_TYPE(Py_None), Py_TYPE(Py_Ellipsis),
                 Py_TYPE(Py_NotImplemented), &PyRange_Type};
  trusted_types = {&PyFunction_Type,     &PyMethod_Type,          &PyCFunction_Type, &PyCMethod_Type, &PyCode_Type,
                   &PyCell_Type,         &PyProperty_Type,        &PySuper_Type,     &PySlice_Type,
                   &PyRange_Type,        &PyComplex_Type,         &PyLong_Type,      &PyFloat_Type,
                   &PyMemoryView_Type,   &PyStaticMethod_Type,    &PyClassMethod_Type,
                   &PyWrapperDescr_Type, &PyMethodDescr_Type,     &PyClassMethodDescr_Type,
                   &PyGetSetDescr_Type,  &PyMemberDescr_Type};
  std::unordered_set<PyTypeObject*> unused;
  return add_type("collections", "deque", trusted_types, &deque_type) &&
         add_type("functools", "partial", trusted_types) && add_type("types", "GenericAlias", trusted_types) &&
         add_type("types", "MethodWrapperType", trusted_types) &&
         add_type("types", "UnionType", trusted_types) && add_type("torch", "dtype", plain_types) &&
         add_type("torch", "device", plain_types, &device_type) && add_type("torch", "layout", plain_types) &&
         add_type("torch", "memory_format", plain_types) && add_type("torch", "Size", unused, &size_type) &&
         check_dict_layout();
}

Found dict_lookup(PyObject* dict, PyObject* key, Py_hash_t hash, PyObject** value) {
  const DictKeys* keys = keys_of(dict);
  if (keys->kind == general_keys) return probe(keys, key, hash, value);
  // All keys are exact strings: comparing them with ours runs C code alone.
  *value = _PyDict_GetItem_KnownHash(dict, key, hash);
  if (!*value && PyErr_Occurred()) {
    PyErr_Clear();
    return Found::unknown;
  }
  return *value ? Found::yes : Found::no;
}

namespace {

// The word that a dict's version is in; nullptr where it has none: since 3.14, none has.
const uint64_t* version_word([[maybe_unused]] PyObject* object) {
#if STATOR_DICT_VERSIONS
  auto* dict = reinterpret_cast<PyDictObject*>(object);
#if PY_VERSION_HEX >= 0x030D0000
  // 3.13 writes attributes through to the values inside the object without touching the dict's version.
  if (dict->ma_values) return nullptr;
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return &dict->ma_version_tag;
#pragma GCC diagnostic pop
#else
  return nullptr;
#endif
}

}  // namespace

uint64_t dict_version(PyObject* dict) {
  // 3.12 and 3.13 keep a bit for each of eight watchers below the counter.
  constexpr uint64_t watchers = PY_VERSION_HEX >= 0x030C0000 ? 0xFF : 0;
  const uint64_t* word = version_word(dict);
  return word ? *word & ~watchers : 0;
}

unsigned type_version(PyTypeObject* type) {
#if PY_VERSION_HEX < 0x030D0000
  if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
  return type->tp_version_tag;
}

PyObject* const* type_field(PyTypeObject* type, PyObject* name) {
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) return nullptr;
  auto* heap_type = reinterpret_cast<PyHeapTypeObject*>(type);
  const std::pair<const char*, PyObject**> fields[] = {
      {"__mro__", &type->tp_mro}, {"__bases__", &type->tp_bases},
      {"__name__", &heap_type->ht_name}, {"__qualname__", &heap_type->ht_qualname}};
  for (const auto& [field, place] : fields) {
    if (PyUnicode_CompareWithASCIIString(name, field) == 0) return place;
  }
  return nullptr;
}

bool same_constant(PyObject* left, PyObject* right) {
  if (left == right) return true;
  PyTypeObject* type = Py_TYPE(left);
  if (type != Py_TYPE(right)) return false;
  if (type == &PyFloat_Type) return same_float(PyFloat_AS_DOUBLE(left), PyFloat_AS_DOUBLE(right));
  if (type == &PyComplex_Type) {
    Py_complex a = PyComplex_AsCComplex(left), b = PyComplex_AsCComplex(right);
    return same_float(a.real, b.real) && same_float(a.imag, b.imag);
  }
  if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBytes_Type || type == device_type) {
    int equal = PyObject_RichCompareBool(left, right, Py_EQ);
    if (equal < 0) PyErr_Clear();
    return equal == 1;
  }
  if (is_tuple_like(type)) {
    Py_ssize_t size = PyTuple_GET_SIZE(left);
    if (size != PyTuple_GET_SIZE(right)) return false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (!same_constant(PyTuple_GET_ITEM(left, i), PyTuple_GET_ITEM(right, i))) return false;
    }
    return true;
  }
  if (type == &PyFrozenSet_Type) return same_frozenset(left, right);
  if (type == &PyRange_Type) return same_range(left, right);
  if (type == &PySlice_Type) {
    auto* a = reinterpret_cast<PySliceObject*>(left);
    auto* b = reinterpret_cast<PySliceObject*>(right);
    return same_constant(a->start, b->start) && same_constant(a->stop, b->stop) &&
           same_constant(a->step, b->step);
  }
  return false;  // singletons and everything else: identity
}

bool hashes_quietly(PyObject* object) { return is_plain(Py_TYPE(object)); }

bool is_deque(PyObject* object) { return PyObject_TypeCheck(object, deque_type); }

Py_ssize_t raw_length(PyObject* object) {
  if (PyList_Check(object) || PyTuple_Check(object)) return Py_SIZE(object);
  if (PyDict_Check(object)) return reinterpret_cast<PyDictObject*>(object)->ma_used;
  if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
  return is_deque(object) ? Py_SIZE(object) : -1;
}

namespace {

// `__length_hint__` of a static type, as its C function.
PyCFunction hint_of(PyTypeObject* type) {
  for (PyMethodDef* method = type->tp_methods; method && method->ml_name; ++method) {
    if (std::strcmp(method->ml_name, "__length_hint__") == 0) return method->ml_meth;
  }
  return nullptr;
}

}  // namespace

bool has_items(PyObject* iterator, Py_ssize_t count) {
  PyTypeObject* type = Py_TYPE(iterator);
  if (type != &PyRangeIter_Type && type != &PyListIter_Type && type != &PyTupleIter_Type && type != &PyLongRangeIter_Type) {
    return false;
  }
  PyCFunction hint = hint_of(type);
  Ref left = Ref::steal(hint ? hint(iterator, nullptr) : nullptr);
  Py_ssize_t number = left ? PyLong_AsSsize_t(left.get()) : -1;
  if (!PyErr_Occurred()) return number >= count;
  PyErr_Clear();
  return static_cast<bool>(left);  // more than any count
}

PyObject* instance_dict(PyObject* object) {
  if (PyType_Check(object)) return class_dict(reinterpret_cast<PyTypeObject*>(object));
  // A managed dict that was never materialised is made here; the object keeps it.
  PyObject** address = _PyObject_GetDictPtr(object);
  if (!address) return nullptr;
  if (!*address) {
    Ref made = Ref::steal(PyObject_GenericGetDict(object, nullptr));
    if (!made) PyErr_Clear();
  }
  return *address;
}

PyObject* sequence_item(PyObject* object, Py_ssize_t index) {
  if (PyTuple_Check(object)) {
    return index >= 0 && index < PyTuple_GET_SIZE(object) ? PyTuple_GET_ITEM(object, index) : nullptr;
  }
  if (PyList_Check(object)) {
    return index >= 0 && index < PyList_GET_SIZE(object) ? PyList_GET_ITEM(object, index) : nullptr;
  }
  return nullptr;
}

Ref deque_item(PyObject* object, Py_ssize_t index) {
  if (index < 0 || index >= Py_SIZE(object)) return Ref();
  Ref item = Ref::steal(deque_type->tp_as_sequence->sq_item(object, index));
  if (!item) PyErr_Clear();
  return item;
}

PyObject* set_item(PyObject* object, Py_ssize_t index) {
  if (!PyAnySet_Check(object)) return nullptr;
  Py_ssize_t pos = 0;
  PyObject* key = nullptr;
  Py_hash_t hash;
  for (Py_ssize_t i = 0; i <= index; ++i) {
    if (!_PySet_NextEntry(object, &pos, &key, &hash)) return nullptr;
  }
  return key;
}

PyObject* dict_key_at(PyObject* dict, Py_ssize_t index) {
  if (PyODict_Check(dict)) return ordered_key_at(dict, index);
  Py_ssize_t pos = 0;
  PyObject* key = nullptr;
  for (Py_ssize_t i = 0; i <= index; ++i) {
    if (!PyDict_Next(dict, &pos, &key, nullptr)) return nullptr;
  }
  return key;
}

PyObject* dict_value_at(PyObject* dict, Py_ssize_t index) {
  Py_ssize_t pos = 0;
  PyObject *key, *value;
  if (PyODict_Check(dict)) {
    PyObject* wanted = ordered_key_at(dict, index);
    while (wanted && PyDict_Next(dict, &pos, &key, &value)) {
      if (key == wanted) return value;
    }
    return nullptr;
  }
  for (Py_ssize_t i = 0; i <= index; ++i) {
    if (!PyDict_Next(dict, &pos, &key, &value)) return nullptr;
  }
  return value;
}

bool dict_keys_are(PyObject* dict, PyObject* keys) {
  Py_ssize_t size = PyTuple_GET_SIZE(keys);
  if (raw_length(dict) != size) return false;
  Py_ssize_t pos = 0;
  PyObject* key;
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (PyODict_Check(dict)) {
      key = ordered_key_at(dict, i);
      if (!key) return false;
    } else if (!PyDict_Next(dict, &pos, &key, nullptr)) {
      return false;
    }
    if (!same_constant(key, PyTuple_GET_ITEM(keys, i))) return false;
  }
  return true;
}

PyObject** slot_address(PyObject* object, PyObject* member_descriptor) {
  auto* descriptor = reinterpret_cast<PyMemberDescrObject*>(member_descriptor);
  if (!PyObject_TypeCheck(object, descriptor->d_common.d_type)) return nullptr;
  return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + descriptor->d_member->offset);
}

Ref trusted_attribute(PyObject* object, PyObject* name) {
  PyTypeObject* type = Py_TYPE(object);
  if (!trusted_types.count(type)) return Ref();
  PyObject** field = type == &PyFunction_Type ? function_field(object, name) : nullptr;
  if (field) return Ref::borrow(*field ? *field : Py_None);
  Ref result;
  PyObject* descriptor = _PyType_Lookup(type, name);
  if (descriptor && (Py_IS_TYPE(descriptor, &PyGetSetDescr_Type) || Py_IS_TYPE(descriptor, &PyMemberDescr_Type))) {
    result = Ref::steal(Py_TYPE(descriptor)->tp_descr_get(descriptor, object, reinterpret_cast<PyObject*>(type)));
  }
  if (!result) PyErr_Clear();
  return result;
}

const uint64_t* dict_version_place(PyObject* dict) { return dict_version(dict) == 0 ? nullptr : version_word(dict); }

const unsigned* type_version_place(PyTypeObject* type) {
  // 3.11 to 3.14 write 0 to the tag when they take the version away.
  return type_version(type) != 0 ? &type->tp_version_tag : nullptr;
}

namespace {

const uint64_t* as_place(const void* address) { return static_cast<const uint64_t*>(address); }

}  // namespace

const uint64_t* instance_dict_place(PyObject* object, PyObject* dict) {
  PyObject** address =
      PyType_Check(object) ? &reinterpret_cast<PyTypeObject*>(object)->tp_dict : _PyObject_GetDictPtr(object);
  return address && *address == dict ? as_place(address) : nullptr;
}

const uint64_t* length_place(PyObject* object) {
  if (PyDict_Check(object)) return as_place(&reinterpret_cast<PyDictObject*>(object)->ma_used);
  if (PyList_Check(object)) return as_place(&reinterpret_cast<PyVarObject*>(object)->ob_size);
  if (PyAnySet_Check(object)) return as_place(&reinterpret_cast<PySetObject*>(object)->used);
  return nullptr;
}

const uint64_t* function_attribute_place(PyObject* object, PyObject* name) {
  return PyFunction_Check(object) ? as_place(function_field(object, name)) : nullptr;
}

bool is_fixed_attribute(PyObject* object, PyObject* name) {
  return Py_TYPE(object) == &PyMethod_Type && (PyUnicode_CompareWithASCIIString(name, "__self__") == 0 ||
                                               PyUnicode_CompareWithASCIIString(name, "__func__") == 0);
}

}  // namespace stator
