/* Functions of stator._hook that have nothing to do with interception; hook_objects.c, hook_generators.c
 * and hook_iterators.c define them. */
#ifndef STATOR_HOOK_OBJECTS_H
#define STATOR_HOOK_OBJECTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#pragma GCC visibility push(hidden)
PyObject *hook_new_frame(PyObject *module, PyObject *args);
PyObject *hook_set_lasti(PyObject *module, PyObject *args);
PyObject *hook_tuple_set_item(PyObject *module, PyObject *args);
PyObject *hook_refcount(PyObject *module, PyObject *object);
PyObject *hook_generator_read(PyObject *module, PyObject *args);
PyObject *hook_generator_write(PyObject *module, PyObject *args);
PyObject *hook_move_enumerate(PyObject *module, PyObject *args);
PyObject *hook_move_slice(PyObject *module, PyObject *args);
PyObject *hook_end_iterator(PyObject *module, PyObject *object);
PyObject *hook_deque_stands(PyObject *module, PyObject *object);
PyObject *hook_pairwise_parts(PyObject *module, PyObject *object);
PyObject *hook_set_pairwise(PyObject *module, PyObject *args);
PyObject *hook_quietly(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *hook_is_exported(PyObject *module, PyObject *object);
PyObject *hook_memory_iterator_parts(PyObject *module, PyObject *object);
#pragma GCC visibility pop

#endif
