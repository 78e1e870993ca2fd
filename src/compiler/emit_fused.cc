#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "compiler/fused.h"
#include "compiler/fused_layout.h"
#include "compiler/fused_ops.h"

namespace opentrn::compiler {
namespace {

using graph::Op;
using isa::AccessPattern;
using isa::AluOp;
using isa::Dim;
using isa::Engine;
using isa::Memory;
using isa::Opcode;
using isa::Scalar;
using Kind = FusedValue::Kind;

// How much of SBUF one value's tile may take at most and at least, in bytes per partition.
constexpr int64_t kLargestTile = 4096, kSmallestTile = 256;

// Where a value is while the body is written.
struct Place {
  enum class Form : uint8_t { none, constant, argument, tile } form = Form::none;
  Tile tile;
  DType dtype = DType::f32;  // of the tile's elements (a narrower float than the value's dtype is read as it is)
};

class FusedEmitter {
 public:
  FusedEmitter(KernelBuilder& builder, Fused fused, int cores)
      : b_(builder), f_(std::move(fused)), cores_(cores), core_(builder.core()) {}

  void run() {
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

 private:
  enum class LoopKind : uint8_t { single, chunk, partition };
  struct Loop {
    LoopKind kind;
    int dim;
  };

  bool reduces() const { return f_.reduced != 0; }
  bool is_reduced(int d) const { return (f_.reduced >> d & 1) != 0; }
  const FusedValue& value(int v) const { return f_.values[v]; }

  // ---- plan ---------------------------------------------------------------------------------------------------
  void plan() {
    count_uses();
    absorb();
    bool single_row = false;
    for (size_t v = 0; v < f_.values.size(); ++v)
      single_row |= f_.values[v].kind == Kind::reduce && accumulates_in_place(static_cast<int>(v));
    int64_t budget = kLargestTile;
    for (;; budget /= 2) {
      layout_ = choose_layout(f_, budget, /*whole_rows=*/true, single_row);
      plan_loops();
      if (tile_bytes_total(false) <= capacity()) break;
      if (reduces()) {
        layout_ = choose_layout(f_, budget, /*whole_rows=*/false, single_row);
        plan_loops();
        if (tile_bytes_total(false) <= capacity()) break;
      }
      if (budget <= kSmallestTile / 16)
        throw Unsupported(fmt::format("fused kernel of {} values does not fit into SBUF", f_.values.size()));
    }
  }

  int64_t capacity() const { return b_.free_bytes(Memory::sbuf); }

  void plan_loops() {
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

  void count_uses() {
    uses_.assign(f_.values.size(), 0);
    for (const FusedValue& v : f_.values)
      for (int operand : v.operands) ++uses_[operand];
    for (const FusedOutput& o : f_.outputs) uses_[o.value] += 2;  // never absorbed
  }

  bool engine_value(int v) const { return is_engine_type(value(v).dtype); }
  bool scalar_form(int v) const { return value(v).kind == Kind::scalar || value(v).kind == Kind::constant; }
  bool on_engines(int v) const {
    const FusedValue& x = value(v);
    if (!engine_value(v)) return x.op == Op::convert && false;
    return std::all_of(x.operands.begin(), x.operands.end(), [&](int o) { return engine_value(o); });
  }

  // A float conversion that an engine makes for free when it reads the operand.
  bool widening(int v) const {
    const FusedValue& x = value(v);
    if (x.kind != Kind::op || x.op != Op::convert) return false;
    const DType from = value(x.operands[0]).dtype;
    return x.dtype == DType::f32 && (from == DType::bf16 || from == DType::f16 || from == DType::f32) &&
           !scalar_form(x.operands[0]);
  }

  // Decides which operations become part of their only user's instruction.
  void absorb() {
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

  // A single-use (x op scalar) that is itself not built on an absorbed value.
  bool absorbable(int v, uint64_t varies) const {
    const FusedValue& x = value(v);
    if (x.kind != Kind::op || uses_[v] != 1 || !on_engines(v) || x.operands.size() != 2 || !alu_of(x.op)) return false;
    if (x.dtype != DType::f32 || x.varies != varies || rounds_into_[v] >= 0) return false;
    const bool scalar0 = scalar_form(x.operands[0]), scalar1 = scalar_form(x.operands[1]);
    if (scalar0 == scalar1) return false;
    const int inner = scalar0 ? x.operands[1] : x.operands[0];
    return !absorbed_[inner];
  }

  // ---- cores --------------------------------------------------------------------------------------------------
  // Gives this core its range of one dimension; false when it has nothing to do.
  bool split_between_cores() {
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

  int64_t extent(int d) const { return range_[d].second - range_[d].first; }

  // ---- pools --------------------------------------------------------------------------------------------------
  // Elements per partition of a value's tile, at its largest.
  int64_t tile_elements(int v) const {
    const uint64_t varies = value(v).varies;
    auto has = [&](int d) { return d >= 0 && (varies >> d & 1) != 0; };
    int64_t n = 1;
    if (has(layout_.partition_dim)) n *= layout_.rows;
    for (int d : layout_.free_dims)
      if (has(d)) n *= f_.sizes[d];
    if (has(layout_.chunk_dim)) n *= layout_.chunk;
    return n;
  }

  DType tile_dtype(int v) const {
    if (rounds_into_[v] >= 0) return value(rounds_into_[v]).dtype;
    return value(v).dtype;
  }

  bool needs_tile(int v) const {
    const FusedValue& x = value(v);
    if (absorbed_[v] || uses_[v] == 0) return false;
    if (widening(v)) return false;
    if (x.kind == Kind::op && x.op == Op::convert && rounds_into_[x.operands[0]] == v) return false;
    if (scalar_form(v)) return as_tile_needed(v);
    return true;
  }

  // Scalars are immediates and registers wherever an instruction takes one; else they need a tile.
  bool as_tile_needed(int v) const {
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

  bool direct_copy(const FusedOutput& o) const {
    // A transfer from HBM to HBM does it, converting floats on the way.
    int v = o.value;
    if (value(v).kind == Kind::op && value(v).op == Op::convert) {
      const int from = value(v).operands[0];
      const bool floats = is_float(value(v).dtype) && is_float(value(from).dtype) && engine_value(v) && engine_value(from);
      if (floats || value(v).dtype == value(from).dtype) v = from;
    }
    if (value(v).kind != Kind::view || f_.outputs.size() != 1 || reduces()) return false;
    if (layout_.transposed) return false;
    return true;
  }

  int64_t tile_bytes_total(bool deep) const {
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

  int depth_of(int v, bool deep) const {
    if (value(v).varies == 0) return 1;
    if (!deep) return 1;
    return value(v).kind == Kind::view ? 3 : 2;
  }

  void make_pools() {
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

  // ---- structure ----------------------------------------------------------------------------------------------
  // Level of a value: how many of the outer loops it lies in.
  size_t level_of(int v) const {
    size_t level = 0;
    for (size_t l = 0; l < loops_.size(); ++l)
      if (value(v).varies >> loops_[l].dim & 1) level = l + 1;
    return level;
  }

  void nest(size_t l) {
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

  // Inside all outer loops: the stages of a reduction kernel, or the outputs of a map.
  void innermost() {
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
    for (int stage = 0; stage <= stages; ++stage) {
      std::vector<int> reductions;
      for (size_t v = 0; v < f_.values.size(); ++v)
        if (value(static_cast<int>(v)).kind == Kind::reduce && stage_[v] == stage) reductions.push_back(static_cast<int>(v));
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

  void stage_nest(size_t l, const std::function<void()>& body) {
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

  // The stage in which an output is complete: 0 for values without reductions.
  bool full_output(const FusedOutput& o) const { return (value(o.value).varies & f_.reduced) != 0 || covers_reduced(o); }
  bool covers_reduced(const FusedOutput& o) const {
    for (size_t d = 0; d < f_.sizes.size(); ++d)
      if (is_reduced(static_cast<int>(d)) && o.strides[d] != 0) return true;
    return false;
  }
  int last_stage() const { return *std::max_element(stage_.begin(), stage_.end()); }
  bool has_full_outputs(int stage) const {
    // All full outputs are stored in the last stage, so that an operand overwritten in place was read by all stages.
    if (stage != last_stage()) return false;
    return std::any_of(f_.outputs.begin(), f_.outputs.end(), [&](const FusedOutput& o) { return full_output(o); });
  }
  void store_full(int) {
    for (const FusedOutput& o : f_.outputs)
      if (full_output(o)) store(o);
  }
  void store_rows() {
    for (const FusedOutput& o : f_.outputs)
      if (!full_output(o)) store(o);
  }
  void store_outputs(bool) {
    const std::vector<Place> outer = places_;
    for (const FusedOutput& o : f_.outputs) store(o);
    places_ = outer;
  }

  // Loads and computes what varies no deeper than this level, before the loops inside are written.
  void emit_level(size_t level) {
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
      if (needs_tile(static_cast<int>(v)) && !(value(static_cast<int>(v)).varies & f_.reduced) && !depends_on_reduction(static_cast<int>(v)))
        ensure(static_cast<int>(v));
      else if ((value(static_cast<int>(v)).varies & f_.reduced) && stage_loops_.empty() && needs_tile(static_cast<int>(v)) &&
               !depends_on_reduction(static_cast<int>(v)))
        ensure(static_cast<int>(v));
    }
  }

  bool depends_on_reduction(int v) const {
    if (value(v).kind == Kind::reduce) return true;
    for (int o : value(v).operands)
      if (depends_on_reduction(o)) return true;
    return false;
  }

  // ---- operands -----------------------------------------------------------------------------------------------
  // The free dimensions of a tile, outermost first: rows, free_dims, chunk.
  struct Axis {
    int dim;
    int64_t count;
  };
  SmallVector<Axis, 4> axes() const {
    SmallVector<Axis, 4> result;
    if (layout_.partition_dim >= 0 && layout_.rows > 1) result.push_back({layout_.partition_dim, rows_});
    for (int d : layout_.free_dims) result.push_back({d, f_.sizes[d]});
    if (layout_.chunk_dim >= 0) result.push_back({layout_.chunk_dim, chunk_count()});
    return result;
  }
  int64_t chunk_count() const {
    const bool looped = std::any_of(loops_.begin(), loops_.end(), [](const Loop& l) { return l.kind == LoopKind::chunk; }) ||
                        std::any_of(stage_loops_.begin(), stage_loops_.end(),
                                    [](const Loop& l) { return l.kind == LoopKind::chunk; });
    return looped ? chunk_ : extent(layout_.chunk_dim);
  }

  // Partitions that values at a level are computed on: all that any body inside may use.
  int64_t partitions_for(uint64_t varies) const {
    const int p = layout_.partition_dim;
    if (p < 0) return 1;
    if (varies >> p & 1) return partitions_;
    return std::min<int64_t>(128, (extent(p) + layout_.rows - 1) / layout_.rows);
  }

  // `v`'s tile read with the dimensions of a computation over `varies`.
  AccessPattern operand(int v, uint64_t varies, int64_t partitions) const {
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

  AccessPattern memory(int buffer, DType dtype, int64_t offset, const std::vector<int64_t>& strides, uint64_t varies,
                       int64_t partitions) const {
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

  // ---- values -------------------------------------------------------------------------------------------------
  void ensure(int v) {
    if (places_[v].form != Place::Form::none) return;
    const FusedValue& x = value(v);
    b_.set_origin(x.origin);
    switch (x.kind) {
      case Kind::view: load(v); return;
      case Kind::scalar:
      case Kind::constant: scalar_tile(v); return;
      case Kind::iota:
      case Kind::random: index_program(v); return;
      case Kind::reduce: throw InternalError("fused kernel: a reduction is used before it is complete");
      case Kind::op: break;
    }
    if (widening(v)) {
      ensure(x.operands[0]);
      places_[v] = places_[x.operands[0]];
      return;
    }
    if (x.op == Op::convert && rounds_into_[x.operands[0]] == v) {
      ensure(x.operands[0]);
      places_[v] = places_[x.operands[0]];
      return;
    }
    if (on_engines(v))
      engine_op(v);
    else
      gpsimd_op(v);
  }

  Tile take(int v) {
    if (pools_[v] < 0) throw InternalError(fmt::format("fused kernel: value {} has no tile", v));
    return b_.take(pools_[v]);
  }

  void set(int v, const Tile& tile) { places_[v] = {Place::Form::tile, tile, tile_dtype(v)}; }

  void load(int v) {
    const FusedValue& x = value(v);
    const int64_t partitions = partitions_for(x.varies);
    const Tile tile = take(v);
    set(v, tile);
    const AccessPattern dst = operand(v, x.varies, partitions);
    const int p = layout_.partition_dim, c = layout_.chunk_dim;
    const bool transpose = layout_.transposed && (x.varies >> p & 1) && (x.varies >> c & 1) && x.strides[p] == 1 &&
                           std::abs(x.strides[c]) != 1 && (size_of(x.dtype) == 2 || size_of(x.dtype) == 4);
    if (!transpose) {
      b_.dma(dst, memory(x.buffer, x.dtype, x.offset, x.strides, x.varies, partitions), kLoad);
      return;
    }
    // Rows of HBM become columns of the tile, at most 512 at a time.
    Index at(x.offset);
    for (size_t d = 0; d < f_.sizes.size(); ++d)
      if (x.strides[d]) at = at + base_[d] * x.strides[d];
    const int64_t count = chunk_count();
    for (int64_t first = 0; first < count; first += 512) {
      const int64_t n = std::min<int64_t>(512, count - first);
      AccessPattern src = b_.hbm(x.buffer, x.dtype, at + first * x.strides[c], n, x.strides[c],
                                 SmallVector<Dim, 4>{Dim{1, static_cast<int32_t>(partitions)}});
      b_.dma_transpose(b_.at(tile, x.dtype, partitions, {Dim{1, static_cast<int32_t>(n)}}, first), src, kLoad);
    }
  }

  Scalar scalar_operand(int v) const {
    const FusedValue& x = value(v);
    if (x.kind == Kind::scalar) return Scalar::arg(x.argument);
    return Scalar::imm(is_float(x.dtype) ? x.real : static_cast<double>(x.integer));
  }

  void scalar_tile(int v) {
    const Tile tile = take(v);
    set(v, tile);
    b_.fill(engine_value(v) ? Engine::vector : Engine::gpsimd, operand(v, 0, partitions_for(0)), scalar_operand(v));
  }

  void index_program(int v) {
    const FusedValue& x = value(v);
    const int64_t partitions = partitions_for(x.varies);
    const Tile tile = take(v);
    set(v, tile);
    const int kernel = b_.kernel(x.kind == Kind::iota ? iota_kernel(x.dtype) : philox_kernel(x.argument, x.second_argument));
    auto& i = b_.gpsimd(kernel, operand(v, x.varies, partitions), {});
    set_index(i, x.offset, x.strides, x.varies);
  }

  // The `index` of a row program: x = first + sum over dimensions of strides[d] * position.
  void set_index(isa::Instruction& i, int64_t first, const std::vector<int64_t>& strides, uint64_t varies) const {
    Index at(first);
    for (size_t d = 0; d < f_.sizes.size(); ++d)
      if (strides[d]) at = at + base_[d] * strides[d];
    i.s0 = Scalar::imm(static_cast<double>(at.constant()));
    for (const isa::Term& term : at.terms()) i.pattern_terms.push_back(term);
    const int p = layout_.partition_dim;
    i.channel_multiplier = p >= 0 ? strides[p] * layout_.rows : 0;
    for (const Axis& axis : axes())
      if (varies >> axis.dim & 1) i.pattern.push_back({strides[axis.dim], static_cast<int32_t>(axis.count)});
    if (i.pattern.empty()) i.pattern.push_back({0, 1});
  }

  // (x op scalar) of an absorbed operand: the instruction's first operand and its first ALU operation.
  struct Inner {
    int x = -1;
    AluOp op = AluOp::none;
    Scalar scalar;
    bool reverse = false;
  };
  Inner inner_of(int v) {
    const FusedValue& x = value(v);
    const bool scalar_first = scalar_form(x.operands[0]);
    Inner inner;
    inner.x = scalar_first ? x.operands[1] : x.operands[0];
    inner.op = *alu_of(x.op);
    inner.scalar = scalar_operand(scalar_first ? x.operands[0] : x.operands[1]);
    inner.reverse = scalar_first;
    ensure(inner.x);
    return inner;
  }

  // A value with one f32 number per partition can be an instruction's scalar operand.
  bool row_scalar(int v, uint64_t varies) const {
    const FusedValue& x = value(v);
    if (scalar_form(v) || places_[v].dtype != DType::f32) return false;
    const int p = layout_.partition_dim;
    const uint64_t bit = p >= 0 ? uint64_t{1} << p : 0;
    if (x.varies & ~bit) return false;
    if (layout_.rows > 1 && (x.varies & bit)) return false;
    return (varies & ~bit) != 0;
  }

  void engine_op(int v) {
    const FusedValue& x = value(v);
    for (int o : x.operands)
      if (!absorbed_[o] && (!scalar_form(o) || pools_[o] >= 0)) ensure(o);
    const int64_t partitions = partitions_for(x.varies);
    auto read = [&](int o) { return operand(o, x.varies, partitions); };
    if (x.operands.size() == 2 && alu_of(x.op)) return binary(v, partitions);
    const int a = x.operands[0];
    const Tile tile = take(v);
    set(v, tile);
    const AccessPattern dst = operand(v, x.varies, partitions);
    if (auto act = activation_of(x.op)) {
      b_.activation(dst, *act, read(a));
    } else if (x.op == Op::convert || x.op == Op::rounded || x.op == Op::bitcast) {
      b_.copy(Engine::vector, dst, read(a));
    } else if (x.op == Op::neg) {
      b_.tensor_scalar(Engine::vector, dst, read(a), AluOp::mult, Scalar::imm(-1));
    } else if (x.op == Op::reciprocal) {
      auto& i = b_.emit(Opcode::reciprocal, Engine::vector);
      i.dst = dst;
      i.src.push_back(read(a));
    } else if (x.op == Op::logical_not || (x.op == Op::bitwise_not && x.dtype == DType::boolean)) {
      b_.tensor_scalar(Engine::vector, dst, read(a), AluOp::is_equal, Scalar::imm(0));
    } else if (x.op == Op::is_nan) {
      b_.tensor_tensor(Engine::vector, dst, read(a), AluOp::not_equal, read(a));
    } else if (x.op == Op::select) {
      auto& i = b_.emit(Opcode::select, Engine::vector);
      i.dst = dst;
      i.src.push_back(read(a));
      i.src.push_back(read(x.operands[1]));
      i.src.push_back(read(x.operands[2]));
    } else if (x.op == Op::clamp && scalar_form(x.operands[1]) && scalar_form(x.operands[2])) {
      b_.tensor_scalar(Engine::vector, dst, read(a), AluOp::max, scalar_operand(x.operands[1]), AluOp::min,
                       scalar_operand(x.operands[2]));
    } else if (x.dtype == DType::boolean && (x.op == Op::bitwise_and || x.op == Op::bitwise_or || x.op == Op::bitwise_xor)) {
      const AluOp op = x.op == Op::bitwise_and ? AluOp::logical_and
                       : x.op == Op::bitwise_or ? AluOp::logical_or : AluOp::logical_xor;
      b_.tensor_tensor(Engine::vector, dst, read(a), op, read(x.operands[1]));
    } else {
      run_program(v, dst, partitions);
    }
  }

  void binary(int v, int64_t partitions) {
    const FusedValue& x = value(v);
    const int a = x.operands[0], c = x.operands[1];
    const AluOp op = *alu_of(x.op);
    auto read = [&](int o) { return operand(o, x.varies, partitions); };
    const bool scalar_a = scalar_form(a), scalar_c = scalar_form(c);
    if (scalar_a && scalar_c) {
      // Both are launch values or constants: the first one has a tile.
      const Tile tile = take(v);
      set(v, tile);
      b_.tensor_scalar(Engine::vector, operand(v, x.varies, partitions), read(a), op, scalar_operand(c));
      return;
    }
    if (scalar_a || scalar_c) {
      const int tensor = scalar_a ? c : a;
      const Scalar scalar = scalar_operand(scalar_a ? a : c);
      if (absorbed_[tensor]) {
        const Inner inner = inner_of(tensor);
        const Tile tile = take(v);
        set(v, tile);
        auto& i = b_.tensor_scalar(Engine::vector, operand(v, x.varies, partitions), read(inner.x), inner.op,
                                   inner.scalar, op, scalar);
        i.reverse0 = inner.reverse;
        i.reverse1 = scalar_a;
        return;
      }
      const Tile tile = take(v);
      set(v, tile);
      auto& i = b_.tensor_scalar(Engine::vector, operand(v, x.varies, partitions), read(tensor), op, scalar);
      i.reverse0 = scalar_a;
      return;
    }
    if (absorbed_[a] || absorbed_[c]) {
      const bool first = absorbed_[a];
      const Inner inner = inner_of(first ? a : c);
      const int other = first ? c : a;
      const Tile tile = take(v);
      set(v, tile);
      auto& i = b_.emit(Opcode::scalar_tensor_tensor, Engine::vector);
      i.dst = operand(v, x.varies, partitions);
      i.src.push_back(read(inner.x));
      i.src.push_back(read(other));
      i.op0 = inner.op;
      i.s0 = inner.scalar;
      i.reverse0 = inner.reverse;
      i.op1 = op;
      i.reverse1 = !first;
      return;
    }
    const Tile tile = take(v);
    set(v, tile);
    const AccessPattern dst = operand(v, x.varies, partitions);
    if (row_scalar(c, x.varies) || row_scalar(a, x.varies)) {
      const bool second = row_scalar(c, x.varies);
      const int tensor = second ? a : c, row = second ? c : a;
      auto& i = b_.tensor_scalar(Engine::vector, dst, read(tensor), op,
                                 Scalar::of(b_.at(places_[row].tile, DType::f32, partitions, {})));
      i.reverse0 = !second;
      return;
    }
    b_.tensor_tensor(Engine::vector, dst, read(a), op, read(c));
  }

  // A register program on GpSimd: 64-bit types, integer arithmetic, functions no other engine has.
  void gpsimd_op(int v) {
    const FusedValue& x = value(v);
    for (int o : x.operands)
      if (!scalar_form(o)) ensure(o);
    const int64_t partitions = partitions_for(x.varies);
    const Tile tile = take(v);
    set(v, tile);
    run_program(v, operand(v, x.varies, partitions), partitions);
  }

  void run_program(int v, const AccessPattern& dst, int64_t partitions) {
    const FusedValue& x = value(v);
    std::vector<KernelOperand> operands;
    SmallVector<AccessPattern, 3> src;
    for (int o : x.operands) {
      KernelOperand k;
      k.dtype = value(o).dtype;
      if (value(o).kind == Kind::scalar) {
        k.kind = KernelOperand::Kind::argument;
        k.index = value(o).argument;
      } else if (value(o).kind == Kind::constant) {
        k.kind = KernelOperand::Kind::constant;
        k.real = is_float(k.dtype) ? value(o).real : static_cast<double>(value(o).integer);
        k.integer = is_float(k.dtype) ? static_cast<int64_t>(value(o).real) : value(o).integer;
      } else {
        k.index = static_cast<int>(src.size());
        src.push_back(operand(o, x.varies, partitions));
      }
      operands.push_back(k);
    }
    const int kernel = b_.kernel(elementwise_kernel(x.op, x.dtype, operands, static_cast<int>(src.size())));
    auto& i = b_.gpsimd(kernel, dst, {});
    for (const AccessPattern& s : src) i.src.push_back(s);
    if (src.empty() && dst.dims.empty()) i.dst.dims.push_back({1, 1});
  }

  // ---- reductions ---------------------------------------------------------------------------------------------
  bool arg_reduction(int v) const { return value(v).op == Op::argmax || value(v).op == Op::argmin; }
  // Row programs and arg reductions add to an accumulator that they find in memory.
  bool accumulates_in_place(int v) const {
    return arg_reduction(v) || !engine_value(value(v).operands[0]) || !engine_value(v);
  }
  bool accumulates(int v) const { return !stage_loops_.empty() || accumulates_in_place(v); }

  void begin_reduction(int v) {
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

  // The result's dimensions without the reduced ones: at most the rows.
  AccessPattern row_pattern(const Tile& tile, DType dtype, int v, int64_t partitions) const {
    SmallVector<Dim, 4> dims;
    if (layout_.rows > 1 && (value(v).varies >> layout_.partition_dim & 1)) dims.push_back({1, static_cast<int32_t>(rows_)});
    return b_.at(tile, dtype, partitions, dims);
  }

  void reduce_chunk(int v) {
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
        if (is_reduced(axis.dim)) dims.push_back({0, last ? 1 : static_cast<int32_t>(axis.count)});
        else dims.push_back({1, static_cast<int32_t>(axis.count)});
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

  void end_reduction(int) {}

  // ---- outputs ------------------------------------------------------------------------------------------------
  void store(const FusedOutput& o) {
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
    b_.dma(memory(o.buffer, value(v).dtype, o.offset, o.strides, over, partitions), src, uses_gpsimd() ? kStoreScalar : kStore);
  }

  bool uses_gpsimd() const {
    for (size_t v = 0; v < f_.values.size(); ++v) {
      const FusedValue& x = f_.values[v];
      if (x.kind == Kind::iota || x.kind == Kind::random) return true;
      if (x.kind == Kind::op && !on_engines(static_cast<int>(v))) return true;
      if (x.kind == Kind::reduce && accumulates_in_place(static_cast<int>(v))) return true;
    }
    return false;
  }

  KernelBuilder& b_;
  Fused f_;
  const int cores_, core_;
  FusedLayout layout_;
  std::vector<Loop> loops_, stage_loops_;
  std::vector<std::pair<int64_t, int64_t>> range_;
  std::vector<int> uses_, rounds_into_, pools_, parts_, stage_;
  std::vector<char> absorbed_;
  std::vector<Place> places_;
  std::vector<Index> base_;
  Tile best_;
  int64_t partitions_ = 1, rows_ = 1, chunk_ = 1;
};

}  // namespace

void emit_fused(KernelBuilder& builder, Fused fused, int cores) { FusedEmitter(builder, std::move(fused), cores).run(); }

}  // namespace opentrn::compiler
