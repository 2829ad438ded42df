/* Move C iterators that have no __setstate__, or not for all they hold.
 *
 * In:  an iterator of the user's, and where the program left it.
 * Out: the same iterator, standing there; what it draws from is not asked.
 *
 * The structs are private to CPython (Objects/enumobject.c, Objects/iterobject.c, Objects/dictobject.c,
 * Modules/itertoolsmodule.c, Modules/_collectionsmodule.c, Modules/arraymodule.c, Objects/memoryobject.c); their
 * beginnings are the same in 3.11 to 3.14.
 */
#include "functions.h"

typedef struct {
    PyObject_HEAD
    Py_ssize_t index;
    PyObject *iterator;
    PyObject *result;
    PyObject *long_index;
} Enumerate;

typedef struct {
    PyObject_HEAD
    PyObject *iterator;
    Py_ssize_t next;
    Py_ssize_t stop;
    Py_ssize_t step;
    Py_ssize_t count;
} Slice;

typedef struct {
    PyObject_HEAD
    PyObject *callable;
    PyObject *sentinel;
} CallIterator;

typedef struct {
    PyObject_HEAD
    Py_ssize_t index;
    PyObject *sequence;
} SequenceIterator;

typedef struct {
    PyObject_HEAD
    PyObject *dict;
    Py_ssize_t used;
    Py_ssize_t position;
    PyObject *result;
    Py_ssize_t left;
} DictIterator;

typedef struct {
    PyObject_VAR_HEAD
    void *left_block;
    void *right_block;
    Py_ssize_t left_index;
    Py_ssize_t right_index;
    size_t state;
} Deque;

typedef struct {
    PyObject_HEAD
    void *block;
    Py_ssize_t index;
    Deque *deque;
    size_t state;
    Py_ssize_t left;
} DequeIterator;

typedef struct {
    PyObject_HEAD
    PyObject *iterator;
    PyObject *old;
} Pairwise;

typedef struct {
    PyObject_HEAD
    Py_ssize_t index;
    PyObject *view;
} MemoryIterator;

PyObject *
hook_move_enumerate(PyObject *module, PyObject *args)
{
    PyObject *object;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "O!n:move_enumerate", &PyEnum_Type, &object, &index)) {
        return NULL;
    }
    if (((Enumerate *)object)->long_index != NULL) {
        PyErr_SetString(PyExc_OverflowError, "move_enumerate(): it counts beyond the largest C integer");
        return NULL;
    }
    ((Enumerate *)object)->index = index;
    Py_RETURN_NONE;
}

PyObject *
hook_move_slice(PyObject *module, PyObject *args)
{
    PyObject *object;
    Py_ssize_t next, count;
    if (!PyArg_ParseTuple(args, "Onn:move_slice", &object, &next, &count)) {
        return NULL;
    }
    if (strcmp(Py_TYPE(object)->tp_name, "itertools.islice") != 0) {
        PyErr_SetString(PyExc_TypeError, "move_slice(): an islice is needed");
        return NULL;
    }
    if (next < 0) {
        Py_CLEAR(((Slice *)object)->iterator);
        Py_RETURN_NONE;
    }
    ((Slice *)object)->next = next;
    ((Slice *)object)->count = count;
    Py_RETURN_NONE;
}

static int
walks_dict(PyObject *object)
{
    return Py_IS_TYPE(object, &PyDictIterKey_Type) || Py_IS_TYPE(object, &PyDictIterValue_Type)
        || Py_IS_TYPE(object, &PyDictIterItem_Type) || Py_IS_TYPE(object, &PyDictRevIterKey_Type)
        || Py_IS_TYPE(object, &PyDictRevIterValue_Type) || Py_IS_TYPE(object, &PyDictRevIterItem_Type);
}

PyObject *
hook_walker_place(PyObject *module, PyObject *object)
{
    if (!walks_dict(object)) {
        PyErr_SetString(PyExc_TypeError, "walker_place(): an iterator of a dict is needed");
        return NULL;
    }
    DictIterator *iterator = (DictIterator *)object;
    if (iterator->dict == NULL) {
        return PyTuple_New(0);
    }
    return Py_BuildValue("(nnN)", iterator->position, iterator->left, PyBool_FromLong(iterator->used < 0));
}

PyObject *
hook_spoil_walker(PyObject *module, PyObject *object)
{
    if (!walks_dict(object)) {
        PyErr_SetString(PyExc_TypeError, "spoil_walker(): an iterator of a dict is needed");
        return NULL;
    }
    ((DictIterator *)object)->used = -1;
    Py_RETURN_NONE;
}

