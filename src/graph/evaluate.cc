#include "graph/evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "graph/element.h"
#include "graph/elementwise.h"
#include "graph/infer.h"

namespace opentrn::graph {
namespace {

using Strides = std::vector<int64_t>;

// Calls body(linear, index) for every position of a shape in row-major order.
template <typename Body>
void for_each(const Shape& shape, Body&& body) {
  const int64_t count = elements(shape);
  std::vector<int64_t> index(shape.size());
  for (int64_t i = 0; i < count; ++i) {
    body(i, static_cast<const std::vector<int64_t>&>(index));
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

int64_t dot(const std::vector<int64_t>& index, const Strides& strides) {
  int64_t sum = 0;
  for (size_t i = 0; i < strides.size(); ++i) sum += index[i] * strides[i];
  return sum;
}

void copy_element(const Dense& from, int64_t i, Dense& to, int64_t j) {
  const int64_t size = size_of(to.type.dtype);
  std::memcpy(to.data() + j * size, from.data() + i * size, size);
}

int64_t checked(const Node& node, const Dense& indices, int64_t position, int64_t size) {
  const int64_t value = load<int64_t>(indices.type.dtype, indices.data(), position);
  if (value < 0 || value >= size)
    throw UserError(fmt::format("{}: index {} is out of range for a dimension of size {}", name_of(node.op), value, size));
  return value;
}

// The combination of two values of a dtype, in the domain in which it accumulates.
template <typename T>
T combined(Op op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if ((op == Op::reduce_max || op == Op::reduce_min) && (std::isnan(a) || std::isnan(b)))
      return std::numeric_limits<T>::quiet_NaN();
  }
  using U = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  switch (op) {
    case Op::reduce_sum: return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    case Op::reduce_prod: return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    case Op::reduce_max: return a < b ? b : a;
    case Op::reduce_min: return b < a ? b : a;
    case Op::reduce_and: return a != T(0) && b != T(0) ? T(1) : T(0);
    default: return a != T(0) || b != T(0) ? T(1) : T(0);
  }
}

template <typename Body>
void in_domain(DType dtype, Body&& body) {
  if (is_float(dtype)) body(double{});
  else if (is_signed(dtype)) body(int64_t{});
  else body(uint64_t{});
}

void reduce(const Node& node, const Dense& x, Dense& out) {
  Strides strides(x.type.shape.size());  // of the result, by operand dimension
  const Strides compact = row_major(out.type.shape);
  for (size_t d = 0, kept = 0; d < strides.size(); ++d)
    if (std::find(node.dims.begin(), node.dims.end(), static_cast<int64_t>(d)) == node.dims.end())
      strides[d] = compact[kept++];
  const DType dtype = x.type.dtype;
  in_domain(dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool one = node.op == Op::reduce_prod || node.op == Op::reduce_and;
    const bool from_first = node.op == Op::reduce_max || node.op == Op::reduce_min;
    std::vector<T> sums(elements(out.type.shape), one ? T(1) : T(0));
    std::vector<bool> started(sums.size(), !from_first);
    for_each(x.type.shape, [&](int64_t i, const auto& index) {
      const int64_t at = dot(index, strides);
      const T value = load<T>(dtype, x.data(), i);
      sums[at] = started[at] ? combined(node.op, sums[at], value) : value;
      started[at] = true;
    });
    for (size_t i = 0; i < sums.size(); ++i) store<T>(dtype, out.data(), static_cast<int64_t>(i), sums[i]);
  });
}

// Rows along one dimension: body(base, stride, count) once per row.
template <typename Body>
void for_each_row(const Shape& shape, int64_t dim, Body&& body) {
  const int64_t stride = row_major(shape)[dim];
  Shape outer = shape;
  outer[dim] = 1;
  if (shape[dim] == 0) return;
  const Strides strides = row_major(shape);
  for_each(outer, [&](int64_t, const auto& index) { body(dot(index, strides), stride, shape[dim]); });
}

void arg_reduce(const Node& node, const Dense& x, Dense& out) {
  const DType dtype = x.type.dtype;
  in_domain(dtype, [&](auto zero) {
    using T = decltype(zero);
    int64_t row = 0;
    for_each_row(x.type.shape, node.dims[0], [&](int64_t base, int64_t stride, int64_t count) {
      int64_t best = 0;
      for (int64_t i = 1; i < count; ++i) {
        const T a = load<T>(dtype, x.data(), base + best * stride), b = load<T>(dtype, x.data(), base + i * stride);
        if (a != a) break;  // the first NaN wins
        if (b != b || (node.op == Op::argmax ? b > a : b < a)) best = i;
      }
      store<int64_t>(DType::i64, out.data(), row++, best);
    });
  });
}

void cumulative(const Node& node, const Dense& x, Dense& out) {
  const DType dtype = x.type.dtype;
  const Op op = node.op == Op::cumulative_sum    ? Op::reduce_sum
                : node.op == Op::cumulative_prod ? Op::reduce_prod
                : node.op == Op::cumulative_max  ? Op::reduce_max
                                                 : Op::reduce_min;
  in_domain(dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each_row(x.type.shape, node.dims[0], [&](int64_t base, int64_t stride, int64_t count) {
      T sum = load<T>(dtype, x.data(), base);
      for (int64_t i = 0; i < count; ++i) {
        if (i) sum = combined(op, sum, load<T>(dtype, x.data(), base + i * stride));
        store<T>(dtype, out.data(), base + i * stride, sum);
      }
    });
  });
}

// Positions of each row in sorted order; NaN is larger than every number, equal values keep their order.
std::vector<int64_t> order(const Dense& x, int64_t base, int64_t stride, int64_t count, bool descending) {
  std::vector<int64_t> positions(count);
  std::iota(positions.begin(), positions.end(), 0);
  in_domain(x.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> values(count);
    for (int64_t i = 0; i < count; ++i) values[i] = load<T>(x.type.dtype, x.data(), base + i * stride);
    auto less = [](T a, T b) { return a < b || (b != b && a == a); };
    std::stable_sort(positions.begin(), positions.end(), [&](int64_t i, int64_t j) {
      return descending ? less(values[j], values[i]) : less(values[i], values[j]);
    });
  });
  return positions;
}

