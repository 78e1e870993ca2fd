#include "compiler/fused_emitter.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"

namespace opentrn::compiler {

using graph::Op;
using isa::AccessPattern;
using isa::AluOp;
using isa::Dim;
using isa::Engine;
using isa::Memory;
using isa::Opcode;
using isa::Scalar;
using Kind = FusedValue::Kind;

void FusedEmitter::run() {
  collapse_dimensions(f_);
  plan();
  if (!split_between_cores()) return;
  make_pools();
  places_.assign(f_.values.size(), {});
  base_.assign(f_.sizes.size(), Index(0));
  for (size_t d = 0; d < f_.sizes.size(); ++d) base_[d] = Index(range_[d].first);
  emit_level(0);
  nest(0);
}

size_t FusedEmitter::level_of(int v) const {
  size_t level = 0;
  for (size_t l = 0; l < loops_.size(); ++l)
    if (value(v).varies >> loops_[l].dim & 1) level = l + 1;
  return level;
}

void FusedEmitter::nest(size_t l) {
  if (l == loops_.size()) return innermost();
  const Loop loop = loops_[l];
  const int d = loop.dim;
  const Index start = Index(range_[d].first);
  auto inner = [&] {
    emit_level(l + 1);
    nest(l + 1);
  };
  if (loop.kind == LoopKind::single) {
    b_.loop(extent(d), [&](Index i) {
      base_[d] = start + i;
      inner();
    });
  } else if (loop.kind == LoopKind::chunk) {
    b_.blocks(extent(d), layout_.chunk, [&](Index i, int64_t count) {
      base_[d] = start + i;
      chunk_ = count;
      inner();
    });
  } else {
    // Whole blocks of 128 partitions, then the partitions left, then the rows left.
    const int64_t rows = layout_.rows;
    auto block = [&](Index at, int64_t partitions, int64_t count) {
      base_[d] = start + at;
      partitions_ = partitions;
      rows_ = count;
      inner();
    };
    b_.blocks(extent(d), 128 * rows, [&](Index i, int64_t count) {
      const int64_t whole = count / rows, left = count % rows;
      if (whole) block(i, whole, rows);
      if (left) block(i + whole * rows, 1, left);
    });
  }
}

void FusedEmitter::store_outputs(bool) {
  const std::vector<Place> outer = places_;
  for (const FusedOutput& o : f_.outputs) store(o);
  places_ = outer;
}

void FusedEmitter::emit_level(size_t level) {
  if (f_.outputs.size() == 1 && direct_copy(f_.outputs[0])) return;
  if (level == loops_.size() && level > 0) {
    // The innermost level is written on demand, in the order of use; forget the previous body's tiles.
    for (size_t v = 0; v < places_.size(); ++v)
      if (level_of(static_cast<int>(v)) == level) places_[v] = {};
    return;
  }
  if (level == loops_.size()) return;
  for (size_t v = 0; v < f_.values.size(); ++v) {
    if (level_of(static_cast<int>(v)) != level) continue;
    places_[v] = {};
    if (needs_tile(static_cast<int>(v)) && !(value(static_cast<int>(v)).varies & f_.reduced) &&
        !depends_on_reduction(static_cast<int>(v)))
      ensure(static_cast<int>(v));
    else if ((value(static_cast<int>(v)).varies & f_.reduced) && stage_loops_.empty() &&
             needs_tile(static_cast<int>(v)) && !depends_on_reduction(static_cast<int>(v)))
      ensure(static_cast<int>(v));
  }
}

SmallVector<FusedEmitter::Axis, 4> FusedEmitter::axes() const {
  SmallVector<Axis, 4> result;
  if (layout_.partition_dim >= 0 && layout_.rows > 1) result.push_back({layout_.partition_dim, rows_});
  for (int d : layout_.free_dims) result.push_back({d, f_.sizes[d]});
  if (layout_.chunk_dim >= 0) result.push_back({layout_.chunk_dim, chunk_count()});
  return result;
}

int64_t FusedEmitter::chunk_count() const {
  const bool looped =
      std::any_of(loops_.begin(), loops_.end(), [](const Loop& l) { return l.kind == LoopKind::chunk; }) ||
      std::any_of(stage_loops_.begin(), stage_loops_.end(), [](const Loop& l) { return l.kind == LoopKind::chunk; });
  return looped ? chunk_ : extent(layout_.chunk_dim);
}

int64_t FusedEmitter::partitions_for(uint64_t varies) const {
  const int p = layout_.partition_dim;
  if (p < 0) return 1;
  if (varies >> p & 1) return partitions_;
  return std::min<int64_t>(128, (extent(p) + layout_.rows - 1) / layout_.rows);
}

AccessPattern FusedEmitter::operand(int v, uint64_t varies, int64_t partitions) const {
  const Place& place = places_[v];
  SmallVector<Dim, 4> dims;
  int64_t stride = 1;
  const auto all = axes();
  for (size_t k = all.size(); k-- > 0;) {
    const bool has = (value(v).varies >> all[k].dim & 1) != 0;
    if (varies >> all[k].dim & 1) {
      SmallVector<Dim, 4> grown;
      grown.push_back({has ? stride : 0, static_cast<int32_t>(all[k].count)});
      for (const Dim& d : dims) grown.push_back(d);
      dims = grown;
    }
    if (has) stride *= all[k].count;
  }
  return b_.at(place.tile, place.dtype, partitions, dims);
}

AccessPattern FusedEmitter::memory(int buffer, DType dtype, int64_t offset, const std::vector<int64_t>& strides,
                                   uint64_t varies, int64_t partitions) const {
  Index at(offset);
  for (size_t d = 0; d < f_.sizes.size(); ++d)
    if (strides[d]) at = at + base_[d] * strides[d];
  SmallVector<Dim, 4> dims;
  for (const Axis& axis : axes())
    if (varies >> axis.dim & 1) dims.push_back({strides[axis.dim], static_cast<int32_t>(axis.count)});
  const int p = layout_.partition_dim;
  const int64_t partition_stride = p >= 0 ? strides[p] * layout_.rows : 0;
  return b_.hbm(buffer, dtype, at, partitions, partition_stride, dims);
}

void FusedEmitter::store(const FusedOutput& o) {
  uint64_t over = 0;
  for (size_t d = 0; d < f_.sizes.size(); ++d)
    if (!is_reduced(static_cast<int>(d)) || o.strides[d] != 0) over |= uint64_t{1} << d;
  const int64_t partitions = layout_.partition_dim >= 0 ? partitions_ : 1;
  const int v = o.value;
  if (direct_copy(o)) {
    int from = v;
    while (value(from).kind == Kind::op) from = value(from).operands[0];
    const FusedValue& x = value(from);
    b_.set_origin(x.origin);
    b_.dma(memory(o.buffer, value(v).dtype, o.offset, o.strides, over, partitions),
           memory(x.buffer, x.dtype, x.offset, x.strides, over, partitions), kLoad);
    return;
  }
  ensure(v);
  AccessPattern src = operand(v, over, partitions);
  b_.dma(memory(o.buffer, value(v).dtype, o.offset, o.strides, over, partitions), src,
         uses_gpsimd() ? kStoreScalar : kStore);
}

void emit_fused(KernelBuilder& builder, Fused fused, int cores) {
  FusedEmitter(builder, std::move(fused), cores).run();
}

}  // namespace opentrn::compiler
