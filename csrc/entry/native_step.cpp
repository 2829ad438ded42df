// See native_step.h.
#include "entry/native_step.h"

#include <algorithm>
#include <vector>

#include "entry/user_traceback.h"
#include "pending_error.h"

namespace stator {

namespace {

using Places = std::vector<Py_ssize_t>;  // numbers of live values

struct NativeStepObject {
  PyObject_HEAD
  Ref invoke;       // called with the callee and its arguments; none: the callee itself is called
  Ref callee;       // none: it is the first operand
  Ref names;        // of the last arguments, or none
  Ref exits;        // a tuple: the resume point behind the instruction; of a branch also that at its target
  Ref failure;      // the resume point that raises
  Places* operands;
  Places* kept;     // the values that live on
  Py_ssize_t most;  // the largest place
  bool is_branch, jumps_on, gives;  // gives: the result of the call lives on
};

NativeStepObject* step_of(PyObject* object) { return reinterpret_cast<NativeStepObject*>(object); }

Ref call_operands(const NativeStepObject* step, PyObject* values) {
  constexpr size_t small_size = 16;
  PyObject* small[small_size];
  std::vector<PyObject*> large;
  PyObject** stack = small;
  const size_t room = step->operands->size() + 2;
  if (room > small_size) {
    large.resize(room);
    stack = large.data();
  }
  size_t count = 1;  // the first place is for the callee of a vectorcall to use
  if (step->callee) stack[count++] = step->callee.get();
  for (Py_ssize_t place : *step->operands) stack[count++] = PyTuple_GET_ITEM(values, place);
  size_t positional = count - 1 - (step->names ? static_cast<size_t>(PyTuple_GET_SIZE(step->names.get())) : 0);
  PyObject* names = step->names.get();
  if (step->invoke) {
    return Ref::steal(PyObject_Vectorcall(step->invoke.get(), stack + 1, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, names));
  }
  PyObject* callee = stack[1];
  return Ref::steal(PyObject_Vectorcall(callee, stack + 2, (positional - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, names));
}

// The values that live on, and one more unless it is nullptr.
Ref values_after(const NativeStepObject* step, PyObject* values, PyObject* more) {
  Py_ssize_t count = 0;
  Ref made = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(step->kept->size()) + (more ? 1 : 0)));
  if (!made) return made;
  for (Py_ssize_t place : *step->kept) {
    PyTuple_SET_ITEM(made.get(), count++, new_reference(PyTuple_GET_ITEM(values, place)));
  }
  if (more) PyTuple_SET_ITEM(made.get(), count, new_reference(more));
  return made;
}

bool go_on_at(Continuation& at, PyObject* target, Ref values) {
  at.target = Ref::borrow(target);
  at.values = std::move(values);
  return static_cast<bool>(at.values);
}

// The exception that is set, as the interpreter of the resume point raises it: without frames of ours above it.
bool fail(Continuation& at, const NativeStepObject* step, PyObject* values) {
  PendingError error = PendingError::fetch();
  error.normalize();
  Ref traceback = past_own_frames(std::move(error.traceback));
  PyException_SetTraceback(error.value.get(), traceback ? traceback.get() : Py_None);
  return go_on_at(at, step->failure.get(), values_after(step, values, error.value.get()));
}

}  // namespace

bool run_native_step(Continuation& at) {
  Ref held = std::move(at.target), values = std::move(at.values);
  const NativeStepObject* step = step_of(held.get());
  if (PyTuple_GET_SIZE(values.get()) <= step->most) {
    PyErr_SetString(PyExc_TypeError, "a native step wants more values");
    return false;
  }
  if (step->is_branch) {
    int truth = PyObject_IsTrue(PyTuple_GET_ITEM(values.get(), step->operands->front()));
    if (truth < 0) return fail(at, step, values.get());
    PyObject* exit = PyTuple_GET_ITEM(step->exits.get(), (truth != 0) == step->jumps_on ? 1 : 0);
    return go_on_at(at, exit, values_after(step, values.get(), nullptr));
  }
  Ref result = call_operands(step, values.get());
  if (!result) return fail(at, step, values.get());
  Ref after = values_after(step, values.get(), step->gives ? result.get() : nullptr);
  return go_on_at(at, PyTuple_GET_ITEM(step->exits.get(), 0), std::move(after));
}