// sort and top_k, both results: the values, or the positions when node.index is 1.
void sorted(const Node& node, const Dense& x, Dense& out) {
  const bool top = node.op == Op::top_k;
  const int64_t dim = top ? static_cast<int64_t>(x.type.shape.size()) - 1 : node.dims[0];
  const int64_t kept = out.type.shape[dim];
  if (elements(out.type.shape) == 0) return;
  const Strides strides = row_major(out.type.shape);
  int64_t row = 0;
  for_each_row(x.type.shape, dim, [&](int64_t base, int64_t stride, int64_t count) {
    const std::vector<int64_t> positions = order(x, base, stride, count, top || (node.integer & 1));
    const int64_t out_base = top ? row++ * kept : base;
    for (int64_t i = 0; i < kept; ++i) {
      if (node.index == 1) store<int64_t>(DType::i64, out.data(), out_base + i * strides[dim], positions[i]);
      else copy_element(x, base + positions[i] * stride, out, out_base + i * strides[dim]);
    }
  });
}

void dot_general(const Node& node, const Dense& l, const Dense& r, Dense& out) {
  // Result dimensions, then contracted ones, as strides into both operands.
  Shape outer = out.type.shape, inner;
  Strides l_outer, r_outer, l_inner, r_inner;
  const Strides ls = row_major(l.type.shape), rs = row_major(r.type.shape);
  auto used = [](const std::vector<int64_t>& a, const std::vector<int64_t>& b, size_t d) {
    const int64_t dim = static_cast<int64_t>(d);
    return std::find(a.begin(), a.end(), dim) != a.end() || std::find(b.begin(), b.end(), dim) != b.end();
  };
  for (size_t i = 0; i < node.lhs_batch.size(); ++i) {
    l_outer.push_back(ls[node.lhs_batch[i]]);
    r_outer.push_back(rs[node.rhs_batch[i]]);
  }
  for (size_t d = 0; d < ls.size(); ++d)
    if (!used(node.lhs_batch, node.lhs_contract, d)) l_outer.push_back(ls[d]), r_outer.push_back(0);
  for (size_t d = 0; d < rs.size(); ++d)
    if (!used(node.rhs_batch, node.rhs_contract, d)) l_outer.push_back(0), r_outer.push_back(rs[d]);
  for (size_t i = 0; i < node.lhs_contract.size(); ++i) {
    inner.push_back(l.type.shape[node.lhs_contract[i]]);
    l_inner.push_back(ls[node.lhs_contract[i]]);
    r_inner.push_back(rs[node.rhs_contract[i]]);
  }
  std::vector<std::pair<int64_t, int64_t>> steps;
  for_each(inner, [&](int64_t, const auto& index) { steps.emplace_back(dot(index, l_inner), dot(index, r_inner)); });
  in_domain(l.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    using U = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
    std::vector<T> lhs(elements(l.type.shape)), rhs(elements(r.type.shape));
    for (size_t i = 0; i < lhs.size(); ++i) lhs[i] = load<T>(l.type.dtype, l.data(), static_cast<int64_t>(i));
    for (size_t i = 0; i < rhs.size(); ++i) rhs[i] = load<T>(r.type.dtype, r.data(), static_cast<int64_t>(i));
    for_each(outer, [&](int64_t i, const auto& index) {
      const int64_t l_base = dot(index, l_outer), r_base = dot(index, r_outer);
      U sum = 0;
      for (const auto& [a, b] : steps) sum += static_cast<U>(lhs[l_base + a]) * static_cast<U>(rhs[r_base + b]);
      store<T>(out.type.dtype, out.data(), i, static_cast<T>(sum));
    });
  });
}

