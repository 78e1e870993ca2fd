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

namespace {

// How much of SBUF one value's tile may take at most and at least, in bytes per partition.
constexpr int64_t kLargestTile = 4096, kSmallestTile = 256;

}  // namespace

void FusedEmitter::plan() {
  fit();
  if (widen_outputs()) fit();
}

// Chooses the layout with the largest tiles that SBUF holds.
void FusedEmitter::fit() {
  count_uses();
  absorb();
  bool single_row = false;
  for (size_t v = 0; v < f_.values.size(); ++v)
    single_row |= f_.values[v].kind == Kind::reduce && accumulates_in_place(static_cast<int>(v));
  for (int64_t budget = kLargestTile;; budget /= 2) {
    for (const bool whole_rows : {true, false}) {
      if (!whole_rows && !reduces()) continue;
      layout_ = choose_layout(f_, budget, whole_rows, single_row);
      plan_loops();
      if (tile_bytes_total(false) <= capacity()) return;
    }
    if (budget <= kSmallestTile / 16)
      throw Unsupported(fmt::format("fused kernel of {} values does not fit into SBUF", f_.values.size()));
  }
}

// A transfer reads SBUF in contiguous runs. A value that is broadcast along the innermost dimension of a result is
// written out along it first.
bool FusedEmitter::widen_outputs() {
  const int inner = layout_.chunk_dim >= 0 ? layout_.chunk_dim : layout_.partition_dim;
  if (inner < 0 || (layout_.chunk_dim < 0 && layout_.rows == 1)) return false;
  bool widened = false;
  for (FusedOutput& o : f_.outputs) {
    const FusedValue& x = value(o.value);
    if ((x.varies >> inner & 1) || o.strides[inner] == 0 || (reduces() && !is_reduced(inner))) continue;
    FusedValue wide = x;
    if (!scalar_form(o.value)) {
      wide = FusedValue();
      wide.op = Op::rounded;
      wide.dtype = x.dtype;
      wide.operands = {o.value};
      wide.origin = x.origin;
    }
    wide.varies = x.varies | uint64_t{1} << inner;
    f_.values.push_back(wide);
    o.value = static_cast<int>(f_.values.size()) - 1;
    widened = true;
  }
  return widened;
}

void FusedEmitter::plan_loops() {
  loops_.clear();
  stage_loops_.clear();
  for (int d : layout_.loops) (is_reduced(d) ? stage_loops_ : loops_).push_back({LoopKind::single, d});
  const bool chunked = layout_.chunk_dim >= 0 && layout_.chunk < f_.sizes[layout_.chunk_dim];
  if (!reduces()) {
    if (chunked) loops_.push_back({LoopKind::chunk, layout_.chunk_dim});
    if (layout_.partition_dim >= 0) loops_.push_back({LoopKind::partition, layout_.partition_dim});
  } else {
    if (layout_.partition_dim >= 0) loops_.push_back({LoopKind::partition, layout_.partition_dim});
    if (chunked) stage_loops_.push_back({LoopKind::chunk, layout_.chunk_dim});
  }
}

void FusedEmitter::count_uses() {
  uses_.assign(f_.values.size(), 0);
  for (const FusedValue& v : f_.values)
    for (int operand : v.operands) ++uses_[operand];
  for (const FusedOutput& o : f_.outputs) uses_[o.value] += 2;  // never absorbed
}

bool FusedEmitter::on_engines(int v) const {
  const FusedValue& x = value(v);
  if (!engine_value(v)) return false;
  return std::all_of(x.operands.begin(), x.operands.end(), [&](int o) { return engine_value(o); });
}

bool FusedEmitter::widening(int v) const {
  const FusedValue& x = value(v);
  if (x.kind != Kind::op || x.op != Op::convert) return false;
  const DType from = value(x.operands[0]).dtype;
  return x.dtype == DType::f32 && (from == DType::bf16 || from == DType::f16 || from == DType::f32) &&
         !scalar_form(x.operands[0]);
}

