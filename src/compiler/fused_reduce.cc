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

void FusedEmitter::innermost() {
  if (!reduces()) return store_outputs(false);
  int stages = 0;
  stage_.assign(f_.values.size(), 0);
  for (size_t v = 0; v < f_.values.size(); ++v) {
    for (int o : value(static_cast<int>(v)).operands)
      stage_[v] = std::max(stage_[v], stage_[o] + (value(o).kind == Kind::reduce ? 1 : 0));
    stages = std::max(stages, stage_[v]);
  }
  const std::vector<Place> outer = places_;
  const bool single_pass = stage_loops_.empty();
  stages = last_stage();
  for (int stage = 0; stage <= stages; ++stage) {
    std::vector<int> reductions;
    for (size_t v = 0; v < f_.values.size(); ++v)
      if (value(static_cast<int>(v)).kind == Kind::reduce && stage_[v] == stage)
        reductions.push_back(static_cast<int>(v));
    // Row values whose operands are complete.
    for (size_t v = 0; v < f_.values.size(); ++v)
      if (value(static_cast<int>(v)).kind != Kind::reduce && !(value(static_cast<int>(v)).varies & f_.reduced) &&
          stage_[v] <= stage && !single_pass && needs_tile(static_cast<int>(v)))
        ensure(static_cast<int>(v));
    const bool stores = has_full_outputs(stage);
    if (reductions.empty() && !stores) continue;
    for (int r : reductions) begin_reduction(r);
    if (single_pass) {
      for (int r : reductions) reduce_chunk(r);
      if (stores) store_full(stage);
    } else {
      stage_nest(0, [&] {
        const std::vector<Place> before = places_;
        for (int r : reductions) reduce_chunk(r);
        if (stores) store_full(stage);
        places_ = before;  // the next chunk computes its values again
      });
    }
    for (int r : reductions) end_reduction(r);
  }
  store_rows();
  places_ = outer;
}

void FusedEmitter::stage_nest(size_t l, const std::function<void()>& body) {
  if (l == stage_loops_.size()) return body();
  const Loop loop = stage_loops_[l];
  if (loop.kind == LoopKind::single)
    b_.loop(extent(loop.dim), [&](Index i) {
      base_[loop.dim] = i;
      stage_nest(l + 1, body);
    });
  else
    b_.blocks(extent(loop.dim), layout_.chunk, [&](Index i, int64_t count) {
      base_[loop.dim] = i;
      chunk_ = count;
      stage_nest(l + 1, body);
    });
}

bool FusedEmitter::covers_reduced(const FusedOutput& o) const {
  for (size_t d = 0; d < f_.sizes.size(); ++d)
    if (is_reduced(static_cast<int>(d)) && o.strides[d] != 0) return true;
  return false;
}

int FusedEmitter::last_stage() const {
  int last = 0;
  for (size_t v = 0; v < stage_.size(); ++v) last = std::max(last, stage_[v]);
  for (const FusedOutput& o : f_.outputs)
    if (full_output(o)) last = std::max(last, stage_[o.value] + (value(o.value).kind == Kind::reduce ? 1 : 0));
  return last;
}

bool FusedEmitter::has_full_outputs(int stage) const {
  // All full outputs are stored in the last stage, so that an operand overwritten in place was read by all stages.
  if (stage != last_stage()) return false;
  return std::any_of(f_.outputs.begin(), f_.outputs.end(), [&](const FusedOutput& o) { return full_output(o); });
}

void FusedEmitter::store_full(int) {
  for (const FusedOutput& o : f_.outputs)
    if (full_output(o)) store(o);
}

void FusedEmitter::store_rows() {
  for (const FusedOutput& o : f_.outputs)
    if (!full_output(o)) store(o);
}

bool FusedEmitter::depends_on_reduction(int v) const {
  if (value(v).kind == Kind::reduce) return true;
  for (int o : value(v).operands)
    if (depends_on_reduction(o)) return true;
  return false;
}

