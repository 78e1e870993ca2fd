#include "aten/families.h"
#include "aten/support.h"

namespace opentrn::aten {
namespace {

// x in an ordered dtype (bool becomes i32), with at least one dimension.
ValueId ordered(Call& c) {
  ValueId x = at_least_1d(c.b, c.tensor("self"));
  return c.b.dtype(x) == DType::boolean ? c.b.convert(x, DType::i32) : x;
}

Values sort(Call& c) {
  const ValueId x = ordered(c);
  auto [values, positions] = c.b.sort(x, c.wrap(c.integer("dim"), c.b.shape(x).size()), c.boolean("descending"));
  return {c.shaped(values, 0), c.shaped(positions, 1)};
}

Values argsort(Call& c) {
  const ValueId x = ordered(c);
  return {c.shaped(c.b.sort(x, c.wrap(c.integer("dim"), c.b.shape(x).size()), c.boolean("descending")).second)};
}

// The first k along dim.
ValueId first(Builder& b, ValueId x, int64_t dim, int64_t k) {
  Shape limits = b.shape(x);
  limits[dim] = k;
  return b.slice(x, std::vector<int64_t>(limits.size(), 0), limits, std::vector<int64_t>(limits.size(), 1));
}

Values topk(Call& c) {
  ValueId x = ordered(c);
  const int64_t k = c.integer("k"), rank = static_cast<int64_t>(c.b.shape(x).size());
  const int64_t dim = c.wrap(c.integer("dim"), c.b.shape(x).size());
  if (!c.boolean("largest")) {  // NaN counts as the largest in either direction, so the values cannot be negated
    auto [values, positions] = c.b.sort(x, dim, false);
    return {c.shaped(first(c.b, values, dim, k), 0), c.shaped(first(c.b, positions, dim, k), 1)};
  }
  std::vector<int64_t> swap(rank);
  for (int64_t d = 0; d < rank; ++d) swap[d] = d;
  std::swap(swap[dim], swap[rank - 1]);
  auto [values, positions] = c.b.top_k(c.b.transpose(x, swap), k);
  return {c.shaped(c.b.transpose(values, swap), 0), c.shaped(c.b.transpose(positions, swap), 1)};
}

// The k-th smallest along dim, and where it is.
Values kthvalue(Call& c) {
  const ValueId x = ordered(c);
  const int64_t dim = c.wrap(c.integer("dim"), c.b.shape(x).size());
  auto [values, positions] = c.b.sort(x, dim, false);
  std::vector<int64_t> starts(c.b.shape(x).size(), 0), limits = c.b.shape(x), ones(starts.size(), 1);
  limits[dim] = c.integer("k");
  starts[dim] = limits[dim] - 1;
  return {c.shaped(c.b.slice(values, starts, limits, ones), 0), c.shaped(c.b.slice(positions, starts, limits, ones), 1)};
}

}  // namespace

std::vector<Entry> ordering() {
  return {
      {"aten::sort", sort}, {"aten::sort.stable", sort}, {"aten::argsort", argsort}, {"aten::argsort.stable", argsort},
      {"aten::topk", topk}, {"aten::kthvalue", kthvalue},
  };
}

}  // namespace opentrn::aten
