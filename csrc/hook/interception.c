/* stator._hook: hand Python frames to a callback before CPython evaluates them (PEP 523).
 *
 * In:  set_callback(cb), then enter() ... leave() around a call.
 * Out: every Python function called in between, on this thread, becomes cb(func, args, closure); what cb
 *      returns is the call's result, RUN and RUN_ALL excepted, which mean "evaluate it after all".
 *
 * docs/hook.md says what is guaranteed. The state is per process (callback, skips) and per thread (switch);
 * the GIL protects the first.
 */
#include "frame_compat.h"
#include "functions.h"
#include "interception.h"
#include "skips.h"

#define INLINE_DEPTH 32

typedef struct {
    bool live;                          /* intercept frames of this thread now */
    int tracing;                        /* how many trace, profile and audit functions were running at enter() */
    int withheld;                       /* what enter() took from the depth that C code may still recurse to */
} Interception;

typedef struct {
    Interception now;
    Py_ssize_t depth;                   /* enter() calls not yet left */
    Py_ssize_t capacity;                /* of `outer`; 0 while `inline_outer` is large enough */
    Interception *outer;                /* outer[i]: `now` as it was before the i-th enter() */
    Interception inline_outer[INLINE_DEPTH];
    _PyInterpreterFrame *handed_down;   /* the frame that another hook was given, or NULL */
    _PyInterpreterFrame *intercepted;   /* the frame whose callback runs, or NULL */
    PyObject *own_callback;             /* strong, or NULL: asked instead of `callback` */
    int recursion_budget;               /* how deep C code may recurse below enter(); 0: as the interpreter has it */
} ThreadSwitch;

static _Thread_local ThreadSwitch thread_switch;

static PyObject *callback;              /* strong, or NULL */
PyObject *run_sentinel;
PyObject *run_all_sentinel;
static Py_ssize_t threads_entered;      /* threads with depth > 0 */
static bool buried;                     /* another hook was over ours when the last thread left */
static _PyFrameEvalFunction native_eval = _PyEval_EvalFrameDefault;

/* ------------------------------------------------------------------------------------------- depth */

/* C code recurses within the limit of sys.setrecursionlimit() on 3.11 alone; later versions count it apart. */
static void
withhold_depth(ThreadSwitch *thread, PyThreadState *tstate)
{
#if IS_3_11
    if (thread->recursion_budget > 0 && tstate->recursion_remaining > thread->recursion_budget) {
        thread->now.withheld = tstate->recursion_remaining - thread->recursion_budget;
        tstate->recursion_remaining -= thread->now.withheld;
    }
#endif
}

static void
give_depth_back(ThreadSwitch *thread, PyThreadState *tstate)
{
#if IS_3_11
    tstate->recursion_remaining += thread->now.withheld;
#endif
    thread->now.withheld = 0;
}

/* -------------------------------------------------------------------------------------- evaluation */

/* The hook that was there before ours may be installed a second time, over ours: then it has seen the frame, and hands
 * it down to us. Handing it back would go round for ever, whoever is on top by then. */
static PyObject *
evaluate_natively(PyThreadState *tstate, _PyInterpreterFrame *frame, int throwflag)
{
    if (native_eval == _PyEval_EvalFrameDefault) {
        return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    }
    ThreadSwitch *thread = &thread_switch;
    if (_PyInterpreterState_GetEvalFrameFunc(tstate->interp) == native_eval || thread->handed_down == frame) {
        return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    }
    _PyInterpreterFrame *outer = thread->handed_down;
    thread->handed_down = frame;
    PyObject *result = native_eval(tstate, frame, throwflag);
    thread->handed_down = outer;
    return result;
}

static PyObject *
run_subtree_natively(ThreadSwitch *thread, PyThreadState *tstate, _PyInterpreterFrame *frame, int throwflag)
{
    bool outer = thread->now.live;
    thread->now.live = false;
    PyObject *result = evaluate_natively(tstate, frame, throwflag);
    thread->now.live = outer;
    return result;
}

static PyObject *
bound_arguments(_PyInterpreterFrame *frame, PyCodeObject *code)
{
    Py_ssize_t count = code->co_argcount + code->co_kwonlyargcount;
    count += (code->co_flags & CO_VARARGS) != 0;
    count += (code->co_flags & CO_VARKEYWORDS) != 0;
    PyObject *args = PyTuple_New(count);
    if (args == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyTuple_SET_ITEM(args, i, slot_get(frame->localsplus[i]));
    }
    return args;
}

