// The launch values of a program's scalars, converted to the types of its arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "exec/interpreter.h"
#include "isa/program.h"

namespace opentrn::exec {

// A launch scalar after conversion to its argument's dtype.
struct Value {
  double real = 0;
  int64_t integer = 0;
};

class LaunchValues {
 public:
  // Throws InternalError when the launch gives fewer than the program takes.
  LaunchValues(const isa::Program& program, std::span<const ScalarValue> scalars);
  LaunchValues(const LaunchValues&) = delete;
  LaunchValues& operator=(const LaunchValues&) = delete;
  const Value* data() const { return data_; }

 private:
  static constexpr size_t kInline = 16;
  Value inline_[kInline];
  std::unique_ptr<Value[]> large_;
  Value* data_ = inline_;
};

}  // namespace opentrn::exec
