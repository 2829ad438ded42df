/* The extension module stator._hook: its functions and the sentinels RUN and RUN_ALL. */
#include "functions.h"
#include "interception.h"
#include "skips.h"

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
    {"close_code", hook_close_code, METH_O,
     DOC("close_code($module, code, /)", "call_below() runs functions of this code natively, with all that they call.")},
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
    {"mark_finalized", hook_mark_finalized, METH_O,
     DOC("mark_finalized($module, object, /)", "Let CPython never call its finalizer; False where it cannot be marked.")},
    {"decode", hook_decode, METH_VARARGS,
     DOC("decode($module, code, bytes, rows, meanings, cls, malformed, subscript, /)",
         "(instructions, index of each byte offset) of a code object; see stator/code/decode.py.")},
    {"with_handlers", hook_with_handlers, METH_VARARGS,
     DOC("with_handlers($module, instructions, handlers, /)", "Each instruction beside the handler of its opcode.")},
    {"definitions", hook_definitions, METH_O,
     DOC("definitions($module, modules, /)", "The first of these modules with each C definition, by its address.")},
    {"generator_read", hook_generator_read, METH_VARARGS,
     DOC("generator_read($module, generator, null, /)",
         "(state, code, globals, next unit, values, handled exception) of a generator that waits; else (state,).")},
    {"generator_write", hook_generator_write, METH_VARARGS,
     DOC("generator_write($module, generator, state, unit, values, handled, null, raised=(), /)",
         "Make a generator that is not on the C stack stand there: 0 not started, 1 suspended, 2 seen as running; "
         "`raised`: indices of values that are the code unit which raised the exception above.")},
    {"move_enumerate", hook_move_enumerate, METH_VARARGS,
     DOC("move_enumerate($module, enumerate, index, /)", "Its next item has this number.")},
    {"move_slice", hook_move_slice, METH_VARARGS,
     DOC("move_slice($module, islice, next, taken, /)",
         "It has taken so many items, and yields the one of number `next`; -1: it is at its end.")},
    {"end_iterator", hook_end_iterator, METH_O,
     DOC("end_iterator($module, iterator, /)", "An iterator of a sequence, a dict or a callable is at its end.")},
    {"walker_place", hook_walker_place, METH_O,
     DOC("walker_place($module, iterator, /)", "Position of a dict's iterator, items left, whether its dict has changed; () at its end.")},
    {"spoil_walker", hook_spoil_walker, METH_O,
     DOC("spoil_walker($module, iterator, /)", "A dict's iterator raises at each next item, as after a change of the dict.")},
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

PyMODINIT_FUNC
PyInit__hook(void)
{
    PyObject *module = interception_init() && skips_init() ? PyModule_Create(&module_definition) : NULL;
    if (module == NULL
        || PyModule_AddObjectRef(module, "RUN", run_sentinel) < 0
        || PyModule_AddObjectRef(module, "RUN_ALL", run_all_sentinel) < 0
#ifdef STATOR_TORCH_VERSION /* not where the hook is built alone */
        || PyModule_AddStringConstant(module, "TORCH_VERSION", STATOR_TORCH_VERSION) < 0
#endif
    ) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