namespace {

bool parse_places(PyObject* tuple, Places* places, Py_ssize_t* most) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    Py_ssize_t place = PyNumber_AsSsize_t(PyTuple_GET_ITEM(tuple, i), PyExc_OverflowError);
    if (place < 0) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a place must not be negative");
      return false;
    }
    places->push_back(place);
    *most = std::max(*most, place);
  }
  return true;
}

Ref unless_none(PyObject* object) { return Ref::borrow(object == Py_None ? nullptr : object); }

PyObject* step_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"operands", "kept", "exits", "failure", "invoke", "callee", "names", "jumps_on", "gives",
                                   nullptr};
  PyObject *operands, *kept, *exits, *failure, *invoke = Py_None, *callee = Py_None, *names = Py_None, *jumps_on = Py_None;
  int gives = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!O|OOOOp:NativeStep", const_cast<char**>(keywords), &PyTuple_Type,
                                   &operands, &PyTuple_Type, &kept, &PyTuple_Type, &exits, &failure, &invoke, &callee,
                                   &names, &jumps_on, &gives)) {
    return nullptr;
  }
  Ref made = Ref::steal(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  NativeStepObject* self = step_of(made.get());
  self->operands = new Places();
  self->kept = new Places();
  self->most = -1;
  self->is_branch = jumps_on != Py_None;
  self->jumps_on = jumps_on == Py_True;
  self->gives = gives != 0;
  self->invoke = unless_none(invoke);
  self->callee = unless_none(callee);
  self->names = unless_none(names);
  self->exits = Ref::borrow(exits);
  self->failure = Ref::borrow(failure);
  if (!parse_places(operands, self->operands, &self->most) || !parse_places(kept, self->kept, &self->most)) return nullptr;
  Py_ssize_t named = self->names && PyTuple_Check(self->names.get()) ? PyTuple_GET_SIZE(self->names.get()) : 0;
  if ((self->names && !PyTuple_Check(self->names.get())) || PyTuple_GET_SIZE(exits) != (self->is_branch ? 2 : 1) ||
      PyTuple_GET_SIZE(operands) < named + (self->callee ? 0 : 1)) {
    PyErr_SetString(PyExc_TypeError, "a native step wants its operands, one exit or those of a branch, and a tuple of names");
    return nullptr;
  }
  return made.release();
}

int step_traverse(PyObject* object, visitproc visit, void* arg) {
  NativeStepObject* self = step_of(object);
  for (const Ref* each : {&self->invoke, &self->callee, &self->names, &self->exits, &self->failure}) Py_VISIT(each->get());
  return 0;
}

int step_clear(PyObject* object) {
  NativeStepObject* self = step_of(object);
  for (Ref* each : {&self->invoke, &self->callee, &self->names, &self->exits, &self->failure}) each->reset();
  return 0;
}

void step_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  step_clear(object);
  delete step_of(object)->operands;
  delete step_of(object)->kept;
  Py_TYPE(object)->tp_free(object);
}

PyObject* step_call(PyObject* object, PyObject* args, PyObject*) {
  Continuation at{Ref::borrow(object), Ref::borrow(args), false};
  return run_native_step(at) ? new_resume(std::move(at)).release() : nullptr;
}

PyTypeObject make_type() {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "stator._core.NativeStep";
  type.tp_basicsize = sizeof(NativeStepObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  type.tp_doc =
      "NativeStep(operands, kept, exits, failure, invoke=None, callee=None, names=None, jumps_on=None, "
      "gives=True): one call or branch on the values at these places, then Resume(exit, kept values and result)";
  type.tp_new = step_new;
  type.tp_call = step_call;
  type.tp_traverse = step_traverse;
  type.tp_clear = step_clear;
  type.tp_dealloc = step_dealloc;
  return type;
}

}  // namespace

PyTypeObject NativeStep_Type = make_type();

}  // namespace stator
