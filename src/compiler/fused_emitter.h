// Writes one fused kernel for one core: what every part of the emission shares.
//   fused_plan.cc    which operations share an instruction, tile sizes, pools, what each core does
//   emit_fused.cc    loops, operands, loads hoisted out of loops, stores
//   fused_values.cc  one value: its load or its instruction
//   fused_reduce.cc  reductions, stage by stage
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "compiler/fused.h"
#include "compiler/fused_layout.h"
#include "compiler/fused_ops.h"

namespace opentrn::compiler {

// Where a value is while the body is written.
struct Place {
  enum class Form : uint8_t { none, tile } form = Form::none;
  Tile tile;
  DType dtype = DType::f32;  // of the tile's elements (a narrower float than the value's dtype is read as it is)
};

class FusedEmitter {
 public:
  FusedEmitter(KernelBuilder& builder, Fused fused, int cores)
      : b_(builder), f_(std::move(fused)), cores_(cores), core_(builder.core()) {}

  void run();

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
  void plan();
  void fit();
  bool widen_outputs();

  int64_t capacity() const { return b_.free_bytes(isa::Memory::sbuf); }

  void plan_loops();

  void count_uses();

  bool engine_value(int v) const { return is_engine_type(value(v).dtype); }
  bool scalar_form(int v) const {
    return value(v).kind == FusedValue::Kind::scalar || value(v).kind == FusedValue::Kind::constant;
  }
  bool on_engines(int v) const;

  // A float conversion that an engine makes for free when it reads the operand.
  bool widening(int v) const;

  // Decides which operations become part of their only user's instruction.
  void absorb();

  // A single-use (x op scalar) that is itself not built on an absorbed value.
  bool absorbable(int v, uint64_t varies) const;

  // ---- cores --------------------------------------------------------------------------------------------------
  // Gives this core its range of one dimension; false when it has nothing to do.
  bool split_between_cores();

  int64_t extent(int d) const { return range_[d].second - range_[d].first; }

  // ---- pools --------------------------------------------------------------------------------------------------
  // Elements per partition of a value's tile, at its largest.
  int64_t tile_elements(int v) const;

  DType tile_dtype(int v) const;

  bool needs_tile(int v) const;

  // Scalars are immediates and registers wherever an instruction takes one; else they need a tile.
  bool as_tile_needed(int v) const;

  bool direct_copy(const FusedOutput& o) const;

  int64_t tile_bytes_total(bool deep) const;

  int depth_of(int v, bool deep) const;

  void make_pools();

  // ---- structure ----------------------------------------------------------------------------------------------
  // Level of a value: how many of the outer loops it lies in.
  size_t level_of(int v) const;

  void nest(size_t l);

  // Inside all outer loops: the stages of a reduction kernel, or the outputs of a map.
  void innermost();

  void stage_nest(size_t l, const std::function<void()>& body);

  // The stage in which an output is complete: 0 for values without reductions.
  bool full_output(const FusedOutput& o) const {
    return (value(o.value).varies & f_.reduced) != 0 || covers_reduced(o);
  }
  bool covers_reduced(const FusedOutput& o) const;
  // The pass over a row in which full outputs are stored: behind every reduction.
  int last_stage() const;
  bool has_full_outputs(int stage) const;
  void store_full(int);
  void store_rows();
  void store_outputs(bool);

  // Loads and computes what varies no deeper than this level, before the loops inside are written.
  void emit_level(size_t level);

  bool depends_on_reduction(int v) const;

  // ---- operands -----------------------------------------------------------------------------------------------
  // The free dimensions of a tile, outermost first: rows, free_dims, chunk.
  struct Axis {
    int dim;
    int64_t count;
  };
  SmallVector<Axis, 4> axes() const;
  int64_t chunk_count() const;

  // Partitions that values at a level are computed on: all that any body inside may use.
  int64_t partitions_for(uint64_t varies) const;

  // `v`'s tile read with the dimensions of a computation over `varies`.
  isa::AccessPattern operand(int v, uint64_t varies, int64_t partitions) const;

  isa::AccessPattern memory(int buffer, DType dtype, int64_t offset, const std::vector<int64_t>& strides,
                            uint64_t varies, int64_t partitions) const;

  // ---- values -------------------------------------------------------------------------------------------------
  void ensure(int v);

  Tile take(int v);

  void set(int v, const Tile& tile) { places_[v] = {Place::Form::tile, tile, tile_dtype(v)}; }

  void load(int v);

  isa::Scalar scalar_operand(int v) const;

  void scalar_tile(int v);

  void index_program(int v);

  // The `index` of a row program: x = first + sum over dimensions of strides[d] * position.
  void set_index(isa::Instruction& i, int64_t first, const std::vector<int64_t>& strides, uint64_t varies) const;

  // (x op scalar) of an absorbed operand: the instruction's first operand and its first ALU operation.
  struct Inner {
    int x = -1;
    isa::AluOp op = isa::AluOp::none;
    isa::Scalar scalar;
    bool reverse = false;
  };
  Inner inner_of(int v);

  // A value with one f32 number per partition can be an instruction's scalar operand.
  bool row_scalar(int v, uint64_t varies) const;

  void engine_op(int v);

  void binary(int v, int64_t partitions);

  // A register program on GpSimd: 64-bit types, integer arithmetic, functions no other engine has.
  void gpsimd_op(int v);

  void run_program(int v, const isa::AccessPattern& dst, int64_t partitions);

  // ---- reductions ---------------------------------------------------------------------------------------------
  bool arg_reduction(int v) const { return value(v).op == graph::Op::argmax || value(v).op == graph::Op::argmin; }
  // Row programs and arg reductions add to an accumulator that they find in memory.
  bool accumulates_in_place(int v) const {
    return arg_reduction(v) || !engine_value(value(v).operands[0]) || !engine_value(v);
  }
  bool accumulates(int v) const { return !stage_loops_.empty() || accumulates_in_place(v); }

  void begin_reduction(int v);

  // The result's dimensions without the reduced ones: at most the rows.
  isa::AccessPattern row_pattern(const Tile& tile, DType dtype, int v, int64_t partitions) const;

  void reduce_chunk(int v);

  void end_reduction(int) {}

  // ---- outputs ------------------------------------------------------------------------------------------------
  void store(const FusedOutput& o);

  bool uses_gpsimd() const;

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

}  // namespace opentrn::compiler
