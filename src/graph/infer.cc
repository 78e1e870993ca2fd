#include "graph/infer.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace opentrn::graph {
namespace {

// Checks of one node; every message begins with the operation.
class Rules {
 public:
  Rules(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}
  Type infer();

 private:
  template <typename... Args>
  void require(bool ok, fmt::format_string<Args...> text, Args&&... args) const {
    if (!ok) throw UserError(fmt::format("{}: {}", name_of(node_.op), fmt::format(text, std::forward<Args>(args)...)));
  }
  const Type& operand(size_t i) const { return graph_.type(node_.operands[i]); }
  void count(size_t n) const { require(node_.operands.size() == n, "takes {} operands, got {}", n, node_.operands.size()); }
  void axis(int64_t dim, size_t rank) const {
    require(dim >= 0 && dim < static_cast<int64_t>(rank), "dimension {} is outside a shape of {} dimensions", dim, rank);
  }
  int64_t dim(size_t rank) const {
    require(node_.dims.size() == 1, "needs one dimension in dims, got {}", node_.dims.size());
    axis(node_.dims[0], rank);
    return node_.dims[0];
  }
  void unique_dims(const std::vector<int64_t>& dims, size_t rank) const {
    std::vector<bool> seen(rank);
    for (int64_t d : dims) {
      axis(d, rank);
      require(!seen[d], "dimension {} is named twice", d);
      seen[d] = true;
    }
  }
  void same_types(size_t first = 0) const {
    for (size_t i = first + 1; i < node_.operands.size(); ++i)
      require(operand(i) == operand(first), "operands must have the same type, got {} and {}",
              to_string(operand(first)), to_string(operand(i)));
  }
  void integer_indices(const Type& type) const {
    require(is_integer(type.dtype), "indices must be integers, got {}", name_of(type.dtype));
  }
  static Type with(const Type& type, DType dtype) { return {dtype, type.shape}; }

  Type source() const;
  Type unary() const;
  Type binary() const;
  Type broadcast_in_dim() const;
  Type reshape() const;
  Type transpose() const;
  Type slice() const;
  Type pad() const;
  Type concatenate() const;
  Type reduce() const;
  Type dot_general() const;
  Type gather() const;
  Type scatter() const;
  Type ordered() const;

