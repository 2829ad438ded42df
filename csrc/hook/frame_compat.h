/* Differences between CPython 3.11, 3.12, 3.13 and 3.14 in an interpreter frame.
 *
 * In:  a frame that the eval-frame function was given and that has not started; the frame of a generator.
 * Out: its code, function, locals mapping, values, place, and (3.12+) the release that the caller no longer does.
 *
 * 3.14 keeps `_PyStackRef`s in frames: pointers with tag bits, or (the place that raised, under an exception) tagged
 * integers. `slot_*` hide them.
 *
 * The layout comes from CPython's internal headers, so the build defines Py_BUILD_CORE_MODULE.
 */
#ifndef STATOR_HOOK_COMPAT_H
#define STATOR_HOOK_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030b0000 || PY_VERSION_HEX >= 0x030f0000
#error "stator._hook supports CPython 3.11 to 3.14 only."
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
#define HAS_STACK_REFS (PY_VERSION_HEX >= 0x030e0000)

#if HAS_STACK_REFS
#include "internal/pycore_genobject.h"
#include "internal/pycore_interpframe.h"
#endif

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
#elif HAS_STACK_REFS
    return PyStackRef_AsPyObjectBorrow(frame->f_funcobj);
#else
    return frame->f_funcobj;
#endif
}

/* ------------------------------------------------------------------------------------------ values */

#if HAS_STACK_REFS
typedef _PyStackRef Slot;
#else
typedef PyObject *Slot;
#endif

/* The number of locals and stack values; negative while the frame runs. */
static inline int
frame_size(_PyInterpreterFrame *frame)
{
#if HAS_STACK_REFS
    return frame->previous != NULL ? -1 : (int)(frame->stackpointer - frame->localsplus);
#else
    return frame->stacktop;
#endif
}

static inline void
set_frame_size(_PyInterpreterFrame *frame, int size)
{
#if HAS_STACK_REFS
    frame->stackpointer = frame->localsplus + size;
#else
    frame->stacktop = size;
#endif
}

/* A new reference; NULL of an empty slot, or (3.14, with an exception set) without memory for an integer. */
static inline PyObject *
slot_get(Slot slot)
{
#if HAS_STACK_REFS
    if (PyStackRef_IsTaggedInt(slot)) {
        return PyLong_FromSsize_t(PyStackRef_UntagInt(slot));
    }
    return PyStackRef_IsNull(slot) ? NULL : Py_NewRef(PyStackRef_AsPyObjectBorrow(slot));
#else
    return Py_XNewRef(slot);
#endif
}

/* Takes the reference; NULL empties the slot. What was there is not released. */
static inline void
slot_put(Slot *slot, PyObject *value)
{
#if HAS_STACK_REFS
    *slot = value == NULL ? PyStackRef_NULL : PyStackRef_FromPyObjectSteal(value);
#else
    *slot = value;
#endif
}

static inline void
slot_clear(Slot *slot)
{
#if HAS_STACK_REFS
    _PyStackRef old = *slot;
    *slot = PyStackRef_NULL;
    PyStackRef_XCLOSE(old);
#else
    Py_CLEAR(*slot);
#endif
}

/* The slot holds the unit that raised the exception above it: 3.14 takes a tagged integer, and follows it unchecked. */
static inline void
slot_put_unit(Slot *slot, PyCodeObject *code, int otherwise)
{
#if HAS_STACK_REFS
    PyObject *value = slot_get(*slot);
    long unit = value != NULL && PyLong_CheckExact(value) ? PyLong_AsLong(value) : -1;
    Py_XDECREF(value);
    slot_clear(slot);
    *slot = PyStackRef_TagInt(unit >= 0 && unit < Py_SIZE(code) ? unit : otherwise);
#else
    (void)slot;
    (void)code;
    (void)otherwise;
#endif
}

/* -------------------------------------------------------------------------------------------- place */

/* The code unit that runs next: 3.11 and 3.12 keep the one before. */
static inline int
next_unit(_PyInterpreterFrame *frame)
{
    _Py_CODEUNIT *first = _PyCode_CODE(frame_code(frame));
#if IS_3_11 || IS_3_12
    return (int)(frame->prev_instr + 1 - first);
#else
    return (int)(frame->instr_ptr - first);
#endif
}

static inline void
set_next_unit(_PyInterpreterFrame *frame, int unit)
{
    _Py_CODEUNIT *first = _PyCode_CODE(frame_code(frame));
#if IS_3_11 || IS_3_12
    frame->prev_instr = first + unit - 1;
#else
    frame->instr_ptr = first + unit;
#endif
}

/* A frame object shows this unit as the one that runs. */
static inline void
show_unit(_PyInterpreterFrame *frame, int unit)
{
#if IS_3_11 || IS_3_12
    set_next_unit(frame, unit + 1);
#else
    set_next_unit(frame, unit);
#endif
}

/* ------------------------------------------------------------------------------------------ release */

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
#if HAS_STACK_REFS
    for (_PyStackRef *slot = frame->localsplus; slot < frame->stackpointer; slot++) {
        PyStackRef_XCLOSE(*slot);
    }
    Py_XDECREF(frame->f_locals);
    PyStackRef_CLOSE(frame->f_funcobj);
    PyStackRef_CLOSE(frame->f_executable);
#else
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
#endif
    pop_frame(tstate, frame);
#endif
}

#endif
