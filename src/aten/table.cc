#include <algorithm>

#include <fmt/format.h>

#include "aten/families.h"
#include "base/error.h"

namespace opentrn::aten {
namespace {

std::vector<Entry> collect() {
  std::vector<Entry> all;
  for (auto family : {pointwise, activation, reduction, matmul, normalization, indexing, ordering, loss, creation, shape,
                      random, foreach, optimizer}) {
    const std::vector<Entry> entries = family();
    all.insert(all.end(), entries.begin(), entries.end());
  }
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return a.op < b.op; });
  for (size_t i = 1; i < all.size(); ++i)
    if (all[i].op == all[i - 1].op) throw InternalError(fmt::format("the lowering table has {} twice", all[i].op));
  return all;
}

}  // namespace

const std::vector<Entry>& table() {
  static const std::vector<Entry> entries = collect();
  return entries;
}

const Entry* find(std::string_view op) {
  const std::vector<Entry>& entries = table();
  auto it = std::lower_bound(entries.begin(), entries.end(), op, [](const Entry& e, std::string_view name) { return e.op < name; });
  return it != entries.end() && it->op == op ? &*it : nullptr;
}

}  // namespace opentrn::aten