/* Ask the callback, with interception off and `frame` available to current_locals(). */
static PyObject *
ask_callback(ThreadSwitch *thread, _PyInterpreterFrame *frame)
{
    PyObject *args = bound_arguments(frame, frame_code(frame));
    if (args == NULL) {
        return NULL;
    }
    PyObject *func = frame_function(frame);
    PyObject *closure = ((PyFunctionObject *)func)->func_closure;
    PyObject *stack[4] = {NULL, func, args, closure != NULL ? closure : Py_None};
    PyObject *asked = Py_NewRef(thread->own_callback ? thread->own_callback : callback);  /* it may replace itself */
    _PyInterpreterFrame *outer_frame = thread->intercepted;
    thread->intercepted = frame;
    thread->now.live = false;
    PyThreadState *tstate = PyThreadState_Get();
    give_depth_back(thread, tstate);
    PyObject *answer = PyObject_Vectorcall(asked, stack + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    withhold_depth(thread, tstate);
    thread->now.live = true;
    thread->intercepted = outer_frame;
    Py_DECREF(asked);
#if !(defined(STATOR_HOOK_TEST_LEAK) && IS_3_11)    /* 3.12+ has a release of its own to leave out */
    Py_DECREF(args);
#endif
    return answer;
}

static PyObject *
evaluate_frame(PyThreadState *tstate, _PyInterpreterFrame *frame, int throwflag)
{
    ThreadSwitch *thread = &thread_switch;
    /* A trace, profile or audit function that CPython calls in the midst of the program is no part of it. */
    if (!thread->now.live || thread->handed_down == frame || tstate->tracing > thread->now.tracing
        || (callback == NULL && thread->own_callback == NULL)) {
        return evaluate_natively(tstate, frame, throwflag);
    }
    if (is_skipped(frame_code(frame))) {
        return run_subtree_natively(thread, tstate, frame, throwflag);
    }
    /* Only a frame that starts here can be answered for: a generator's frame, once it exists, is resumed in
     * the middle, and a frame object's frame belongs to that object. */
    if (throwflag || frame->owner != FRAME_OWNED_BY_THREAD || !PyFunction_Check(frame_function(frame))) {
        return evaluate_natively(tstate, frame, throwflag);
    }
    PyObject *answer = ask_callback(thread, frame);
    if (answer == run_sentinel) {
        Py_DECREF(answer);
        return evaluate_natively(tstate, frame, 0);
    }
    if (answer == run_all_sentinel) {
        Py_DECREF(answer);
        return run_subtree_natively(thread, tstate, frame, 0);
    }
    release_frame(tstate, frame);
    return answer;
}

/* A hook that was there before ours goes on evaluating the frames that we do not answer for. One that buried
 * ours and stayed may hand its frames to evaluate_frame: handing ours to it would go round for ever, so ours stays
 * under it, and sees the frames that it passes on. */
static void
install(PyInterpreterState *interp)
{
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interp);
    if (buried && current != evaluate_frame && current != _PyEval_EvalFrameDefault) {
        return;
    }
    buried = false;
    if (current != evaluate_frame) {
        native_eval = current;
        _PyInterpreterState_SetEvalFrameFunc(interp, evaluate_frame);
    }
}

static void
uninstall(PyInterpreterState *interp)
{
    buried = _PyInterpreterState_GetEvalFrameFunc(interp) != evaluate_frame;
    if (!buried) {
        _PyInterpreterState_SetEvalFrameFunc(interp, native_eval);
        native_eval = _PyEval_EvalFrameDefault;
    }
}

/* ------------------------------------------------------------------------------------------ switch */

static int
grow_outer(ThreadSwitch *thread)
{
    Py_ssize_t capacity = 2 * thread->depth;
    Interception *grown = PyMem_RawRealloc(thread->capacity ? thread->outer : NULL, capacity * sizeof *grown);
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (thread->capacity == 0) {
        memcpy(grown, thread->inline_outer, sizeof thread->inline_outer);
    }
    thread->outer = grown;
    thread->capacity = capacity;
    return 0;
}

PyObject *
hook_enter(PyObject *module, PyObject *noargs)
{
    ThreadSwitch *thread = &thread_switch;
    if (thread->depth == 0) {
        PyInterpreterState *interp = PyInterpreterState_Get();
        if (interp != PyInterpreterState_Main()) {
            PyErr_SetString(PyExc_RuntimeError, "stator._hook works in the main interpreter only");
            return NULL;
        }
        if (threads_entered == 0) {
            install(interp);
        }
        threads_entered++;
        thread->outer = thread->inline_outer;
    }
    Py_ssize_t room = thread->capacity ? thread->capacity : INLINE_DEPTH;
    if (thread->depth >= room && grow_outer(thread) < 0) {
        return NULL;
    }
    thread->outer[thread->depth++] = thread->now;
    PyThreadState *tstate = PyThreadState_Get();
    thread->now = (Interception){true, tstate->tracing, 0};
    withhold_depth(thread, tstate);
    Py_RETURN_NONE;
}

PyObject *
hook_leave(PyObject *module, PyObject *noargs)
{
    ThreadSwitch *thread = &thread_switch;
    if (thread->depth == 0) {
        PyErr_SetString(PyExc_RuntimeError, "leave() without enter() on this thread");
        return NULL;
    }
    give_depth_back(thread, PyThreadState_Get());
    thread->now = thread->outer[--thread->depth];
    if (thread->depth == 0) {
        if (thread->capacity) {
            PyMem_RawFree(thread->outer);
            thread->capacity = 0;
        }
        if (--threads_entered == 0) {
            uninstall(PyInterpreterState_Get());
        }
    }
    Py_RETURN_NONE;
}

