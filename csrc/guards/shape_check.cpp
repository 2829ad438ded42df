// See shape_check.h.  The meaning of each operation is stator/guards/shape_check.py's.
#include "guards/shape_check.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cmath>

#include "guards/tensor_check.h"

namespace stator {

bool ShapeCheck::parse(PyObject* payload, Py_ssize_t node_count) {
  PyObject *operands, *code, *constants;
  if (!PyArg_ParseTuple(payload, "O!O!O!", &PyTuple_Type, &operands, &PyTuple_Type, &code, &PyTuple_Type,
                        &constants)) {
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operands); ++i) {
    int node, property, index;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(operands, i), "iii", &node, &property, &index)) return false;
    if (node < 0 || node >= node_count || property < 0 || property >= int(Property::count) || index < 0) {
      PyErr_SetString(PyExc_ValueError, "a shape operand is (node, property, index)");
      return false;
    }
    operands_.push_back({node, static_cast<Property>(property), index});
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); ++i) {
    PyObject* item = PyTuple_GET_ITEM(constants, i);
    bool is_float = PyFloat_CheckExact(item);
    constants_.push_back({is_float, is_float ? 0 : PyLong_AsLongLong(item), is_float ? PyFloat_AsDouble(item) : 0});
    if (PyErr_Occurred()) return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code); ++i) {
    int op, argument;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(code, i), "ii", &op, &argument)) return false;
    size_t limit = op == int(ShapeOp::load) ? operands_.size() : constants_.size();
    bool indexed = op == int(ShapeOp::load) || op == int(ShapeOp::constant);
    if (op < 0 || op >= int(ShapeOp::count) || argument < 0 || (indexed && size_t(argument) >= limit)) {
      PyErr_SetString(PyExc_ValueError, "a shape instruction is (operation, argument)");
      return false;
    }
    code_.push_back({static_cast<ShapeOp>(op), argument});
  }
  return true;
}

std::vector<int> ShapeCheck::nodes() const {
  std::vector<int> found;
  for (const Operand& operand : operands_) found.push_back(operand.node);
  return found;
}

bool ShapeCheck::read(const Operand& operand, PyObject* const* slots, Value& value) const {
  PyObject* object = slots[operand.node];
  value = {false, 0, 0};
  if (operand.property == Property::number) {
    if (!PyLong_CheckExact(object)) return false;
    int overflow = 0;
    value.integer = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow == 0;
  }
  if (operand.property == Property::real) {
    if (!PyFloat_CheckExact(object)) return false;
    value = {true, 0, PyFloat_AS_DOUBLE(object)};
    return value.real != 0 && std::isfinite(value.real);  // as is_ordinary of stator.guards.shape_check
  }
  if (!is_tensor(object)) return false;
  const c10::TensorImpl* impl = THPVariable_Unpack(object).unsafeGetTensorImpl();
  if (operand.property == Property::storage_offset) {
    value.integer = impl->storage_offset();
    return true;
  }
  c10::IntArrayRef extents = operand.property == Property::size ? impl->sizes() : impl->strides();
  if (size_t(operand.index) >= extents.size()) return false;
  value.integer = extents[operand.index];
  return true;
}

bool ShapeCheck::matches(PyObject* const* slots) const {
  Stack stack;
  for (const Instruction& instruction : code_) {
    if (instruction.op == ShapeOp::load) {
      Value value;
      if (!read(operands_[instruction.argument], slots, value)) return false;
      stack.push_back(value);
    } else if (instruction.op == ShapeOp::constant) {
      stack.push_back(constants_[instruction.argument]);
    } else if (!apply(instruction.op, instruction.argument, stack)) {
      return false;
    }
  }
  return stack.size() == 1 && !stack[0].is_float && stack[0].integer != 0;
}

// Operations on the top `argument` values; false when there is no result (overflow, division by zero).
bool ShapeCheck::apply(ShapeOp op, int argument, Stack& stack) {
  size_t wanted = op == ShapeOp::choose ? 3 : static_cast<size_t>(argument);
  if (wanted == 0 || stack.size() < wanted) return false;
  Value result = stack[stack.size() - wanted];
  if (op == ShapeOp::choose) {
    result = stack[stack.size() - (result.as_real() != 0 ? 2 : 1)];
  } else if (wanted == 1) {
    Value operand = result;
    if (!apply_one(op, operand, result)) return false;
  } else {
    for (size_t i = wanted - 1; i > 0; --i) {
      Value left = result;
      if (!apply_two(op, left, stack[stack.size() - i], result)) return false;
    }
  }
  stack.resize(stack.size() - wanted);
  stack.push_back(result);
  return true;
}

