/* The functions of stator._hook, by the file that defines them; module.c lists them with their signatures. */
#ifndef STATOR_HOOK_FUNCTIONS_H
#define STATOR_HOOK_FUNCTIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#pragma GCC visibility push(hidden)
/* interception.c */
PyObject *hook_enter(PyObject *module, PyObject *noargs);
PyObject *hook_leave(PyObject *module, PyObject *noargs);
PyObject *hook_pause(PyObject *module, PyObject *noargs);
PyObject *hook_resume(PyObject *module, PyObject *token);
PyObject *hook_active(PyObject *module, PyObject *noargs);
PyObject *hook_set_callback(PyObject *module, PyObject *new_callback);
PyObject *hook_exchange_callback(PyObject *module, PyObject *new_callback);
PyObject *hook_set_recursion_budget(PyObject *module, PyObject *depth);
PyObject *hook_call_below(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *hook_current_locals(PyObject *module, PyObject *noargs);

/* skips.c */
PyObject *hook_skip_code(PyObject *module, PyObject *code);
PyObject *hook_close_code(PyObject *module, PyObject *code);
PyObject *hook_skip_prefix(PyObject *module, PyObject *prefix);

/* objects.c */
PyObject *hook_new_frame(PyObject *module, PyObject *args);
PyObject *hook_set_lasti(PyObject *module, PyObject *args);
PyObject *hook_tuple_set_item(PyObject *module, PyObject *args);
PyObject *hook_refcount(PyObject *module, PyObject *object);
PyObject *hook_mark_finalized(PyObject *module, PyObject *object);

/* decoding.c */
PyObject *hook_decode(PyObject *module, PyObject *args);
PyObject *hook_with_handlers(PyObject *module, PyObject *args);
PyObject *hook_definitions(PyObject *module, PyObject *modules);

/* generators.c */
PyObject *hook_generator_read(PyObject *module, PyObject *args);
PyObject *hook_generator_write(PyObject *module, PyObject *args);

/* iterators.c */
PyObject *hook_move_enumerate(PyObject *module, PyObject *args);
PyObject *hook_move_slice(PyObject *module, PyObject *args);
PyObject *hook_end_iterator(PyObject *module, PyObject *object);
PyObject *hook_walker_place(PyObject *module, PyObject *object);
PyObject *hook_spoil_walker(PyObject *module, PyObject *object);
PyObject *hook_deque_stands(PyObject *module, PyObject *object);
PyObject *hook_pairwise_parts(PyObject *module, PyObject *object);
PyObject *hook_set_pairwise(PyObject *module, PyObject *args);
PyObject *hook_is_exported(PyObject *module, PyObject *object);
PyObject *hook_memory_iterator_parts(PyObject *module, PyObject *object);
PyObject *hook_quietly(PyObject *module, PyObject *const *args, Py_ssize_t count);
#pragma GCC visibility pop

#endif
