#include <array>

#include "graph/graph.h"

namespace opentrn::graph {

std::string_view name_of(Op op) {
  static constexpr std::array kNames = {
      "parameter", "scalar", "constant", "iota",
      "neg", "abs", "sign", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt",
      "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
      "erf", "erfc", "erfinv", "lgamma", "digamma", "logistic", "floor", "ceil", "round_nearest_even", "trunc",
      "logical_not", "bitwise_not", "is_nan", "is_inf", "is_finite", "convert", "bitcast",
      "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power",
      "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "copysign", "nextafter",
      "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
      "shift_left", "shift_right_arithmetic", "shift_right_logical",
      "compare_eq", "compare_ne", "compare_lt", "compare_le", "compare_gt", "compare_ge",
      "select", "clamp",
      "broadcast_in_dim", "reshape", "transpose", "slice", "reverse", "pad", "concatenate",
      "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "argmax", "argmin",
      "dot_general",
      "gather", "gather_elements", "gather_nd", "scatter", "scatter_elements", "scatter_nd",
      "sort", "top_k", "cumulative_sum", "cumulative_prod", "cumulative_max", "cumulative_min",
      "random_bits", "rounded",
  };
  static_assert(kNames.size() == static_cast<size_t>(Op::rounded) + 1);
  return kNames[static_cast<size_t>(op)];
}

int64_t elements(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

std::vector<int64_t> row_major(const Shape& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i] > 1 ? shape[i] : 1;
  }
  return strides;
}

}  // namespace opentrn::graph
