#include "exec/launch_values.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace opentrn::exec {
namespace {

Value convert(DType dtype, const ScalarValue& from) {
  Value value;
  const bool integer = from.kind == ScalarValue::Kind::integer;
  if (is_float(dtype)) {
    value.real = integer ? static_cast<double>(from.integer) : from.real;
    if (dtype == DType::f32) value.real = integer ? static_cast<float>(from.integer) : static_cast<float>(from.real);
    const double clamped = std::clamp(value.real, -9.2e18, 9.2e18);
    value.integer = value.real == value.real ? static_cast<int64_t>(clamped) : 0;
  } else {
    const double clamped = std::clamp(from.real, -9.2e18, 9.2e18);
    value.integer = integer ? from.integer : clamped == clamped ? static_cast<int64_t>(clamped) : 0;
    if (dtype == DType::i32) value.integer = static_cast<int32_t>(value.integer);
    value.real = static_cast<double>(value.integer);
  }
  return value;
}

}  // namespace

LaunchValues::LaunchValues(const isa::Program& program, std::span<const ScalarValue> scalars) {
  const size_t n = program.scalars.size();
  if (scalars.size() < n) {
    throw InternalError("program '" + program.name + "' takes " + std::to_string(n) + " scalars, the launch gave " +
                        std::to_string(scalars.size()));
  }
  if (n > kInline) {
    large_ = std::make_unique<Value[]>(n);
    data_ = large_.get();
  }
  for (size_t i = 0; i < n; ++i) data_[i] = convert(program.scalars[i].dtype, scalars[i]);
}

}  // namespace opentrn::exec