void FusedEmitter::absorb() {
  absorbed_.assign(f_.values.size(), false);
  rounds_into_.assign(f_.values.size(), -1);
  for (size_t v = 0; v < f_.values.size(); ++v) {
    const FusedValue& x = f_.values[v];
    if (x.kind != Kind::op) continue;
    // op -> convert to a narrower float: the engine rounds as it writes.
    if (x.op == Op::convert && on_engines(static_cast<int>(v)) && is_float(x.dtype)) {
      const int o = x.operands[0];
      if (value(o).kind == Kind::op && uses_[o] == 1 && on_engines(o) && value(o).varies == x.varies &&
          value(o).dtype == DType::f32 && !absorbed_[o] && !widening(o) && rounds_into_[o] < 0) {
        rounds_into_[o] = static_cast<int>(v);
      }
    }
    if (!on_engines(static_cast<int>(v)) || x.operands.size() != 2 || !alu_of(x.op)) continue;
    const bool scalar0 = scalar_form(x.operands[0]), scalar1 = scalar_form(x.operands[1]);
    if (scalar0 && scalar1) continue;
    if (scalar0 || scalar1) {
      const int inner = scalar0 ? x.operands[1] : x.operands[0];
      if (absorbable(inner, x.varies)) absorbed_[inner] = true;
    } else {
      for (int side : {0, 1})
        if (absorbable(x.operands[side], x.varies)) {
          absorbed_[x.operands[side]] = true;
          break;
        }
    }
  }
}

bool FusedEmitter::absorbable(int v, uint64_t varies) const {
  const FusedValue& x = value(v);
  if (x.kind != Kind::op || uses_[v] != 1 || !on_engines(v) || x.operands.size() != 2 || !alu_of(x.op)) return false;
  if (x.dtype != DType::f32 || x.varies != varies || rounds_into_[v] >= 0) return false;
  const bool scalar0 = scalar_form(x.operands[0]), scalar1 = scalar_form(x.operands[1]);
  if (scalar0 == scalar1) return false;
  const int inner = scalar0 ? x.operands[1] : x.operands[0];
  return !absorbed_[inner];
}

bool FusedEmitter::split_between_cores() {
  range_.clear();
  for (int64_t size : f_.sizes) range_.push_back({0, size});
  if (cores_ == 1) return true;
  int64_t total = 1;
  for (int64_t size : f_.sizes) total *= size;
  int dim = -1;
  int64_t unit = 1;
  if (total >= 32768) {
    for (const Loop& loop : loops_)
      if (loop.kind == LoopKind::single && dim < 0 && f_.sizes[loop.dim] >= 2) dim = loop.dim;
    const int p = layout_.partition_dim, c = layout_.chunk_dim;
    if (dim < 0 && p >= 0 && f_.sizes[p] >= 256 * layout_.rows) {
      dim = p;
      unit = 128 * layout_.rows;
    }
    if (dim < 0 && c >= 0 && !is_reduced(c) && f_.sizes[c] >= 512) dim = c;
    if (dim < 0 && p >= 0 && f_.sizes[p] >= 2) {
      dim = p;
      unit = layout_.rows;
    }
  }
  if (dim < 0) return core_ == 0;
  const int64_t units = (f_.sizes[dim] + unit - 1) / unit;
  const int64_t begin = std::min(f_.sizes[dim], units * core_ / cores_ * unit);
  const int64_t end = std::min(f_.sizes[dim], units * (core_ + 1) / cores_ * unit);
  range_[dim] = {begin, end};
  return begin < end;
}

int64_t FusedEmitter::tile_elements(int v) const {
  const uint64_t varies = value(v).varies;
  auto has = [&](int d) { return d >= 0 && (varies >> d & 1) != 0; };
  int64_t n = 1;
  if (has(layout_.partition_dim)) n *= layout_.rows;
  for (int d : layout_.free_dims)
    if (has(d)) n *= f_.sizes[d];
  if (has(layout_.chunk_dim)) n *= layout_.chunk;
  return n;
}

DType FusedEmitter::tile_dtype(int v) const {
  if (rounds_into_[v] >= 0) return value(rounds_into_[v]).dtype;
  return value(v).dtype;
}

