// The base of stator.source.Source: a step of provenance that is hashed and compared in C.
//
// In: a step's base and its detail (`_seal`), its family (`_family`).  Out: where the chain starts, how deep it is, and
// a hash and an equality that agree: steps are equal when their families, details and bases are.
#pragma once

#include <Python.h>

namespace stator {

extern PyTypeObject Provenance_Type;

}  // namespace stator
