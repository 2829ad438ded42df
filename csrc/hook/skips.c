/* Code that is never intercepted: code objects marked one by one, files by how their names start.
 *
 * In:  skip_code(code), skip_prefix(prefix), close_code(code).
 * Out: is_skipped(code), is_closed(code), remembered in the code object.
 */
#include "skips.h"
#include "functions.h"

static PyObject *skip_prefixes;         /* list of str */
static Py_ssize_t skip_index = -1;      /* our slot in every code object's co_extra */
static uintptr_t skip_generation = 1;   /* grows with skip_prefixes: older decisions are void */

/* A decision in co_extra is generation << 3 | closed | verdict; a slot never written reads as 0. */
enum { VERDICT_CATCH = 1, VERDICT_SKIP = 2, VERDICT_SKIP_ALWAYS = 3, VERDICT_MASK = 3, CLOSED = 4, GENERATION_SHIFT = 3 };

static uintptr_t
decision_of(PyCodeObject *code)
{
    void *extra = NULL;
    code_get_extra((PyObject *)code, skip_index, &extra);
    return (uintptr_t)extra;
}

static bool
decide_skip(PyCodeObject *code)
{
    /* The frame may be entered with an exception set (generator.throw), which must survive; and a decision
     * that cannot be stored for want of memory is only made again. */
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    bool skip = false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(skip_prefixes) && !skip; i++) {
        PyObject *prefix = PyList_GET_ITEM(skip_prefixes, i);
        skip = PyUnicode_Tailmatch(code->co_filename, prefix, 0, PY_SSIZE_T_MAX, -1) == 1;
    }
    uintptr_t decision = skip_generation << GENERATION_SHIFT | (skip ? VERDICT_SKIP : VERDICT_CATCH);
    code_set_extra((PyObject *)code, skip_index, (void *)(decision | (decision_of(code) & CLOSED)));
    PyErr_Restore(type, value, traceback);
    return skip;
}

bool
is_skipped(PyCodeObject *code)
{
    uintptr_t decision = decision_of(code);
    if (decision >> GENERATION_SHIFT == skip_generation) {
        return (decision & VERDICT_MASK) != VERDICT_CATCH;
    }
    return (decision & VERDICT_MASK) == VERDICT_SKIP_ALWAYS || decide_skip(code);
}

bool
is_closed(PyCodeObject *code)
{
    return (decision_of(code) & CLOSED) != 0;
}

static PyObject *
decide(PyObject *code, uintptr_t decision, const char *complaint)
{
    if (!PyCode_Check(code)) {
        PyErr_SetString(PyExc_TypeError, complaint);
        return NULL;
    }
    if (code_set_extra(code, skip_index, (void *)decision) < 0) {
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

PyObject *
hook_skip_code(PyObject *module, PyObject *code)
{
    return decide(code, VERDICT_SKIP_ALWAYS, "skip_code() takes a code object");
}

PyObject *
hook_close_code(PyObject *module, PyObject *code)
{
    uintptr_t before = PyCode_Check(code) ? decision_of((PyCodeObject *)code) : 0;
    return decide(code, before | CLOSED, "close_code() takes a code object");
}

PyObject *
hook_skip_prefix(PyObject *module, PyObject *prefix)
{
    if (!PyUnicode_Check(prefix)) {
        PyErr_SetString(PyExc_TypeError, "skip_prefix() takes a str");
        return NULL;
    }
    if (PyList_Append(skip_prefixes, prefix) < 0) {
        return NULL;
    }
    skip_generation++;
    Py_RETURN_NONE;
}

bool
skips_init(void)
{
    if (skip_prefixes != NULL) {
        return true;    /* imported again: the process has one hook */
    }
    skip_index = code_extra_index(NULL);
    if (skip_index < 0) {
        PyErr_SetString(PyExc_RuntimeError, "stator._hook: no co_extra slot is left in this interpreter");
        return false;
    }
    skip_prefixes = PyList_New(0);
    return skip_prefixes != NULL;
}
