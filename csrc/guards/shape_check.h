// Relations between sizes, strides and numbers, as a small stack program.
//
// In: the payload that stator/guards/lower.py makes of a ShapeCheck: operands (node, property, index), code
// (operation, argument) and constants.  Out: yes or no for the values that the nodes have now.
#pragma once

#include <Python.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <vector>

namespace stator {

// The numbers of stator.guards.shape_check.Property and .Code.
enum class Property : int { number = 0, size, stride, storage_offset, real, count };
enum class ShapeOp : int {
  load = 0, constant, add, mul, floor_div, mod, pow, min, max, eq, ne, lt, le, gt, ge, all, any, negate, true_div,
  to_float, trunc, floor, ceil, choose, square_root, absolute, round, count
};

class ShapeCheck {
 public:
  // False with an exception set when the payload is malformed.
  bool parse(PyObject* payload, Py_ssize_t node_count);
  // `slots` holds the values of the nodes; what cannot be read or computed does not hold.
  bool matches(PyObject* const* slots) const;
  std::vector<int> nodes() const;

 private:
  struct Operand { int node; Property property; int index; };
  struct Instruction { ShapeOp op; int argument; };
  struct Value {
    bool is_float;
    int64_t integer;
    double real;
    double as_real() const { return is_float ? real : static_cast<double>(integer); }
  };

  bool read(const Operand& operand, PyObject* const* slots, Value& value) const;
  using Stack = c10::SmallVector<Value, 16>;  // most programs are short: no allocation

  static bool apply(ShapeOp op, int argument, Stack& stack);
  static bool apply_two(ShapeOp op, const Value& left, const Value& right, Value& result);
  static bool apply_one(ShapeOp op, const Value& operand, Value& result);

  std::vector<Operand> operands_;
  std::vector<Instruction> code_;
  std::vector<Value> constants_;
};

}  // namespace stator
