/* Functions of stator._hook that have nothing to do with interception; hook_objects.c and hook_generators.c define them. */
#ifndef STATOR_HOOK_OBJECTS_H
#define STATOR_HOOK_OBJECTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#pragma GCC visibility push(hidden)
PyObject *hook_new_frame(PyObject *module, PyObject *args);
PyObject *hook_tuple_set_item(PyObject *module, PyObject *args);
PyObject *hook_refcount(PyObject *module, PyObject *object);
PyObject *hook_generator_read(PyObject *module, PyObject *args);
PyObject *hook_generator_write(PyObject *module, PyObject *args);
#pragma GCC visibility pop

#endif
