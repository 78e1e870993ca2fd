#include "compiler/fused_layout.h"

#include <algorithm>
#include <numeric>

namespace opentrn::compiler {
namespace {

bool has_strides(const FusedValue& v) { return !v.strides.empty(); }

template <typename F>
void for_strides(Fused& fused, F f) {
  for (FusedValue& v : fused.values)
    if (has_strides(v)) f(v.strides);
  for (FusedOutput& o : fused.outputs) f(o.strides);
}

// Removes dimension d; bits of the masks above it move down.
void erase_dimension(Fused& fused, size_t d) {
  auto shift = [d](uint64_t mask) {
    const uint64_t low = mask & ((uint64_t{1} << d) - 1);
    return low | ((mask >> (d + 1)) << d);
  };
  fused.sizes.erase(fused.sizes.begin() + static_cast<int64_t>(d));
  fused.reduced = shift(fused.reduced);
  for (FusedValue& v : fused.values) v.varies = shift(v.varies);
  for_strides(fused, [&](std::vector<int64_t>& s) { s.erase(s.begin() + static_cast<int64_t>(d)); });
}

}  // namespace

void collapse_dimensions(Fused& fused) {
  for (size_t d = fused.sizes.size(); d-- > 0;)
    if (fused.sizes[d] == 1) erase_dimension(fused, d);
  for (size_t d = fused.sizes.size(); d-- > 1;) {
    const size_t outer = d - 1;
    const uint64_t inner_bit = uint64_t{1} << d, outer_bit = uint64_t{1} << outer;
    bool merge = ((fused.reduced & inner_bit) != 0) == ((fused.reduced & outer_bit) != 0);
    // A computed value that varies over one of the two only must be able to stay broadcast over the other.
    for (const FusedValue& v : fused.values) merge &= ((v.varies & inner_bit) != 0) == ((v.varies & outer_bit) != 0);
    for_strides(fused, [&](std::vector<int64_t>& s) { merge &= s[outer] == s[d] * fused.sizes[d]; });
    if (!merge) continue;
    const int64_t inner = fused.sizes[d];
    fused.sizes[outer] *= inner;
    for_strides(fused, [&](std::vector<int64_t>& s) { s[outer] = s[d]; });
    erase_dimension(fused, d);
  }
}

int64_t widest(const Fused& fused) {
  int64_t bytes = 1;
  for (const FusedValue& v : fused.values)
    if (v.varies) bytes = std::max(bytes, size_of(v.dtype));
  return bytes;
}

namespace {

// The dimension along which the outputs (or, when they are reduced away, the largest inputs) are contiguous.
int inner_dimension(const Fused& fused) {
  const size_t rank = fused.sizes.size();
  std::vector<int64_t> score(rank, 0);
  for (const FusedOutput& o : fused.outputs)
    for (size_t d = 0; d < rank; ++d)
      if (std::abs(o.strides[d]) == 1) score[d] += 4;
  for (const FusedValue& v : fused.values)
    if (v.kind == FusedValue::Kind::view)
      for (size_t d = 0; d < rank; ++d)
        if (std::abs(v.strides[d]) == 1) score[d] += 1;
  int best = -1;
  for (size_t d = 0; d < rank; ++d)
    if (score[d] > 0 &&
        (best < 0 || score[d] > score[best] || (score[d] == score[best] && fused.sizes[d] >= fused.sizes[best])))
      best = static_cast<int>(d);
  return best < 0 ? static_cast<int>(rank) - 1 : best;
}

}  // namespace

namespace {

// The dimension to lay on partitions: the one that costs least by an estimate of transfers (one descriptor per contiguous
// run, see docs/chips-and-costs.md) and of the vector engine (one element per partition and cycle).
int map_partition(const Fused& fused, int inner, int64_t budget) {
  constexpr double kDescriptorNs = 107.5 / 16, kBytesPerNs = 368, kElementNs = 1;
  double accesses = static_cast<double>(fused.outputs.size()), operations = 1;
  double elements = 1;
  for (int64_t size : fused.sizes) elements *= static_cast<double>(size);
  for (const FusedValue& v : fused.values) {
    accesses += v.kind == FusedValue::Kind::view;
    operations += v.kind == FusedValue::Kind::op;
  }
  const double bytes = static_cast<double>(widest(fused));
  int best = inner;
  double best_ns = 0;
  for (int d = 0; d < static_cast<int>(fused.sizes.size()); ++d) {
    const int64_t size = fused.sizes[d];
    const int64_t run = d == inner ? std::clamp<int64_t>((size + 127) / 128, 1, budget) : std::min(fused.sizes[inner], budget);
    const double partitions = static_cast<double>(std::min<int64_t>(128, size));
    const double transfer_ns =
        accesses * std::max(elements * bytes / kBytesPerNs, elements / static_cast<double>(run) * kDescriptorNs);
    const double ns = std::max(transfer_ns, operations * elements / partitions * kElementNs);
    if (d == 0 || ns < best_ns || (ns == best_ns && d == inner)) {
      best = d;
      best_ns = ns;
    }
  }
  return best;
}

}  // namespace

FusedLayout choose_layout(const Fused& fused, int64_t row_bytes_budget, bool whole_rows, bool single_row) {
  FusedLayout layout;
  const int rank = static_cast<int>(fused.sizes.size());
  const int64_t budget = std::max<int64_t>(1, row_bytes_budget / widest(fused));  // elements of a tile per partition
  if (rank == 0) return layout;
  auto reduced = [&](int d) { return (fused.reduced >> d & 1) != 0; };

  if (fused.reduced == 0) {
    const int inner = inner_dimension(fused);
    const int partition = map_partition(fused, inner, budget);
    layout.partition_dim = partition;
    if (partition != inner) {
      layout.chunk_dim = inner;
      layout.chunk = std::min(fused.sizes[inner], budget);
    }
  } else {
    // Kept dimensions on partitions and loops, reduced ones free. The innermost free dimension is the reduced one that
    // most operands walk contiguously.
    int inner = -1;
    for (int d = 0; d < rank; ++d) {
      if (!reduced(d)) continue;
      auto contiguous = [&](int dim) {
        int n = 0;
        for (const FusedValue& v : fused.values) n += v.kind == FusedValue::Kind::view && std::abs(v.strides[dim]) == 1;
        return n;
      };
      if (inner < 0 || contiguous(d) > contiguous(inner) ||
          (contiguous(d) == contiguous(inner) && fused.sizes[d] > fused.sizes[inner]))
        inner = d;
    }
    layout.chunk_dim = inner;
    layout.chunk = whole_rows ? fused.sizes[inner] : std::min(fused.sizes[inner], budget);
    for (int d = 0; d < rank; ++d)
      if (!reduced(d) && (layout.partition_dim < 0 || fused.sizes[d] > fused.sizes[layout.partition_dim]))
        layout.partition_dim = d;
  }

  // An operand that is contiguous along partitions only is loaded through a transpose.
  if (layout.partition_dim >= 0 && layout.chunk_dim >= 0)
    for (const FusedValue& v : fused.values)
      if (v.kind == FusedValue::Kind::view && v.strides[layout.partition_dim] == 1 &&
          v.strides[layout.chunk_dim] != 0 && std::abs(v.strides[layout.chunk_dim]) != 1 &&
          (size_of(v.dtype) == 2 || size_of(v.dtype) == 4) && fused.sizes[layout.partition_dim] > 1)
        layout.transposed = true;

  // Other dimensions become free dimensions of the tile while they fit (at most four with rows and chunk). A
  // contiguous dimension that lies on partitions comes first: its rows are the runs that a transfer moves.
  int64_t used = layout.chunk;
  if (layout.chunk_dim < 0 && layout.partition_dim >= 0)
    used = std::clamp<int64_t>((fused.sizes[layout.partition_dim] + 127) / 128, 1, budget);
  std::vector<int> rest;
  for (int d = rank; d-- > 0;)
    if (d != layout.partition_dim && d != layout.chunk_dim) rest.push_back(d);
  // Reduced dimensions first: they must be walked inside a row.
  std::stable_sort(rest.begin(), rest.end(), [&](int a, int b) { return reduced(a) && !reduced(b); });
  for (int d : rest) {
    const bool whole_chunk = layout.chunk_dim < 0 || layout.chunk == fused.sizes[layout.chunk_dim];
    const bool fits = used * fused.sizes[d] <= budget || (whole_rows && reduced(d));
    // A reduction walks its free dimensions innermost; kept free dimensions would have to lie outside of them.
    const bool kept_in_reduction = fused.reduced != 0 && !reduced(d);
    if (!layout.transposed && whole_chunk && fits && !kept_in_reduction && !single_row && layout.free_dims.size() < 2) {
      layout.free_dims.insert(layout.free_dims.begin(), d);
      used *= fused.sizes[d];
    } else {
      layout.loops.insert(layout.loops.begin(), d);
    }
  }

  // Several rows per partition when rows are short.
  if (layout.partition_dim >= 0 && !layout.transposed) {
    const int64_t size = fused.sizes[layout.partition_dim];
    const bool reduced_loop = std::any_of(layout.loops.begin(), layout.loops.end(), reduced);
    if (layout.chunk_dim < 0) used = std::max<int64_t>(1, used / std::clamp<int64_t>((size + 127) / 128, 1, budget));
    if (!reduced_loop) layout.rows = std::clamp<int64_t>(budget / used, 1, (size + 127) / 128);
  }
  return layout;
}

}  // namespace opentrn::compiler
