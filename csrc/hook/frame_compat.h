/* What differs between CPython 3.11, 3.12 and 3.13 in an interpreter frame.
 *
 * In:  a frame that the eval-frame function was given and that has not started.
 * Out: its code, function, locals mapping, and (3.12+) the release that the caller no longer does.
 *
 * The layout comes from CPython's internal headers, so the build defines Py_BUILD_CORE_MODULE.
 */
#ifndef STATOR_HOOK_COMPAT_H
#define STATOR_HOOK_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030b0000 || PY_VERSION_HEX >= 0x030e0000
#error "stator._hook supports CPython 3.11, 3.12 and 3.13 only."
#endif
#ifdef Py_GIL_DISABLED
#error "stator._hook does not support free-threaded builds of CPython."
#endif
#ifndef Py_BUILD_CORE_MODULE
#error "stator._hook reads CPython's internal frame layout: compile it with -DPy_BUILD_CORE_MODULE."
#endif

#include <frameobject.h>
#include <stdbool.h>
#include <stdint.h>
#include "internal/pycore_frame.h"
#include "internal/pycore_code.h"

#define IS_3_11 (PY_VERSION_HEX < 0x030c0000)
#define IS_3_12 (PY_VERSION_HEX >= 0x030c0000 && PY_VERSION_HEX < 0x030d0000)

#if IS_3_11
#define code_extra_index _PyEval_RequestCodeExtraIndex
#define code_get_extra _PyCode_GetExtra
#define code_set_extra _PyCode_SetExtra
#else
#define code_extra_index PyUnstable_Eval_RequestCodeExtraIndex
#define code_get_extra PyUnstable_Code_GetExtra
#define code_set_extra PyUnstable_Code_SetExtra
#endif

static inline PyCodeObject *
frame_code(_PyInterpreterFrame *frame)
{
#if IS_3_11 || IS_3_12
    return frame->f_code;
#else
    return _PyFrame_GetCode(frame);
#endif
}

static inline PyObject *
frame_function(_PyInterpreterFrame *frame)
{
#if IS_3_11
    return (PyObject *)frame->f_func;
#else
    return frame->f_funcobj;
#endif
}

#if IS_3_12
/* 3.12 does not export _PyThreadState_PopFrame. Frames live on a stack of chunks; a frame at the start of
 * a chunk was the reason that the chunk was allocated (by the arena allocator) and takes it along. */
static inline void
pop_frame(PyThreadState *tstate, _PyInterpreterFrame *frame)
{
    PyObject **base = (PyObject **)frame;
    _PyStackChunk *chunk = tstate->datastack_chunk;
    if (base != &chunk->data[0]) {
        tstate->datastack_top = base;
        return;
    }
    _PyStackChunk *previous = chunk->previous;
    PyObjectArenaAllocator arena;
    PyObject_GetArenaAllocator(&arena);
    tstate->datastack_chunk = previous;
    tstate->datastack_top = &previous->data[previous->top];
    tstate->datastack_limit = (PyObject **)((char *)previous + previous->size);
    arena.free(arena.ctx, chunk, chunk->size);
}
#elif !IS_3_11
#define pop_frame _PyThreadState_PopFrame
#endif

/* Finish a frame that the callback answered for, so that it never ran.
 * 3.11: _PyEval_Vector, which pushed the frame, clears and pops it after the eval-frame function returns.
 * 3.12+: the evaluator does, on its way out; whoever evaluates a frame in its place has to do the same. */
static inline void
release_frame(PyThreadState *tstate, _PyInterpreterFrame *frame)
{
#if IS_3_11
    (void)tstate;
    (void)frame;
#else
    if (frame->frame_obj != NULL) {
        /* Unreachable: the frame is not linked into the thread's stack yet, so nothing can have asked for
         * its frame object. Clearing it anyway would leave that object pointing at freed memory. */
        Py_FatalError("stator._hook: an intercepted frame that never ran has a frame object");
    }
#ifndef STATOR_HOOK_TEST_LEAK
    /* Destructors run Python below: keep the recursion headroom that CPython takes at this point. */
    tstate->c_recursion_remaining--;
    for (int i = 0; i < frame->stacktop; i++) {
        Py_XDECREF(frame->localsplus[i]);
    }
    Py_XDECREF(frame->f_locals);
    Py_DECREF(frame->f_funcobj);
    Py_DECREF((PyObject *)frame_code(frame));
    tstate->c_recursion_remaining++;
#endif
    pop_frame(tstate, frame);
#endif
}

#endif
