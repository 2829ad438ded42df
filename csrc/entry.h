// The entry object: what `stator.compile(fn)` returns, and what every call goes through.
#pragma once

#include <Python.h>

namespace stator {

extern PyTypeObject CompiledFunction_Type;
extern PyTypeObject Entry_Type;
extern PyTypeObject Eager_Type;
// A residual that means: this call runs the function as it is.
extern PyObject* eager_sentinel;

}  // namespace stator