// Where result element `index` of a gather (or update element of a scatter) lies in x.
int64_t indexed_position(const Node& node, const Dense& x, const Dense& indices, const std::vector<int64_t>& index) {
  const Strides strides = row_major(x.type.shape), index_strides = row_major(indices.type.shape);
  if (node.op == Op::gather_nd || node.op == Op::scatter_nd) {
    const size_t lead = indices.type.shape.size() - 1;
    const int64_t k = indices.type.shape.back();
    int64_t at = 0, first = 0;
    for (size_t i = 0; i < lead; ++i) first += index[i] * index_strides[i];
    for (int64_t j = 0; j < k; ++j) at += checked(node, indices, first + j, x.type.shape[j]) * strides[j];
    for (size_t d = k; d < strides.size(); ++d) at += index[lead + d - k] * strides[d];
    return at;
  }
  const int64_t dim = node.dims[0];
  if (node.op == Op::gather_elements || node.op == Op::scatter_elements) {
    int64_t at = checked(node, indices, dot(index, index_strides), x.type.shape[dim]) * strides[dim];
    for (size_t d = 0; d < strides.size(); ++d)
      if (static_cast<int64_t>(d) != dim) at += index[d] * strides[d];
    return at;
  }
  const size_t rank = indices.type.shape.size();
  int64_t where = 0, at = 0;
  for (size_t i = 0; i < rank; ++i) where += index[dim + i] * index_strides[i];
  for (int64_t d = 0; d < dim; ++d) at += index[d] * strides[d];
  at += checked(node, indices, where, x.type.shape[dim]) * strides[dim];
  for (size_t d = dim + 1; d < strides.size(); ++d) at += index[d - 1 + rank] * strides[d];
  return at;
}

void gather(const Node& node, const Dense& x, const Dense& indices, Dense& out) {
  for_each(out.type.shape,
           [&](int64_t i, const auto& index) { copy_element(x, indexed_position(node, x, indices, index), out, i); });
}

