// Switches that make compiled functions run their originals: stator.disable's regions, set_stance("force_eager").
#pragma once

#include <Python.h>

namespace stator {

// How many reasons there are to look closer: open regions of all threads, and the process-wide switch.
extern int eager_reasons;

// Why calls on this thread must run eagerly, or nullptr; ask only while eager_reasons is not 0.
const char* reason_to_run_eagerly();

// Whether somebody steps through the program on this thread (sys.settrace), and must find its lines.  Not so a C tracer
// that counts lines, of which coverage's is one: a measured program is to run as it does otherwise.
bool is_stepped();

PyObject* enter_eager(PyObject*, PyObject*);
PyObject* leave_eager(PyObject*, PyObject*);
PyObject* eager_depth(PyObject*, PyObject*);
PyObject* force_eager(PyObject*, PyObject* flag);

}  // namespace stator
