/* stator._hook: hand Python frames to a callback before CPython evaluates them (PEP 523).
 *
 * In:  set_callback(cb), then enter() ... leave() around a call.
 * Out: every Python function called in between, on this thread, becomes cb(func, args, closure); what cb
 *      returns is the call's result, RUN and RUN_ALL excepted, which mean "evaluate it after all".
 *
 * docs/hook.md says what is guaranteed. The state is per process (callback, skips) and per thread (switch);
 * the GIL protects the first.
 */
#include "hook_compat.h"
#include "hook_objects.h"

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
static PyObject *run_sentinel;
static PyObject *run_all_sentinel;
static PyObject *skip_prefixes;         /* list of str */
static Py_ssize_t skip_index = -1;      /* our slot in every code object's co_extra */
static uintptr_t skip_generation = 1;   /* grows with skip_prefixes: older decisions are void */
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

/* ------------------------------------------------------------------------------------------- skips */

/* A decision in co_extra is generation << 2 | verdict; a slot never written reads as 0. */
enum { VERDICT_CATCH = 1, VERDICT_SKIP = 2, VERDICT_SKIP_ALWAYS = 3, VERDICT_MASK = 3 };

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
    uintptr_t decision = skip_generation << 2 | (skip ? VERDICT_SKIP : VERDICT_CATCH);
    code_set_extra((PyObject *)code, skip_index, (void *)decision);
    PyErr_Restore(type, value, traceback);
    return skip;
}