void FusedEmitter::begin_reduction(int v) {
  const FusedValue& x = value(v);
  const int64_t partitions = partitions_for(x.varies);
  const Tile tile = take(v);
  set(v, tile);
  if (!accumulates(v)) return;
  if (arg_reduction(v)) {
    best_ = b_.take(parts_[v]);
    const DType dtype = value(x.operands[0]).dtype;
    b_.fill(Engine::gpsimd, row_pattern(best_, dtype, v, partitions), Scalar::imm(reduction_identity(x.op, dtype)));
    b_.fill(Engine::gpsimd, row_pattern(tile, DType::i64, v, partitions), Scalar::imm(-1));
    return;
  }
  const bool program = accumulates_in_place(v);
  b_.fill(program ? Engine::gpsimd : Engine::vector, row_pattern(tile, tile_dtype(v), v, partitions),
          Scalar::imm(reduction_identity(x.op, x.dtype)));
}

AccessPattern FusedEmitter::row_pattern(const Tile& tile, DType dtype, int v, int64_t partitions) const {
  SmallVector<Dim, 4> dims;
  if (layout_.rows > 1 && (value(v).varies >> layout_.partition_dim & 1))
    dims.push_back({1, static_cast<int32_t>(rows_)});
  return b_.at(tile, dtype, partitions, dims);
}

void FusedEmitter::reduce_chunk(int v) {
  const FusedValue& x = value(v);
  const int source = x.operands[0];
  ensure(source);
  b_.set_origin(x.origin);
  const int64_t partitions = partitions_for(x.varies);
  // The source is read over all its axes, broadcast where it does not vary.
  const uint64_t over = x.varies | f_.reduced;
  const AccessPattern src = operand(source, over, partitions);
  const Tile tile = places_[v].tile;
  int reduced_axes = 0;
  for (const Axis& axis : axes()) reduced_axes += is_reduced(axis.dim);
  if (!accumulates_in_place(v)) {
    const AccessPattern dst = row_pattern(tile, tile_dtype(v), v, partitions);
    if (reduced_axes == 0) {
      b_.tensor_tensor(Engine::vector, dst, dst, reduction_alu(x.op), src);
    } else if (!accumulates(v)) {
      b_.reduce(dst, reduction_alu(x.op), src, reduced_axes);
    } else {
      const Tile part = b_.take(parts_[v]);
      const AccessPattern partial = row_pattern(part, DType::f32, v, partitions);
      b_.reduce(partial, reduction_alu(x.op), src, reduced_axes);
      b_.tensor_tensor(Engine::vector, dst, dst, reduction_alu(x.op), partial);
    }
    return;
  }
  // Row program: operand dimensions are those of the source, the accumulator does not move along reduced ones.
  auto accumulator = [&](const Tile& t, DType dtype) {
    SmallVector<Dim, 4> dims;
    for (size_t k = 0; k < axes().size(); ++k) {
      const Axis axis = axes()[k];
      if (!(over >> axis.dim & 1)) continue;
      const bool last = k + 1 == axes().size();
      if (is_reduced(axis.dim))
        dims.push_back({0, last ? 1 : static_cast<int32_t>(axis.count)});
      else
        dims.push_back({1, static_cast<int32_t>(axis.count)});
    }
    return b_.at(t, dtype, partitions, dims);
  };
  AccessPattern from = src;
  AccessPattern into = accumulator(arg_reduction(v) ? best_ : tile, arg_reduction(v) ? value(source).dtype : x.dtype);
  if (reduced_axes == 0 || from.dims.empty()) {
    from.dims.push_back({0, 1});
    into.dims.push_back({0, 1});
  }
  if (arg_reduction(v)) {
    auto& i = b_.gpsimd(b_.kernel(arg_reduction_kernel(x.op, value(source).dtype)), into, {from});
    i.dst1 = accumulator(tile, DType::i64);
    if (i.dst1.dims.size() < into.dims.size()) i.dst1.dims.push_back({0, 1});
    std::vector<int64_t> strides(f_.sizes.size(), 0);
    int64_t stride = 1;
    for (size_t d = f_.sizes.size(); d-- > 0;)
      if (is_reduced(static_cast<int>(d))) {
        strides[d] = stride;
        stride *= f_.sizes[d];
      }
    set_index(i, 0, strides, over);
    if (i.pattern.size() < from.dims.size()) i.pattern.push_back({0, 1});
    return;
  }
  b_.gpsimd(b_.kernel(reduction_kernel(x.op, x.dtype)), into, {from});
}

}  // namespace opentrn::compiler