void scatter(const Node& node, const Dense& x, const Dense& indices, const Dense& updates, Dense& out) {
  out.bytes = x.bytes;
  const DType dtype = x.type.dtype;
  if (node.combine == Combine::set) {
    for_each(updates.type.shape, [&](int64_t i, const auto& index) {
      copy_element(updates, i, out, indexed_position(node, x, indices, index));
    });
    return;
  }
  constexpr std::array kOps = {Op::reduce_sum, Op::reduce_sum, Op::reduce_prod, Op::reduce_max, Op::reduce_min};
  const Op op = kOps[static_cast<size_t>(node.combine)];
  in_domain(dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> sums(elements(x.type.shape));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = load<T>(dtype, x.data(), static_cast<int64_t>(i));
    for_each(updates.type.shape, [&](int64_t i, const auto& index) {
      T& sum = sums[indexed_position(node, x, indices, index)];
      sum = combined(op, sum, load<T>(dtype, updates.data(), i));
    });
    for (size_t i = 0; i < sums.size(); ++i) store<T>(dtype, out.data(), static_cast<int64_t>(i), sums[i]);
  });
}

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
std::array<uint32_t, 4> philox(uint64_t counter, uint64_t key) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

void random_bits(const Dense& seed, const Dense& offset, Dense& out) {
  const uint64_t key = load<uint64_t>(DType::i64, seed.data(), 0), first = load<uint64_t>(DType::i64, offset.data(), 0);
  for (int64_t i = 0; i < elements(out.type.shape); ++i) {
    const uint64_t n = first + static_cast<uint64_t>(i);
    store<uint64_t>(DType::u32, out.data(), i, philox(n / 4, key)[n % 4]);
  }
}

void shape_operation(const Node& node, std::span<const Dense* const> operands, Dense& out) {
  const Dense& x = *operands[0];
  const Strides strides = row_major(x.type.shape);
  switch (node.op) {
    case Op::reshape:
      out.bytes = x.bytes;
      return;
    case Op::broadcast_in_dim: {
      Strides by_result(out.type.shape.size());
      for (size_t d = 0; d < strides.size(); ++d)
        if (x.type.shape[d] != 1) by_result[node.dims[d]] = strides[d];
      for_each(out.type.shape, [&](int64_t i, const auto& index) { copy_element(x, dot(index, by_result), out, i); });
      return;
    }
    case Op::transpose: {
      Strides by_result;
      for (int64_t d : node.dims) by_result.push_back(strides[d]);
      for_each(out.type.shape, [&](int64_t i, const auto& index) { copy_element(x, dot(index, by_result), out, i); });
      return;
    }
    case Op::slice: {
      Strides by_result(strides.size());
      const int64_t base = dot(node.starts, strides);
      for (size_t d = 0; d < strides.size(); ++d) by_result[d] = strides[d] * node.strides[d];
      for_each(out.type.shape, [&](int64_t i, const auto& index) { copy_element(x, base + dot(index, by_result), out, i); });
      return;
    }
    case Op::reverse: {
      Strides by_result = strides;
      int64_t base = 0;
      for (int64_t d : node.dims) {
        base += (x.type.shape[d] - 1) * strides[d];
        by_result[d] = -strides[d];
      }
      for_each(out.type.shape, [&](int64_t i, const auto& index) { copy_element(x, base + dot(index, by_result), out, i); });
      return;
    }
    case Op::pad: {
      const Strides by_result = row_major(out.type.shape);
      for (int64_t i = 0; i < elements(out.type.shape); ++i) copy_element(*operands[1], 0, out, i);
      for_each(x.type.shape, [&](int64_t i, const auto& index) {
        int64_t at = 0;
        for (size_t d = 0; d < index.size(); ++d) at += (node.starts[d] + index[d] * (node.strides[d] + 1)) * by_result[d];
        copy_element(x, i, out, at);
      });
      return;
    }
    default: {  // concatenate
      const Strides by_result = row_major(out.type.shape);
      int64_t base = 0;
      for (const Dense* part : operands) {
        for_each(part->type.shape,
                 [&](int64_t i, const auto& index) { copy_element(*part, i, out, base + dot(index, by_result)); });
        base += part->type.shape[node.dims[0]] * by_result[node.dims[0]];
      }
    }
  }
}