static inline bool
is_skipped(PyCodeObject *code)
{
    void *extra = NULL;
    code_get_extra((PyObject *)code, skip_index, &extra);
    uintptr_t decision = (uintptr_t)extra;
    if (decision >> 2 == skip_generation) {
        return (decision & VERDICT_MASK) != VERDICT_CATCH;
    }
    return (decision & VERDICT_MASK) == VERDICT_SKIP_ALWAYS || decide_skip(code);
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
        PyTuple_SET_ITEM(args, i, Py_NewRef(frame->localsplus[i]));
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

static PyObject *
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

static PyObject *
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

static PyObject *
hook_pause(PyObject *module, PyObject *noargs)
{
    PyObject *token = thread_switch.now.live ? Py_True : Py_False;
    thread_switch.now.live = false;
    return Py_NewRef(token);
}

static PyObject *
hook_resume(PyObject *module, PyObject *token)
{
    if (token != Py_True && token != Py_False) {
        PyErr_SetString(PyExc_TypeError, "resume() takes the token that pause() returned");
        return NULL;
    }
    thread_switch.now.live = token == Py_True;
    Py_RETURN_NONE;
}

static PyObject *
hook_active(PyObject *module, PyObject *noargs)
{
    return PyBool_FromLong(thread_switch.now.live);
}

/* --------------------------------------------------------------------------------------- functions */

static PyObject *
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

static PyObject *
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
static PyObject *
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
static PyObject *
hook_call_below(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count < 2) {
        PyErr_SetString(PyExc_TypeError, "call_below() takes a callback and a function");
        return NULL;
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

static PyObject *
hook_skip_code(PyObject *module, PyObject *code)
{
    if (!PyCode_Check(code)) {
        PyErr_SetString(PyExc_TypeError, "skip_code() takes a code object");
        return NULL;
    }
    if (code_set_extra(code, skip_index, (void *)(uintptr_t)VERDICT_SKIP_ALWAYS) < 0) {
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

static PyObject *
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

static PyObject *
hook_current_locals(PyObject *module, PyObject *noargs)
{
    _PyInterpreterFrame *frame = thread_switch.intercepted;
    if (frame == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "current_locals() is for the callback of an intercepted frame");
        return NULL;
    }
    return Py_NewRef(frame->f_locals != NULL ? frame->f_locals : Py_None);
}

/* ------------------------------------------------------------------------------------------ module */

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

#define DOC(signature, text) PyDoc_STR(signature "\n--\n\n" text)

static PyMethodDef methods[] = {
    {"set_callback", hook_set_callback, METH_O,
     DOC("set_callback($module, callback, /)", "Call callback(func, args, closure) for intercepted frames.")},
    {"exchange_callback", hook_exchange_callback, METH_O,
     DOC("exchange_callback($module, callback, /)",
         "This thread's own callback, asked instead of the process's; returns the one before.")},
    {"call_below", (PyCFunction)(void (*)(void))hook_call_below, METH_FASTCALL | METH_KEYWORDS,
     DOC("call_below($module, callback, function, /, *args, **kwargs)",
         "Call the function with its frames, on this thread, intercepted by a callback of their own.")},
    {"set_recursion_budget", hook_set_recursion_budget, METH_O,
     DOC("set_recursion_budget($module, depth, /)",
         "How deep C code below enter() may recurse on this thread (0: no limit of its own); returns the one before.")},
    {"enter", hook_enter, METH_NOARGS, DOC("enter($module, /)", "Intercept this thread's frames. Nests.")},
    {"leave", hook_leave, METH_NOARGS, DOC("leave($module, /)", "Undo the last enter() of this thread.")},
    {"pause", hook_pause, METH_NOARGS,
     DOC("pause($module, /)", "Stop intercepting on this thread; give the token to resume().")},
    {"resume", hook_resume, METH_O, DOC("resume($module, token, /)", "Restore what pause() changed.")},
    {"active", hook_active, METH_NOARGS, DOC("active($module, /)", "Whether calls are intercepted now.")},
    {"skip_code", hook_skip_code, METH_O,
     DOC("skip_code($module, code, /)", "Always run this code, and all that it calls, natively.")},
    {"skip_prefix", hook_skip_prefix, METH_O,
     DOC("skip_prefix($module, prefix, /)", "As skip_code(), for all code of files whose name starts so.")},
    {"current_locals", hook_current_locals, METH_NOARGS,
     DOC("current_locals($module, /)", "The namespace of the frame asked about; None in a function.")},
    {"set_lasti", hook_set_lasti, METH_VARARGS,
     DOC("set_lasti($module, frame, offset, /)", "Let a frame of new_frame() stand at that byte of its code.")},
    {"new_frame", hook_new_frame, METH_VARARGS,
     DOC("new_frame($module, code, globals, locals=None, /)", "A frame object for types.TracebackType.")},
    {"tuple_set_item", hook_tuple_set_item, METH_VARARGS,
     DOC("tuple_set_item($module, tuple, index, value, /)", "Overwrite a slot of a tuple nobody else sees.")},
    {"refcount", hook_refcount, METH_O,
     DOC("refcount($module, object, /)", "sys.getrefcount, the argument's own reference included.")},
    {"generator_read", hook_generator_read, METH_VARARGS,
     DOC("generator_read($module, generator, null, /)",
         "(state, code, globals, next unit, values, handled exception) of a generator that waits; else (state,).")},
    {"generator_write", hook_generator_write, METH_VARARGS,
     DOC("generator_write($module, generator, state, unit, values, handled, null, /)",
         "Make a generator that is not on the C stack stand there: 0 not started, 1 suspended, 2 seen as running.")},
    {"move_enumerate", hook_move_enumerate, METH_VARARGS,
     DOC("move_enumerate($module, enumerate, index, /)", "Its next item has this number.")},
    {"move_slice", hook_move_slice, METH_VARARGS,
     DOC("move_slice($module, islice, next, taken, /)",
         "It has taken so many items, and yields the one of number `next`; -1: it is at its end.")},
    {"end_iterator", hook_end_iterator, METH_O,
     DOC("end_iterator($module, iterator, /)", "An iterator of a sequence or of a callable is at its end.")},
    {"quietly", (PyCFunction)(void (*)(void))hook_quietly, METH_FASTCALL,
     DOC("quietly($module, function, /, *args)", "Call a C function; nobody hears its warnings, and no state of theirs moves.")},
    {"deque_stands", hook_deque_stands, METH_O,
     DOC("deque_stands($module, iterator, /)", "Whether the deque of an iterator is as it was when that was made.")},
    {"pairwise_parts", hook_pairwise_parts, METH_O,
     DOC("pairwise_parts($module, pairwise, /)",
         "Its iterator, and the item that begins the next pair where it has taken one; () at its end.")},
    {"set_pairwise", hook_set_pairwise, METH_VARARGS,
     DOC("set_pairwise($module, pairwise, iterator=NULL, old=NULL, /)", "Give it parts as pairwise_parts() tells them.")},
    {"is_exported", hook_is_exported, METH_O,
     DOC("is_exported($module, buffer, /)", "Whether a bytearray or an array may not change its size just now.")},
    {"memory_iterator_parts", hook_memory_iterator_parts, METH_O,
     DOC("memory_iterator_parts($module, iterator, /)", "The memoryview and the next index; () at its end.")},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "stator._hook",
    .m_doc = PyDoc_STR("Hand Python frames to a callback before CPython evaluates them (PEP 523)."),
    .m_size = -1,
    .m_methods = methods,
};

static int
make_state(void)
{
    if (skip_prefixes != NULL) {
        return 0;       /* imported again: the process has one hook */
    }
    if (PyType_Ready(&SentinelType) < 0) {
        return -1;
    }
    run_sentinel = PyObject_New(PyObject, &SentinelType);
    run_all_sentinel = PyObject_New(PyObject, &SentinelType);
    skip_index = code_extra_index(NULL);
    if (skip_index < 0) {
        PyErr_SetString(PyExc_RuntimeError, "stator._hook: no co_extra slot is left in this interpreter");
        return -1;
    }
    skip_prefixes = PyList_New(0);
    return run_sentinel != NULL && run_all_sentinel != NULL && skip_prefixes != NULL ? 0 : -1;
}

PyMODINIT_FUNC
PyInit__hook(void)
{
    PyObject *module = make_state() < 0 ? NULL : PyModule_Create(&module_definition);
    if (module == NULL
        || PyModule_AddObjectRef(module, "RUN", run_sentinel) < 0
        || PyModule_AddObjectRef(module, "RUN_ALL", run_all_sentinel) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