bool FusedEmitter::needs_tile(int v) const {
  const FusedValue& x = value(v);
  if (absorbed_[v] || uses_[v] == 0) return false;
  if (widening(v)) return false;
  if (x.kind == Kind::op && x.op == Op::convert && rounds_into_[x.operands[0]] == v) return false;
  if (scalar_form(v)) return as_tile_needed(v);
  return true;
}

bool FusedEmitter::as_tile_needed(int v) const {
  for (size_t u = 0; u < f_.values.size(); ++u) {
    const FusedValue& x = f_.values[u];
    if (x.kind == Kind::reduce && x.operands[0] == v) return true;
    if (x.kind != Kind::op || !on_engines(static_cast<int>(u))) continue;
    const bool used = std::find(x.operands.begin(), x.operands.end(), v) != x.operands.end();
    if (!used) continue;
    if (x.operands.size() != 2 || !alu_of(x.op)) return true;
    if (scalar_form(x.operands[0]) && scalar_form(x.operands[1]) && x.operands[0] == v) return true;
  }
  for (const FusedOutput& o : f_.outputs)
    if (o.value == v) return true;
  return false;
}

bool FusedEmitter::direct_copy(const FusedOutput& o) const {
  // A transfer from HBM to HBM does it, converting floats on the way.
  int v = o.value;
  if (value(v).kind == Kind::op && value(v).op == Op::convert) {
    const int from = value(v).operands[0];
    const bool floats =
        is_float(value(v).dtype) && is_float(value(from).dtype) && engine_value(v) && engine_value(from);
    if (floats || value(v).dtype == value(from).dtype) v = from;
  }
  if (value(v).kind != Kind::view || f_.outputs.size() != 1 || reduces()) return false;
  if (layout_.transposed) return false;
  return true;
}

int64_t FusedEmitter::tile_bytes_total(bool deep) const {
  int64_t total = 0;
  if (f_.outputs.size() == 1 && direct_copy(f_.outputs[0])) return 0;
  for (size_t v = 0; v < f_.values.size(); ++v)
    if (needs_tile(static_cast<int>(v)))
      total += depth_of(static_cast<int>(v), deep) *
               ((tile_elements(static_cast<int>(v)) * size_of(tile_dtype(static_cast<int>(v))) + 63) / 64 * 64);
  if (reduces())
    for (size_t v = 0; v < f_.values.size(); ++v)
      if (value(static_cast<int>(v)).kind == Kind::reduce) total += 4 * 64 + 2 * 8 * layout_.rows;
  return total;
}

int FusedEmitter::depth_of(int v, bool deep) const {
  if (value(v).varies == 0) return 1;
  if (!deep) return 1;
  return value(v).kind == Kind::view ? 3 : 2;
}

void FusedEmitter::make_pools() {
  pools_.assign(f_.values.size(), -1);
  parts_.assign(f_.values.size(), -1);
  if (f_.outputs.size() == 1 && direct_copy(f_.outputs[0])) return;
  // Deep pools overlap loads, computation and stores; give up depth before giving up size.
  const bool deep = tile_bytes_total(true) <= capacity();
  for (size_t k = 0; k < f_.values.size(); ++k) {
    const int v = static_cast<int>(k);
    if (!needs_tile(v)) continue;
    const int64_t bytes = tile_elements(v) * size_of(tile_dtype(v));
    pools_[v] = b_.pool(fmt::format("v{}", v), Memory::sbuf, bytes, depth_of(v, deep));
    if (value(v).kind == Kind::reduce && (!stage_loops_.empty() || accumulates_in_place(v)))
      parts_[v] = b_.pool(fmt::format("part{}", v), Memory::sbuf, layout_.rows * 8, 1);
  }
}

bool FusedEmitter::uses_gpsimd() const {
  for (size_t v = 0; v < f_.values.size(); ++v) {
    const FusedValue& x = f_.values[v];
    if (x.kind == Kind::iota || x.kind == Kind::random) return true;
    if (x.kind == Kind::op && !on_engines(static_cast<int>(v))) return true;
    if (x.kind == Kind::reduce && accumulates_in_place(static_cast<int>(v))) return true;
  }
  return false;
}

}  // namespace opentrn::compiler
