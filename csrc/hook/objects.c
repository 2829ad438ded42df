/* What Python code of ours needs to do to objects and cannot: make a frame, fill a tuple, count references.
 *
 * In:  objects that only our own heap owns (a frame or tuple under construction).
 * Out: the same objects, filled.
 */
#include "functions.h"
#include "frame_compat.h"
#include "internal/pycore_gc.h"

/* PyFrame_New leaves the fast locals empty, and reading f_locals of such a frame dereferences the cells of
 * free variables that are not there. */
static int
fill_fast_locals(PyFrameObject *frame, PyCodeObject *code, PyObject *locals)
{
    const char *kinds = PyBytes_AS_STRING(code->co_localspluskinds);
    for (int i = 0; i < code->co_nlocalsplus; i++) {
        PyObject *name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
        PyObject *value = locals == Py_None ? NULL : PyDict_GetItemWithError(locals, name);
        if (value == NULL && PyErr_Occurred()) {
            return -1;
        }
        if (kinds[i] & (CO_FAST_CELL | CO_FAST_FREE)) {
            value = PyCell_New(value);
            if (value == NULL) {
                return -1;
            }
        }
        else {
            Py_XINCREF(value);
        }
        slot_clear(&frame->f_frame->localsplus[i]);
        slot_put(&frame->f_frame->localsplus[i], value);
    }
    return 0;
}

PyObject *
hook_new_frame(PyObject *module, PyObject *args)
{
    PyObject *code, *globals, *locals = Py_None;
    if (!PyArg_ParseTuple(args, "O!O!|O:new_frame", &PyCode_Type, &code, &PyDict_Type, &globals, &locals)) {
        return NULL;
    }
    bool has_fast_locals = ((PyCodeObject *)code)->co_flags & CO_OPTIMIZED;
    if (has_fast_locals && locals != Py_None && !PyDict_Check(locals)) {
        PyErr_SetString(PyExc_TypeError, "new_frame(): the locals of a function are a dict or None");
        return NULL;
    }
    PyObject *mapping = has_fast_locals || locals == Py_None ? NULL : locals;
    PyFrameObject *frame = PyFrame_New(PyThreadState_Get(), (PyCodeObject *)code, globals, mapping);
    if (frame == NULL) {
        return NULL;
    }
    if (has_fast_locals && fill_fast_locals(frame, (PyCodeObject *)code, locals) < 0) {
        Py_DECREF(frame);
        return NULL;
    }
    return (PyObject *)frame;
}

/* set_lasti(frame, offset): the frame stands at that byte of its code, which decides its f_lineno. */
PyObject *
hook_set_lasti(PyObject *module, PyObject *args)
{
    PyFrameObject *frame;
    int offset;
    if (!PyArg_ParseTuple(args, "O!i:set_lasti", &PyFrame_Type, &frame, &offset)) {
        return NULL;
    }
    PyCodeObject *code = frame_code(frame->f_frame);
    if (offset < 0 || offset >= Py_SIZE(code) * (Py_ssize_t)sizeof(_Py_CODEUNIT)) {
        PyErr_SetString(PyExc_IndexError, "set_lasti(): no such byte in the frame's code");
        return NULL;
    }
    show_unit(frame->f_frame, offset / (int)sizeof(_Py_CODEUNIT));
    Py_RETURN_NONE;
}

PyObject *
hook_tuple_set_item(PyObject *module, PyObject *args)
{
    PyObject *tuple, *value;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "O!nO:tuple_set_item", &PyTuple_Type, &tuple, &index, &value)) {
        return NULL;
    }
    if (index < 0 || index >= PyTuple_GET_SIZE(tuple)) {
        PyErr_SetString(PyExc_IndexError, "tuple_set_item(): index out of range");
        return NULL;
    }
    PyObject *old = PyTuple_GET_ITEM(tuple, index);
    PyTuple_SET_ITEM(tuple, index, Py_NewRef(value));
    Py_XDECREF(old);
    /* The collector untracks tuples of atoms; this one may now be part of a cycle. */
    if (!PyObject_GC_IsTracked(tuple)) {
        PyObject_GC_Track(tuple);
    }
    Py_RETURN_NONE;
}

PyObject *
hook_refcount(PyObject *module, PyObject *object)
{
    return PyLong_FromSsize_t(Py_REFCNT(object));
}

/* CPython calls the finalizer of an object once: this one counts as called.  False for objects that keep no such mark. */
PyObject *
hook_mark_finalized(PyObject *module, PyObject *object)
{
    if (!PyObject_IS_GC(object)) {
        Py_RETURN_FALSE;
    }
#if PY_VERSION_HEX >= 0x030D0000
    _PyGC_SET_FINALIZED(object);
#else
    _PyGCHead_SET_FINALIZED(_Py_AS_GC(object));
#endif
    Py_RETURN_TRUE;
}
