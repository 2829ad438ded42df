/* The frame of a generator, coroutine or async generator that is not on the C stack: read it, replace it.
 *
 * In:  a generator object and, to write, where its frame shall stand: the next instruction, locals and stack.
 * Out: the same as data; or the object, standing there.
 *
 * A place without a value (an unbound local, a NULL on the stack) is the object that the caller names as `null`.
 */
#include "frame_compat.h"
#include "functions.h"

enum { CREATED, SUSPENDED, RUNNING, OVER };     /* ours: the same in every version */

static PyGenObject *
as_generator(PyObject *object)
{
    if (PyGen_CheckExact(object) || PyCoro_CheckExact(object) || PyAsyncGen_CheckExact(object)) {
        return (PyGenObject *)object;
    }
    PyErr_Format(PyExc_TypeError, "a generator, coroutine or async generator is needed, not a %.200s",
                 Py_TYPE(object)->tp_name);
    return NULL;
}

static _PyInterpreterFrame *
frame_of(PyGenObject *generator)
{
#if HAS_STACK_REFS
    return &generator->gi_iframe;
#else
    return (_PyInterpreterFrame *)generator->gi_iframe;
#endif
}

static int
state_of(PyGenObject *generator)
{
    int state = generator->gi_frame_state;
    if (state == FRAME_CREATED) {
        return CREATED;
    }
    return state < FRAME_EXECUTING ? SUSPENDED : state == FRAME_EXECUTING ? RUNNING : OVER;
}

static void
set_state(PyGenObject *generator, int state, int unit)
{
    int8_t value = state == CREATED ? FRAME_CREATED : state == RUNNING ? FRAME_EXECUTING : FRAME_SUSPENDED;
#if !(IS_3_11 || IS_3_12)
    /* A yield that passes on what another iterator yields says so in its operand. */
    if (state == SUSPENDED && unit > 0 && _PyCode_CODE(frame_code(frame_of(generator)))[unit - 1].op.arg) {
        value = FRAME_SUSPENDED_YIELD_FROM;
    }
#endif
    (void)unit;
    generator->gi_frame_state = value;
}

/* (state, code, globals, next unit, values, handled exception or None); only the state where there is no frame to read */
PyObject *
hook_generator_read(PyObject *module, PyObject *args)
{
    PyObject *object, *null;
    if (!PyArg_ParseTuple(args, "OO:generator_read", &object, &null)) {
        return NULL;
    }
    PyGenObject *generator = as_generator(object);
    if (generator == NULL) {
        return NULL;
    }
    int state = state_of(generator);
    if (state == RUNNING || state == OVER) {
        return Py_BuildValue("(i)", state);
    }
    _PyInterpreterFrame *frame = frame_of(generator);
    PyObject *values = PyTuple_New(frame_size(frame));
    if (values == NULL) {
        return NULL;
    }
    for (int i = 0; i < frame_size(frame); i++) {
        PyObject *value = slot_get(frame->localsplus[i]);
        if (value == NULL && PyErr_Occurred()) {
            Py_DECREF(values);
            return NULL;
        }
        PyTuple_SET_ITEM(values, i, value != NULL ? value : Py_NewRef(null));
    }
    PyObject *handled = generator->gi_exc_state.exc_value;
    return Py_BuildValue("(iOOiNO)", state, (PyObject *)frame_code(frame), frame->f_globals, next_unit(frame), values,
                         handled != NULL ? handled : Py_None);
}

/* What was in the frame before is let go last, when the frame is whole again: finalizers may look at it. */
static int
replace_values(_PyInterpreterFrame *frame, PyObject *values, PyObject *null, PyObject *raised, int unit)
{
    int before = frame_size(frame);
    Py_ssize_t count = PyTuple_GET_SIZE(values);
    PyObject *old = PyList_New(0);
    if (old == NULL) {
        return -1;
    }
    for (int i = 0; i < before; i++) {
        PyObject *value = slot_get(frame->localsplus[i]);
        int failed = value == NULL ? PyErr_Occurred() != NULL : PyList_Append(old, value) < 0;
        Py_XDECREF(value);
        if (failed) {
            Py_DECREF(old);
            return -1;
        }
    }
    for (int i = 0; i < before; i++) {
        slot_clear(&frame->localsplus[i]);      /* `old` holds them */
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyTuple_GET_ITEM(values, i);
        slot_put(&frame->localsplus[i], value == null ? NULL : Py_NewRef(value));
    }
    for (Py_ssize_t i = 0; raised != NULL && i < PyTuple_GET_SIZE(raised); i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(raised, i));
        if (place >= 0 && place < count) {
            slot_put_unit(&frame->localsplus[place], frame_code(frame), unit);
        }
    }
    PyErr_Clear();
    set_frame_size(frame, (int)count);
    Py_DECREF(old);
    return 0;
}

PyObject *
hook_generator_write(PyObject *module, PyObject *args)
{
    PyObject *object, *values, *handled, *null, *raised = NULL;
    int state, unit;
    if (!PyArg_ParseTuple(args, "OiiO!OO|O!:generator_write", &object, &state, &unit, &PyTuple_Type, &values, &handled,
                          &null, &PyTuple_Type, &raised)) {
        return NULL;
    }
    PyGenObject *generator = as_generator(object);
    if (generator == NULL) {
        return NULL;
    }
    _PyInterpreterFrame *frame = frame_of(generator);
    int now = state_of(generator);
    if (now == OVER || (now == RUNNING && frame_size(frame) < 0)) {
        PyErr_SetString(PyExc_ValueError, "generator_write(): the generator is over, or really runs");
        return NULL;
    }
    PyCodeObject *code = frame_code(frame);
    Py_ssize_t count = PyTuple_GET_SIZE(values);
    if (state < CREATED || state > RUNNING || count < code->co_nlocalsplus
        || count > code->co_nlocalsplus + code->co_stacksize || unit < 0 || unit >= Py_SIZE(code)) {
        PyErr_SetString(PyExc_ValueError, "generator_write(): no place of the generator's code");
        return NULL;
    }
    generator->gi_frame_state = FRAME_EXECUTING;     /* nobody may resume it half written */
    if (replace_values(frame, values, null, raised, unit) < 0) {
        generator->gi_frame_state = FRAME_CREATED;
        return NULL;
    }
    set_next_unit(frame, unit);
    set_state(generator, state, unit);
    Py_XSETREF(generator->gi_exc_state.exc_value, handled == Py_None ? NULL : Py_NewRef(handled));
    Py_RETURN_NONE;
}
