// The tensor IR: SSA values with static shapes over a small closed operation set in the spirit of StableHLO.
// A graph is what one eager operator, one FX graph or one hand-written kernel becomes before it is compiled.
// Values are row-major; layouts exist only at the graph's border (parameters and results carry strides).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace opentrn::graph {

using Shape = std::vector<int64_t>;
int64_t elements(const Shape& shape);

struct Type {
  DType dtype = DType::f32;
  Shape shape;
  bool operator==(const Type&) const = default;
};

enum class Op : uint8_t {
  // Sources
  parameter,   // the index-th tensor argument; its memory layout is Graph::parameters[index]
  scalar,      // 0-d launch argument: Graph::scalars[index]
  constant,    // 0-d: `real` or `integer` by dtype
  iota,        // counts along `dims[0]`
  // Element-wise, one operand
  neg, abs, sign, exp, exp2, expm1, log, log2, log10, log1p, sqrt, rsqrt, cbrt, reciprocal,
  sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh,
  erf, erfc, erfinv, lgamma, digamma, logistic, floor, ceil, round_nearest_even, trunc,
  logical_not, bitwise_not, is_nan, is_inf, is_finite,
  convert,     // to the node's dtype (C++ conversion; float -> bool is x != 0)
  bitcast,     // same size
  // Element-wise, two operands of the same shape and dtype
  add, subtract, multiply, divide, floor_divide, remainder /* sign of the divisor */, fmod, power,
  maximum, minimum /* NaN if either is */, fmax, fmin, atan2, hypot, copysign, nextafter,
  logical_and, logical_or, logical_xor, bitwise_and, bitwise_or, bitwise_xor,
  shift_left, shift_right_arithmetic, shift_right_logical,
  compare_eq, compare_ne, compare_lt, compare_le, compare_gt, compare_ge,  // result: boolean
  // Element-wise, three operands
  select,      // pred ? a : b
  clamp,       // min(max(x, lo), hi); operands x, lo, hi
  // Shape
  broadcast_in_dim,  // dims[i] = result dimension of operand dimension i
  reshape,
  transpose,         // dims = permutation: result.shape[i] = operand.shape[dims[i]]
  slice,             // starts, limits, strides
  reverse,           // dims
  pad,               // operands x, value (0-d); low, high, interior  (starts, limits, strides)
  concatenate,       // along dims[0]
  // Reductions over dims (removed from the shape)
  reduce_sum, reduce_prod, reduce_max, reduce_min, reduce_and, reduce_or,
  argmax, argmin,    // over dims[0]; result i64; the first of equal values; NaN wins
  // Contractions
  dot_general,       // operands lhs, rhs; result [batch..., lhs free..., rhs free...]; f32 accumulation
  // Indexed
  gather,            // operand x, indices; result = x with dimension dims[0] replaced by the shape of indices:
                     // result[a..., i..., b...] = x[a..., indices[i...], b...]    (take / index_select / embedding)
  gather_elements,   // result[..., i, ...] = x[..., indices[..., i, ...], ...] along dims[0]   (torch.gather)
  gather_nd,         // operand x, indices [..., k]: result = x[indices[..., 0], ..., indices[..., k-1], ...]
  scatter,           // operands x, indices, updates: x with rows of dims[0] set (dual of gather), see `combine`
  scatter_elements,  // dual of gather_elements
  scatter_nd,        // dual of gather_nd
  // Order and scans
  sort,              // along dims[0]; stable; `integer` bit 0: descending; results: values (index 0), positions i64 (1)
  top_k,             // last dimension; `integer` = k; results values, positions
  cumulative_sum, cumulative_prod, cumulative_max, cumulative_min,  // along dims[0]
  // Random: Philox4x32-10, key = operand `seed` (i64: low word, high word). The element at row-major position p is number
  // n = operand `offset` (i64) + p of the stream: word n % 4 of the block whose 128-bit counter is n / 4.
  random_bits,       // u32 per element
  // Optimisation barrier: keeps the operand's value rounded to its dtype (never fused away)
  rounded,
};

enum class Combine : uint8_t { set, add, multiply, maximum, minimum };

using ValueId = int32_t;

struct Node {
  Op op = Op::parameter;
  std::vector<ValueId> operands;
  Type type;
  std::vector<int64_t> dims;                    // see Op
  std::vector<int64_t> starts, limits, strides; // slice, pad
  std::vector<int64_t> lhs_batch, rhs_batch, lhs_contract, rhs_contract;  // dot_general
  int64_t index = 0;    // parameter, scalar: position; second results of sort/top_k: 1 with the first as operand 0
  double real = 0;
  int64_t integer = 0;
  Combine combine = Combine::set;
  int32_t origin = -1;  // not part of equality or of the key
};

// Layout of a tensor in memory at the graph's border, in elements; strides may be 0, negative is not possible.
struct Layout {
  std::vector<int64_t> strides;
  int64_t offset = 0;  // from the address given at launch
  bool operator==(const Layout&) const = default;
};

struct Parameter {
  std::string name;
  Type type;
  Layout layout;
};

struct ScalarParameter {
  std::string name;
  DType dtype = DType::f32;  // f32, f64, i32, i64 (bool arrives as i32)
};

struct Result {
  ValueId value = -1;
  Layout layout;
  int32_t alias = -1;  // index of the parameter whose memory (same address, same layout) it overwrites
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;  // topological order; a node's id is its index
  std::vector<Parameter> parameters;
  std::vector<ScalarParameter> scalars;
  std::vector<Result> results;

  const Type& type(ValueId id) const { return nodes[id].type; }
};

std::vector<int64_t> row_major(const Shape& shape);
std::string_view name_of(Op op);
// Throws UserError naming the node and the rule it breaks.
void verify(const Graph& graph);
// Text form; parse(print(g)) == g apart from origins.
std::string print(const Graph& graph);
Graph parse(std::string_view text);

}  // namespace opentrn::graph
