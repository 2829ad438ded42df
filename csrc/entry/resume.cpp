// The Resume type: a target and the live values it goes on with.
#include "entry/resume.h"

#include <new>

namespace stator {

namespace {

Continuation& continuation_in(PyObject* object) { return reinterpret_cast<ResumeObject*>(object)->at; }

// Called at every graph break: as a vectorcall, which makes no tuple of the arguments.
PyObject* resume_vectorcall(PyObject*, PyObject* const* args, size_t flagged_count, PyObject* names) {
  Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
  if ((names && PyTuple_GET_SIZE(names) > 0) || count < 2 || count > 3 || !PyTuple_Check(args[1])) {
    PyErr_SetString(PyExc_TypeError, "Resume takes a target, a tuple of values and a flag, none of them by keyword");
    return nullptr;
  }
  int taken = count == 3 ? PyObject_IsTrue(args[2]) : 0;
  return taken < 0 ? nullptr : new_resume({Ref::borrow(args[0]), Ref::borrow(args[1]), taken != 0}).release();
}

void resume_dealloc(PyObject* object) {
  continuation_in(object).~Continuation();
  Py_TYPE(object)->tp_free(object);
}

PyObject* get_target(PyObject* object, void*) { return new_reference(continuation_in(object).target.get()); }

PyObject* get_values(PyObject* object, void*) {
  PyObject* values = continuation_in(object).values.get();
  return new_reference(values ? values : Py_None);
}

PyGetSetDef resume_getset[] = {
    {"target", get_target, nullptr, "what is called next", nullptr},
    {"values", get_values, nullptr, "the live values it is called with", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject make_type() {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "stator._core.Resume";
  type.tp_basicsize = sizeof(ResumeObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  type.tp_doc = "Resume(target, values, taken=False): go on with target(*values), or target([*values]), which may drop them";
  type.tp_vectorcall = resume_vectorcall;
  type.tp_dealloc = resume_dealloc;
  type.tp_getset = resume_getset;
  return type;
}

}  // namespace

PyTypeObject Resume_Type = make_type();

Ref new_resume(Continuation at) {
  Ref made = Ref::steal(reinterpret_cast<PyObject*>(PyObject_New(ResumeObject, &Resume_Type)));
  if (made) new (&continuation_in(made.get())) Continuation(std::move(at));
  return made;
}

Continuation continuation_of(Ref resume) {
  Continuation& at = continuation_in(resume.get());
  if (Py_REFCNT(resume.get()) == 1) return std::move(at);
  return {Ref::borrow(at.target.get()), Ref::borrow(at.values.get()), at.taken};
}

}  // namespace stator