Dense read_strided(const Parameter& parameter, const std::byte* address) {
  Dense out(parameter.type);
  const int64_t size = size_of(parameter.type.dtype);
  for_each(parameter.type.shape, [&](int64_t i, const auto& index) {
    const int64_t at = parameter.layout.offset + dot(index, parameter.layout.strides);
    std::memcpy(out.data() + i * size, address + at * size, size);
  });
  return out;
}

void write_strided(const Dense& value, const Layout& layout, std::byte* address) {
  const int64_t size = size_of(value.type.dtype);
  for_each(value.type.shape, [&](int64_t i, const auto& index) {
    std::memcpy(address + (layout.offset + dot(index, layout.strides)) * size, value.data() + i * size, size);
  });
}

void source(const Node& node, Dense& out) {
  const DType dtype = out.type.dtype;
  if (node.op == Op::constant) {
    if (is_float(dtype)) store<double>(dtype, out.data(), 0, node.real);
    else store<int64_t>(dtype, out.data(), 0, node.integer);
    return;
  }
  for_each(out.type.shape, [&](int64_t i, const auto& index) { store<int64_t>(dtype, out.data(), i, index[node.dims[0]]); });
}

}  // namespace

void evaluate(const Graph& graph, std::span<const std::byte* const> parameters, std::span<const ScalarInput> scalars,
              std::span<std::byte* const> results) {
  if (parameters.size() != graph.parameters.size() || scalars.size() != graph.scalars.size() ||
      results.size() != graph.results.size())
    throw UserError(fmt::format("graph '{}' takes {} parameters, {} scalars and {} results, got {}, {} and {}", graph.name,
                                graph.parameters.size(), graph.scalars.size(), graph.results.size(), parameters.size(),
                                scalars.size(), results.size()));
  std::vector<Dense> values;
  values.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    std::vector<const Dense*> operands;
    for (ValueId id : node.operands) operands.push_back(&values[id]);
    if (node.op == Op::parameter) {
      values.push_back(read_strided(graph.parameters[node.index], parameters[node.index]));
      continue;
    }
    Dense out(node.type);
    switch (node.op) {
      case Op::scalar:
        if (is_float(node.type.dtype)) store<double>(node.type.dtype, out.data(), 0, scalars[node.index].real);
        else store<int64_t>(node.type.dtype, out.data(), 0, scalars[node.index].integer);
        break;
      case Op::constant: case Op::iota: source(node, out); break;
      case Op::reduce_sum: case Op::reduce_prod: case Op::reduce_max: case Op::reduce_min:
      case Op::reduce_and: case Op::reduce_or:
        reduce(node, *operands[0], out);
        break;
      case Op::argmax: case Op::argmin: arg_reduce(node, *operands[0], out); break;
      case Op::cumulative_sum: case Op::cumulative_prod: case Op::cumulative_max: case Op::cumulative_min:
        cumulative(node, *operands[0], out);
        break;
      case Op::dot_general: dot_general(node, *operands[0], *operands[1], out); break;
      case Op::gather: case Op::gather_elements: case Op::gather_nd: gather(node, *operands[0], *operands[1], out); break;
      case Op::scatter: case Op::scatter_elements: case Op::scatter_nd:
        scatter(node, *operands[0], *operands[1], *operands[2], out);
        break;
      case Op::sort: case Op::top_k:
        // The positions come from the operand of the node that holds the values.
        sorted(node, node.index == 1 ? values[graph.nodes[node.operands[0]].operands[0]] : *operands[0], out);
        break;
      case Op::random_bits: random_bits(*operands[0], *operands[1], out); break;
      default:
        if (is_elementwise(node.op)) evaluate_elementwise(node, operands, out);
        else shape_operation(node, operands, out);
    }
    values.push_back(std::move(out));
  }
  for (size_t i = 0; i < graph.results.size(); ++i)
    write_strided(values[graph.results[i].value], graph.results[i].layout, results[i]);
}

}  // namespace opentrn::graph