  const Graph& graph_;
  const Node& node_;
};

Type Rules::source() const {
  count(0);
  for (int64_t size : node_.type.shape) require(size >= 0, "size {} of {} is negative", size, to_string(node_.type));
  if (node_.op == Op::parameter) {
    require(node_.index >= 0 && node_.index < static_cast<int64_t>(graph_.parameters.size()),
            "index {} of {} parameters", node_.index, graph_.parameters.size());
    const Parameter& parameter = graph_.parameters[node_.index];
    require(parameter.layout.strides.size() == parameter.type.shape.size(), "'{}' has {} strides for {}",
            parameter.name, parameter.layout.strides.size(), to_string(parameter.type));
    for (int64_t stride : parameter.layout.strides) require(stride >= 0, "'{}' has stride {}", parameter.name, stride);
    require(parameter.layout.offset >= 0, "'{}' has offset {}", parameter.name, parameter.layout.offset);
    return parameter.type;
  }
  if (node_.op == Op::scalar) {
    require(node_.index >= 0 && node_.index < static_cast<int64_t>(graph_.scalars.size()), "index {} of {} scalars",
            node_.index, graph_.scalars.size());
    DType dtype = graph_.scalars[node_.index].dtype;
    require(dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i32 || dtype == DType::i64,
            "a launch argument is f32, f64, i32 or i64, not {}", name_of(dtype));
    return {dtype, {}};
  }
  if (node_.op == Op::constant) require(node_.type.shape.empty(), "is 0-d, not {}", to_string(node_.type));
  if (node_.op == Op::iota) {
    require(!is_complex(node_.type.dtype) && node_.type.dtype != DType::boolean, "cannot count in {}",
            name_of(node_.type.dtype));
    dim(node_.type.shape.size());
  }
  return node_.type;
}

Type Rules::unary() const {
  count(1);
  const Type& x = operand(0);
  switch (node_.op) {
    case Op::logical_not:
      require(x.dtype == DType::boolean, "needs bool, got {}; convert first", name_of(x.dtype));
      return x;
    case Op::bitwise_not:
      require(is_integer(x.dtype) || x.dtype == DType::boolean, "needs integers or bool, got {}", name_of(x.dtype));
      return x;
    case Op::is_nan: case Op::is_inf: case Op::is_finite:
      return with(x, DType::boolean);
    case Op::convert:
      return with(x, node_.type.dtype);
    case Op::bitcast:
      require(size_of(x.dtype) == size_of(node_.type.dtype), "{} and {} differ in size", name_of(x.dtype),
              name_of(node_.type.dtype));
      return with(x, node_.type.dtype);
    case Op::neg: case Op::abs: case Op::sign:
      require(x.dtype != DType::boolean, "has no meaning for bool");
      return x;
    case Op::rounded:
      return x;
    default:
      require(is_float(x.dtype) || is_complex(x.dtype), "needs floating point, got {}; convert first", name_of(x.dtype));
      return x;
  }
}

Type Rules::binary() const {
  count(2);
  same_types();
  const Type& a = operand(0);
  switch (node_.op) {
    case Op::compare_eq: case Op::compare_ne: case Op::compare_lt:
    case Op::compare_le: case Op::compare_gt: case Op::compare_ge:
      return with(a, DType::boolean);
    case Op::logical_and: case Op::logical_or: case Op::logical_xor:
      require(a.dtype == DType::boolean, "needs bool, got {}; convert first", name_of(a.dtype));
      return a;
    case Op::bitwise_and: case Op::bitwise_or: case Op::bitwise_xor:
      require(is_integer(a.dtype) || a.dtype == DType::boolean, "needs integers or bool, got {}", name_of(a.dtype));
      return a;
    case Op::shift_left: case Op::shift_right_arithmetic: case Op::shift_right_logical:
      require(is_integer(a.dtype), "needs integers, got {}", name_of(a.dtype));
      return a;
    case Op::atan2: case Op::hypot: case Op::copysign: case Op::nextafter:
      require(is_float(a.dtype), "needs floating point, got {}", name_of(a.dtype));
      return a;
    case Op::maximum: case Op::minimum: case Op::fmax: case Op::fmin:
      return a;
    default:
      require(a.dtype != DType::boolean, "has no meaning for bool; convert or use logical operations");
      return a;
  }
}

Type Rules::broadcast_in_dim() const {
  count(1);
  const Shape& from = operand(0).shape;
  const Shape& to = node_.type.shape;
  require(node_.dims.size() == from.size(), "{} dims for an operand of {} dimensions", node_.dims.size(), from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    axis(node_.dims[i], to.size());
    require(i == 0 || node_.dims[i] > node_.dims[i - 1], "dims [{}] must increase", fmt::join(node_.dims, ","));
    require(from[i] == 1 || from[i] == to[node_.dims[i]], "operand size {} does not fit result size {} of dimension {}",
            from[i], to[node_.dims[i]], node_.dims[i]);
  }
  return {operand(0).dtype, to};
}

Type Rules::reshape() const {
  count(1);
  require(elements(operand(0).shape) == elements(node_.type.shape), "{} elements of {} cannot become [{}]",
          elements(operand(0).shape), to_string(operand(0)), fmt::join(node_.type.shape, ","));
  return {operand(0).dtype, node_.type.shape};
}

Type Rules::transpose() const {
  count(1);
  const Type& x = operand(0);
  require(node_.dims.size() == x.shape.size(), "permutation [{}] of {}", fmt::join(node_.dims, ","), to_string(x));
  unique_dims(node_.dims, x.shape.size());
  Type result{x.dtype, {}};
  for (int64_t d : node_.dims) result.shape.push_back(x.shape[d]);
  return result;
}

Type Rules::slice() const {
  count(1);
  const Type& x = operand(0);
  const size_t rank = x.shape.size();
  require(node_.starts.size() == rank && node_.limits.size() == rank && node_.strides.size() == rank,
          "needs {} starts, limits and strides", rank);
  Type result{x.dtype, {}};
  for (size_t i = 0; i < rank; ++i) {
    int64_t start = node_.starts[i], limit = node_.limits[i], stride = node_.strides[i];
    require(0 <= start && start <= limit && limit <= x.shape[i] && stride >= 1,
            "{}:{}:{} is outside dimension {} of {}", start, limit, stride, i, to_string(x));
    result.shape.push_back((limit - start + stride - 1) / stride);
  }
  return result;
}

Type Rules::pad() const {
  count(2);
  const Type& x = operand(0);
  const size_t rank = x.shape.size();
  require(operand(1) == Type(x.dtype, {}), "the value must be {}[], got {}", name_of(x.dtype), to_string(operand(1)));
  require(node_.starts.size() == rank && node_.limits.size() == rank && node_.strides.size() == rank,
          "needs {} low, high and interior amounts", rank);
  Type result{x.dtype, {}};
  for (size_t i = 0; i < rank; ++i) {
    int64_t low = node_.starts[i], high = node_.limits[i], interior = node_.strides[i];
    require(low >= 0 && high >= 0 && interior >= 0, "amounts {}, {}, {} of dimension {} must not be negative", low,
            high, interior, i);
    result.shape.push_back(low + high + x.shape[i] + std::max<int64_t>(x.shape[i] - 1, 0) * interior);
  }
  return result;
}

Type Rules::concatenate() const {
  require(!node_.operands.empty(), "needs an operand");
  Type result = operand(0);
  int64_t d = dim(result.shape.size());
  result.shape[d] = 0;
  for (size_t i = 0; i < node_.operands.size(); ++i) {
    Type other = operand(i);
    require(other.shape.size() == result.shape.size(), "{} beside {}", to_string(other), to_string(operand(0)));
    result.shape[d] += other.shape[d];
    other.shape[d] = operand(0).shape[d];
    require(other == operand(0), "{} beside {} along dimension {}", to_string(operand(i)), to_string(operand(0)), d);
  }
  return result;
}

Type Rules::reduce() const {
  count(1);
  const Type& x = operand(0);
  if (node_.op == Op::argmax || node_.op == Op::argmin) {
    int64_t d = dim(x.shape.size());
    require(x.shape[d] > 0, "dimension {} of {} is empty", d, to_string(x));
  }
  unique_dims(node_.dims, x.shape.size());
  if (node_.op == Op::reduce_and || node_.op == Op::reduce_or)
    require(x.dtype == DType::boolean, "needs bool, got {}", name_of(x.dtype));
  if (node_.op == Op::reduce_sum || node_.op == Op::reduce_prod)
    require(x.dtype != DType::boolean, "has no meaning for bool; convert first");
  const bool arg = node_.op == Op::argmax || node_.op == Op::argmin;
  Type result{arg ? DType::i64 : x.dtype, {}};
  for (size_t i = 0; i < x.shape.size(); ++i) {
    bool reduced = std::find(node_.dims.begin(), node_.dims.end(), static_cast<int64_t>(i)) != node_.dims.end();
    if (!reduced) result.shape.push_back(x.shape[i]);
    if (reduced && (node_.op == Op::reduce_max || node_.op == Op::reduce_min))
      require(x.shape[i] > 0, "dimension {} of {} is empty and the reduction has no identity", i, to_string(x));
  }
  return result;
}

Type Rules::dot_general() const {
  count(2);
  const Type& l = operand(0);
  const Type& r = operand(1);
  require(l.dtype == r.dtype, "operands {} and {} differ in dtype", to_string(l), to_string(r));
  require(l.dtype != DType::boolean, "has no meaning for bool");
  require(node_.lhs_batch.size() == node_.rhs_batch.size() && node_.lhs_contract.size() == node_.rhs_contract.size(),
          "lhs and rhs need equally many batch and contracting dimensions");
  auto joined = [](std::vector<int64_t> a, const std::vector<int64_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  std::vector<int64_t> lhs = joined(node_.lhs_batch, node_.lhs_contract), rhs = joined(node_.rhs_batch, node_.rhs_contract);
  unique_dims(lhs, l.shape.size());
  unique_dims(rhs, r.shape.size());
  for (size_t i = 0; i < lhs.size(); ++i)
    require(l.shape[lhs[i]] == r.shape[rhs[i]], "dimension {} of {} does not match dimension {} of {}", lhs[i],
            to_string(l), rhs[i], to_string(r));
  Type result{node_.type.dtype, {}};
  for (int64_t d : node_.lhs_batch) result.shape.push_back(l.shape[d]);
  auto free = [&](const Type& type, const std::vector<int64_t>& used) {
    for (size_t i = 0; i < type.shape.size(); ++i)
      if (std::find(used.begin(), used.end(), static_cast<int64_t>(i)) == used.end()) result.shape.push_back(type.shape[i]);
  };
  free(l, lhs);
  free(r, rhs);
  return result;
}

Type Rules::gather() const {
  count(2);
  const Type& x = operand(0);
  const Type& indices = operand(1);
  integer_indices(indices);
  Type result{x.dtype, {}};
  if (node_.op == Op::gather_nd) {
    require(!indices.shape.empty(), "indices need a last dimension");
    int64_t k = indices.shape.back();
    require(k <= static_cast<int64_t>(x.shape.size()), "{} indices for {}", k, to_string(x));
    result.shape.assign(indices.shape.begin(), indices.shape.end() - 1);
    result.shape.insert(result.shape.end(), x.shape.begin() + k, x.shape.end());
    return result;
  }
  int64_t d = dim(x.shape.size());
  if (node_.op == Op::gather_elements) {
    require(indices.shape.size() == x.shape.size(), "indices {} and {} differ in rank", to_string(indices), to_string(x));
    for (size_t i = 0; i < x.shape.size(); ++i)
      require(static_cast<int64_t>(i) == d || indices.shape[i] <= x.shape[i], "indices {} exceed {} in dimension {}",
              to_string(indices), to_string(x), i);
    result.shape = indices.shape;
    return result;
  }
  result.shape = x.shape;
  result.shape.erase(result.shape.begin() + d);
  result.shape.insert(result.shape.begin() + d, indices.shape.begin(), indices.shape.end());
  return result;
}

Type Rules::scatter() const {
  count(3);
  const Type& x = operand(0);
  const Type& indices = operand(1);
  const Type& updates = operand(2);
  integer_indices(indices);
  require(updates.dtype == x.dtype, "updates {} and {} differ in dtype", to_string(updates), to_string(x));
  require(node_.combine == Combine::set || x.dtype != DType::boolean, "bool can only be set");
  Shape expected;
  if (node_.op == Op::scatter_nd) {
    require(!indices.shape.empty(), "indices need a last dimension");
    int64_t k = indices.shape.back();
    require(k <= static_cast<int64_t>(x.shape.size()), "{} indices for {}", k, to_string(x));
    expected.assign(indices.shape.begin(), indices.shape.end() - 1);
    expected.insert(expected.end(), x.shape.begin() + k, x.shape.end());
  } else {
    int64_t d = dim(x.shape.size());
    if (node_.op == Op::scatter_elements) {
      require(indices.shape.size() == x.shape.size(), "indices {} and {} differ in rank", to_string(indices), to_string(x));
      for (size_t i = 0; i < x.shape.size(); ++i)
        require(static_cast<int64_t>(i) == d || indices.shape[i] <= x.shape[i], "indices {} exceed {} in dimension {}",
                to_string(indices), to_string(x), i);
      expected = indices.shape;
    } else {
      expected = x.shape;
      expected.erase(expected.begin() + d);
      expected.insert(expected.begin() + d, indices.shape.begin(), indices.shape.end());
    }
  }
  require(updates.shape == expected, "updates must be [{}], got {}", fmt::join(expected, ","), to_string(updates));
  return x;
}

Type Rules::ordered() const {
  count(1);
  if (node_.index == 1) {
    const Node& first = graph_.nodes[node_.operands[0]];
    require(first.op == node_.op && first.index == 0, "the positions refer to the node with the values");
    return with(first.type, DType::i64);
  }
  require(node_.index == 0, "has results 0 and 1, not {}", node_.index);
  Type result = operand(0);
  if (node_.op == Op::top_k) {
    require(!result.shape.empty(), "needs a dimension");
    require(node_.integer >= 0 && node_.integer <= result.shape.back(), "k = {} of {}", node_.integer, to_string(result));
    result.shape.back() = node_.integer;
  } else {
    dim(result.shape.size());
  }
  return result;
}

Type Rules::infer() {
  for (ValueId id : node_.operands)
    require(id >= 0 && id < static_cast<ValueId>(graph_.nodes.size()), "operand %{} is not defined before its use", id);
  switch (node_.op) {
    case Op::parameter: case Op::scalar: case Op::constant: case Op::iota:
      return source();
    case Op::select:
      count(3);
      same_types(1);
      require(operand(0) == with(operand(1), DType::boolean), "the predicate must be {}, got {}",
              to_string(with(operand(1), DType::boolean)), to_string(operand(0)));
      return operand(1);
    case Op::clamp:
      count(3);
      same_types();
      return operand(0);
    case Op::broadcast_in_dim: return broadcast_in_dim();
    case Op::reshape: return reshape();
    case Op::transpose: return transpose();
    case Op::slice: return slice();
    case Op::reverse:
      count(1);
      unique_dims(node_.dims, operand(0).shape.size());
      return operand(0);
    case Op::pad: return pad();
    case Op::concatenate: return concatenate();
    case Op::reduce_sum: case Op::reduce_prod: case Op::reduce_max: case Op::reduce_min:
    case Op::reduce_and: case Op::reduce_or: case Op::argmax: case Op::argmin:
      return reduce();
    case Op::dot_general: return dot_general();
    case Op::gather: case Op::gather_elements: case Op::gather_nd:
      return gather();
    case Op::scatter: case Op::scatter_elements: case Op::scatter_nd:
      return scatter();
    case Op::sort: case Op::top_k:
      return ordered();
    case Op::cumulative_sum: case Op::cumulative_prod: case Op::cumulative_max: case Op::cumulative_min:
      count(1);
      require(operand(0).dtype != DType::boolean, "has no meaning for bool; convert first");
      dim(operand(0).shape.size());
      return operand(0);
    case Op::random_bits:
      count(2);
      for (size_t i = 0; i < 2; ++i)
        require(operand(i) == Type(DType::i64, {}), "seed and offset are i64[], got {}", to_string(operand(i)));
      return {DType::u32, node_.type.shape};
    default:
      return node_.op >= Op::add ? binary() : unary();
  }
}

}  // namespace

Type infer(const Graph& graph, const Node& node) { return Rules(graph, node).infer(); }

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {  // from the last dimension
    int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      throw UserError(fmt::format("shapes [{}] and [{}] cannot be broadcast together", fmt::join(a, ","), fmt::join(b, ",")));
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  return result;
}

std::string to_string(const Type& type) {
  return fmt::format("{}[{}]", name_of(type.dtype), fmt::join(type.shape, ","));
}

}  // namespace opentrn::graph
