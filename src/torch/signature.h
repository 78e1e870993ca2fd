// The schema of an operator, reduced to what the launch path needs per argument.
#pragma once

#include <ATen/core/function_schema.h>

#include <string>
#include <vector>

namespace opentrn::bridge {

enum class ArgumentKind : uint8_t {
  tensor,    // Tensor, Tensor?
  tensors,   // Tensor[], Tensor?[]
  number,    // Scalar
  numbers,   // Scalar[]
  integer,   // int, SymInt, memory_format
  boolean,
  real,      // float
  integers,  // int[], SymInt[], bool[]
  reals,     // float[]
  text,
  dtype,
  device,
  generator,
  ignored,   // layout, pin_memory
};

struct Parameter {
  std::string name;
  ArgumentKind kind = ArgumentKind::ignored;
  bool written = false;       // in-place self, out
  bool keyword_only = false;
  bool memory_format = false; // an `integer` that concerns strides only
};

struct Signature {
  std::vector<Parameter> parameters;
  int returns = 0;
  bool writes = false;        // some argument is written

  // False when an argument has a type that the launch path does not know; `problem` names it.
  static bool read(const c10::FunctionSchema& schema, Signature& signature, std::string& problem);
};

}  // namespace opentrn::bridge