PyObject *
hook_end_iterator(PyObject *module, PyObject *object)
{
    if (Py_IS_TYPE(object, &PyCallIter_Type)) {
        Py_CLEAR(((CallIterator *)object)->callable);
        Py_CLEAR(((CallIterator *)object)->sentinel);
    }
    else if (Py_IS_TYPE(object, &PySeqIter_Type)) {
        Py_CLEAR(((SequenceIterator *)object)->sequence);
    }
    else if (walks_dict(object)) {
        Py_CLEAR(((DictIterator *)object)->dict);
    }
    else {
        PyErr_SetString(PyExc_TypeError, "end_iterator(): an iterator of a sequence, a dict or a callable is needed");
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *
hook_deque_stands(PyObject *module, PyObject *object)
{
    const char *name = Py_TYPE(object)->tp_name;
    if (strcmp(name, "collections._deque_iterator") != 0 && strcmp(name, "_collections._deque_iterator") != 0
        && strcmp(name, "collections._deque_reverse_iterator") != 0
        && strcmp(name, "_collections._deque_reverse_iterator") != 0) {
        PyErr_SetString(PyExc_TypeError, "deque_stands(): an iterator of a deque is needed");
        return NULL;
    }
    DequeIterator *iterator = (DequeIterator *)object;
    return PyBool_FromLong(iterator->deque->state == iterator->state);
}

static int
is_pairwise(PyObject *object, const char *caller)
{
    if (strcmp(Py_TYPE(object)->tp_name, "itertools.pairwise") == 0) {
        return 1;
    }
    PyErr_Format(PyExc_TypeError, "%s(): a pairwise is needed", caller);
    return 0;
}

PyObject *
hook_pairwise_parts(PyObject *module, PyObject *object)
{
    if (!is_pairwise(object, "pairwise_parts")) {
        return NULL;
    }
    Pairwise *pairs = (Pairwise *)object;
    if (pairs->iterator == NULL) {
        return PyTuple_New(0);
    }
    return pairs->old == NULL ? PyTuple_Pack(1, pairs->iterator) : PyTuple_Pack(2, pairs->iterator, pairs->old);
}

PyObject *
hook_set_pairwise(PyObject *module, PyObject *args)
{
    PyObject *object, *iterator = NULL, *old = NULL;
    if (!PyArg_ParseTuple(args, "O|OO:set_pairwise", &object, &iterator, &old) || !is_pairwise(object, "set_pairwise")) {
        return NULL;
    }
    if (iterator != NULL && !PyIter_Check(iterator)) {
        PyErr_SetString(PyExc_TypeError, "set_pairwise(): an iterator is needed");
        return NULL;
    }
    Pairwise *pairs = (Pairwise *)object;
    Py_XINCREF(iterator);
    Py_XINCREF(old);
    Py_XSETREF(pairs->iterator, iterator);
    Py_XSETREF(pairs->old, old);
    Py_RETURN_NONE;
}

typedef struct {
    PyObject_VAR_HEAD
    char *items;
    Py_ssize_t allocated;
    const void *description;
    PyObject *references;
    Py_ssize_t exports;
} Array;

PyObject *
hook_is_exported(PyObject *module, PyObject *object)
{
    if (PyByteArray_CheckExact(object)) {
        return PyBool_FromLong(((PyByteArrayObject *)object)->ob_exports > 0);
    }
    if (strcmp(Py_TYPE(object)->tp_name, "array.array") == 0) {
        return PyBool_FromLong(((Array *)object)->exports > 0);
    }
    PyErr_SetString(PyExc_TypeError, "is_exported(): a bytearray or an array is needed");
    return NULL;
}

PyObject *
hook_memory_iterator_parts(PyObject *module, PyObject *object)
{
    if (strcmp(Py_TYPE(object)->tp_name, "memory_iterator") != 0) {
        PyErr_SetString(PyExc_TypeError, "memory_iterator_parts(): an iterator of a memoryview is needed");
        return NULL;
    }
    MemoryIterator *iterator = (MemoryIterator *)object;
    if (iterator->view == NULL) {
        return PyTuple_New(0);
    }
    return Py_BuildValue("(On)", iterator->view, iterator->index);
}

/* Since 3.12 copying an iterator of itertools warns. warnings.catch_warnings() would forget which warnings were shown
   already, and is seen by other threads; another list of filters, for a call that never gives up the GIL, is not. */
PyObject *
hook_quietly(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    static PyObject *ignoring = NULL;
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "quietly(): a function is needed");
        return NULL;
    }
    if (ignoring == NULL) {
        ignoring = Py_BuildValue("[(sOOOi)]", "ignore", Py_None, PyExc_Warning, Py_None, 0);
        if (ignoring == NULL) {
            return NULL;
        }
    }
    PyObject *name = PyUnicode_FromString("warnings");
    PyObject *warnings = name == NULL ? NULL : PyImport_GetModule(name);
    Py_XDECREF(name);
    PyObject *filters = warnings == NULL ? NULL : PyObject_GetAttrString(warnings, "filters");
    if (filters == NULL || PyObject_SetAttrString(warnings, "filters", ignoring) < 0) {
        PyErr_Clear(); /* no such module, or one that somebody has emptied: then nobody is warned */
        Py_XDECREF(filters);
        Py_XDECREF(warnings);
        return PyObject_Vectorcall(args[0], args + 1, (size_t)(count - 1), NULL);
    }
    PyObject *result = PyObject_Vectorcall(args[0], args + 1, (size_t)(count - 1), NULL);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (PyObject_SetAttrString(warnings, "filters", filters) < 0) {
        PyErr_Clear();
    }
    PyErr_Restore(type, value, traceback);
    Py_DECREF(filters);
    Py_DECREF(warnings);
    return result;
}