bool ShapeCheck::apply_one(ShapeOp op, const Value& operand, Value& result) {
  result = {false, 0, 0};
  switch (op) {
    case ShapeOp::negate:  // of a truth value
      result.integer = operand.as_real() == 0;
      return true;
    case ShapeOp::all:
    case ShapeOp::any:
    case ShapeOp::add:
    case ShapeOp::mul:
    case ShapeOp::min:
    case ShapeOp::max:
      result = operand;
      return true;
    case ShapeOp::to_float:
      result = {true, 0, operand.as_real()};
      return true;
    case ShapeOp::square_root:
      result = {true, 0, std::sqrt(operand.as_real())};
      return operand.as_real() >= 0;
    case ShapeOp::absolute:
      if (operand.integer == INT64_MIN) return false;
      result = {operand.is_float, std::abs(operand.integer), std::fabs(operand.real)};
      return true;
    default:
      break;
  }
  double real = operand.as_real();
  if (op == ShapeOp::trunc) real = std::trunc(real);
  if (op == ShapeOp::floor) real = std::floor(real);
  if (op == ShapeOp::ceil) real = std::ceil(real);
  if (op == ShapeOp::round) real = std::nearbyint(real);  // half to even, as Python's
  if (!operand.is_float) {
    result = operand;
    return true;
  }
  result.integer = static_cast<int64_t>(real);
  return std::fabs(real) < 9e18;
}

namespace {

bool floor_divide(int64_t left, int64_t right, int64_t& quotient, int64_t& remainder) {
  if (right == 0 || (right == -1 && left == INT64_MIN)) return false;
  quotient = left / right;
  remainder = left % right;
  if (remainder != 0 && (remainder < 0) != (right < 0)) {
    quotient -= 1;
    remainder += right;
  }
  return true;
}

bool power(int64_t base, int64_t exponent, int64_t& result) {
  if (exponent < 0) return false;
  result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return false;
    if (result == 0 || (result == 1 && base == 1)) break;
  }
  return true;
}

}  // namespace

bool ShapeCheck::apply_two(ShapeOp op, const Value& left, const Value& right, Value& result) {
  bool real = left.is_float || right.is_float;
  double x = left.as_real(), y = right.as_real();
  int64_t a = left.integer, b = right.integer;
  result = {false, 0, 0};
  int64_t unused;
  switch (op) {
    case ShapeOp::eq: result.integer = real ? x == y : a == b; return true;
    case ShapeOp::ne: result.integer = real ? x != y : a != b; return true;
    case ShapeOp::lt: result.integer = real ? x < y : a < b; return true;
    case ShapeOp::le: result.integer = real ? x <= y : a <= b; return true;
    case ShapeOp::gt: result.integer = real ? x > y : a > b; return true;
    case ShapeOp::ge: result.integer = real ? x >= y : a >= b; return true;
    case ShapeOp::all: result.integer = x != 0 && y != 0; return true;
    case ShapeOp::any: result.integer = x != 0 || y != 0; return true;
    case ShapeOp::true_div: result = {true, 0, x / y}; return y != 0;
    case ShapeOp::min: result = (real ? x <= y : a <= b) ? left : right; return true;
    case ShapeOp::max: result = (real ? x >= y : a >= b) ? left : right; return true;
    default: break;
  }
  if (real) {
    result.is_float = true;
    if (op == ShapeOp::add) result.real = x + y;
    else if (op == ShapeOp::mul) result.real = x * y;
    else if (op == ShapeOp::pow) result.real = std::pow(x, y);
    else return false;
    return true;
  }
  switch (op) {
    case ShapeOp::add: return !__builtin_add_overflow(a, b, &result.integer);
    case ShapeOp::mul: return !__builtin_mul_overflow(a, b, &result.integer);
    case ShapeOp::floor_div: return floor_divide(a, b, result.integer, unused);
    case ShapeOp::mod: return floor_divide(a, b, unused, result.integer);
    case ShapeOp::pow: return power(a, b, result.integer);
    default: return false;
  }
}

}  // namespace stator