PyObject *
hook_pause(PyObject *module, PyObject *noargs)
{
    PyObject *token = thread_switch.now.live ? Py_True : Py_False;
    thread_switch.now.live = false;
    return Py_NewRef(token);
}

PyObject *
hook_resume(PyObject *module, PyObject *token)
{
    if (token != Py_True && token != Py_False) {
        PyErr_SetString(PyExc_TypeError, "resume() takes the token that pause() returned");
        return NULL;
    }
    thread_switch.now.live = token == Py_True;
    Py_RETURN_NONE;
}

PyObject *
hook_active(PyObject *module, PyObject *noargs)
{
    return PyBool_FromLong(thread_switch.now.live);
}

/* --------------------------------------------------------------------------------------- functions */

PyObject *
hook_set_callback(PyObject *module, PyObject *new_callback)
{
    if (new_callback != Py_None && !PyCallable_Check(new_callback)) {
        PyErr_SetString(PyExc_TypeError, "set_callback() takes a callable or None");
        return NULL;
    }
    PyObject *old = callback;
    callback = new_callback == Py_None ? NULL : Py_NewRef(new_callback);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

PyObject *
hook_exchange_callback(PyObject *module, PyObject *new_callback)
{
    if (new_callback != Py_None && !PyCallable_Check(new_callback)) {
        PyErr_SetString(PyExc_TypeError, "exchange_callback() takes a callable or None");
        return NULL;
    }
    PyObject *old = thread_switch.own_callback;
    thread_switch.own_callback = new_callback == Py_None ? NULL : Py_NewRef(new_callback);
    return old != NULL ? old : Py_NewRef(Py_None);
}

/* set_recursion_budget(depth) -> the one before. */
PyObject *
hook_set_recursion_budget(PyObject *module, PyObject *depth)
{
    long budget = PyLong_AsLong(depth);
    if (budget == -1 && PyErr_Occurred()) {
        return NULL;
    }
    int before = thread_switch.recursion_budget;
    thread_switch.recursion_budget = (int)budget;
    return PyLong_FromLong(before);
}

/* call_below(callback, function, *args, **kwargs): one call under a callback of its own, without a Python frame. */
PyObject *
hook_call_below(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count < 2) {
        PyErr_SetString(PyExc_TypeError, "call_below() takes a callback and a function");
        return NULL;
    }
    if (PyFunction_Check(args[1]) && is_closed((PyCodeObject *)PyFunction_GET_CODE(args[1]))) {
        ThreadSwitch *thread = &thread_switch;
        bool outer = thread->now.live;
        thread->now.live = false;
        PyObject *result = PyObject_Vectorcall(args[1], args + 2, (size_t)(count - 2), names);
        thread->now.live = outer;
        return result;
    }
    PyObject *previous = hook_exchange_callback(module, args[0]);
    if (previous == NULL) {
        return NULL;
    }
    PyObject *result = NULL;
    PyObject *entered = hook_enter(module, NULL);
    if (entered != NULL) {
        Py_DECREF(entered);
        result = PyObject_Vectorcall(args[1], args + 2, (size_t)(count - 2), names);
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *left = entered != NULL ? hook_leave(module, NULL) : Py_NewRef(Py_None);
    PyObject *own = left != NULL ? hook_exchange_callback(module, previous) : NULL;
    Py_DECREF(previous);
    Py_XDECREF(own);
    if (own == NULL) { /* somebody left more often than they entered */
        Py_XDECREF(left);
        Py_XDECREF(result);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return NULL;
    }
    Py_DECREF(left);
    PyErr_Restore(type, value, traceback);
    return result;
}

PyObject *
hook_current_locals(PyObject *module, PyObject *noargs)
{
    _PyInterpreterFrame *frame = thread_switch.intercepted;
    if (frame == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "current_locals() is for the callback of an intercepted frame");
        return NULL;
    }
    return Py_NewRef(frame->f_locals != NULL ? frame->f_locals : Py_None);
}

/* --------------------------------------------------------------------------------------- sentinels */

static PyObject *
sentinel_repr(PyObject *self)
{
    return PyUnicode_FromString(self == run_sentinel ? "stator._hook.RUN" : "stator._hook.RUN_ALL");
}

static PyTypeObject SentinelType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "stator._hook.Sentinel",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_repr = sentinel_repr,
    .tp_doc = PyDoc_STR("An answer of the callback that is not the call's result."),
};

bool
interception_init(void)
{
    if (run_all_sentinel != NULL) {
        return true;    /* imported again: the process has one hook */
    }
    if (PyType_Ready(&SentinelType) < 0) {
        return false;
    }
    run_sentinel = PyObject_New(PyObject, &SentinelType);
    run_all_sentinel = run_sentinel != NULL ? PyObject_New(PyObject, &SentinelType) : NULL;
    return run_all_sentinel != NULL;
}
