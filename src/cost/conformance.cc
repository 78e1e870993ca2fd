#include "cost/conformance.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cost/cost.h"

namespace opentrn::cost {

using isa::AccessPattern;
using isa::AluOp;
using isa::Engine;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;

namespace {

AccessPattern tile(Memory memory, DType dtype, int64_t n, int partitions = 128) {
  AccessPattern ap;
  ap.memory = memory;
  ap.dtype = dtype;
  ap.buffer = 0;
  ap.partitions = static_cast<int16_t>(partitions);
  ap.dims = {{1, static_cast<int32_t>(n)}};
  return ap;
}
AccessPattern sbuf(DType dtype, int64_t n) { return tile(Memory::sbuf, dtype, n); }
AccessPattern psum(DType dtype, int64_t n) { return tile(Memory::psum, dtype, n); }

Instruction make(Opcode opcode, Engine engine, AccessPattern dst, std::initializer_list<AccessPattern> src) {
  Instruction in;
  in.opcode = opcode;
  in.engine = engine;
  in.dst = dst;
  for (const AccessPattern& ap : src) in.src.push_back(ap);
  return in;
}

Instruction with_op(Instruction in, AluOp op) {
  in.op0 = op;
  return in;
}

Instruction activation(isa::ActFn act, AccessPattern dst, AccessPattern src) {
  Instruction in = make(Opcode::activation, Engine::scalar, dst, {src});
  in.act = act;
  return in;
}

constexpr DType f32 = DType::f32, bf16 = DType::bf16;

// One law: an instruction of N elements per partition, and what the public says about it.
struct Row {
  const char* name;
  std::function<Instruction(int64_t)> build;
  double startup_ns, slope_ns;   // measured completion; or slope in cycles with `documented`
  bool documented = false;       // compares the back-to-back cost max(MIN_II, slope * N) in engine cycles
  const char* note = "";
};

std::vector<Row> trn2_rows() {
  using O = Opcode;
  using E = Engine;
  auto two = [](O op, E engine, DType t) {
    return [=](int64_t n) { return with_op(make(op, engine, sbuf(t, n), {sbuf(t, n), sbuf(t, n)}), AluOp::add); };
  };
  auto one = [](O op, E engine, DType from, DType to) {
    return [=](int64_t n) { return with_op(make(op, engine, sbuf(to, n), {sbuf(from, n)}), AluOp::mult); };
  };
  auto act = [](isa::ActFn fn, DType from, DType to, bool from_psum = false) {
    return [=](int64_t n) { return activation(fn, sbuf(to, n), from_psum ? psum(from, n) : sbuf(from, n)); };
  };
  return {
      {"scalar.activation.exp", act(isa::ActFn::exp, f32, f32), 290, 0.833},
      {"scalar.activation.sigmoid", act(isa::ActFn::sigmoid, f32, f32), 290, 0.833},
      {"scalar.activation.rsqrt", act(isa::ActFn::rsqrt, f32, f32), 290, 0.833},
      {"scalar.activation.sqrt", act(isa::ActFn::sqrt, f32, f32), 290, 0.833},
      {"scalar.activation.log", act(isa::ActFn::log, f32, f32), 290, 0.833},
      {"scalar.activation.square", act(isa::ActFn::square, f32, f32), 290, 0.833},
      {"scalar.activation.copy", act(isa::ActFn::copy, f32, f32), 202, 0.8335},
      {"scalar.activation.copy.bias_tile",
       [](int64_t n) {
         Instruction in = activation(isa::ActFn::copy, sbuf(f32, n), sbuf(f32, n));
         in.s1 = isa::Scalar::of(sbuf(f32, 1));
         return in;
       },
       202 + 91, 0.8335},
      {"scalar.activation.exp.bf16", act(isa::ActFn::exp, bf16, bf16), 295.7, 0.833},
      {"scalar.activation.exp.f32_to_bf16", act(isa::ActFn::exp, f32, bf16), 276, 0.842},
      {"scalar.activation.exp.psum", act(isa::ActFn::exp, f32, f32, true), 251, 0.974},
      {"scalar.activation.silu.psum", act(isa::ActFn::silu, f32, f32, true), 260, 1.327},
      {"scalar.tensor_copy.f32", one(O::tensor_copy, E::scalar, f32, f32), 191, 0.835},
      {"scalar.tensor_copy.psum",
       [](int64_t n) { return make(Opcode::tensor_copy, Engine::scalar, sbuf(f32, n), {psum(f32, n)}); }, 166.5, 0.843},
      {"vector.tensor_copy.f32", one(O::tensor_copy, E::vector, f32, f32), 156.5, 0.5275},
      {"vector.tensor_copy.bf16", one(O::tensor_copy, E::vector, bf16, bf16), 155.7, 0.269},
      {"vector.tensor_copy.bf16_to_f32", one(O::tensor_copy, E::vector, bf16, f32), 152.7, 0.803},
      {"vector.tensor_copy.f32_to_bf16", one(O::tensor_copy, E::vector, f32, bf16), 155.5, 0.522},
      {"vector.tensor_copy.psum",
       [](int64_t n) { return make(Opcode::tensor_copy, Engine::vector, sbuf(f32, n), {psum(f32, n)}); }, 156, 1.042},
      {"vector.tensor_tensor.f32", two(O::tensor_tensor, E::vector, f32), 159.5, 1.04, false,
       "documented as 2N, a rule of NC-v2"},
      {"vector.tensor_tensor.bf16", two(O::tensor_tensor, E::vector, bf16), 161.5, 0.517, false, "documented as N"},
      {"vector.tensor_tensor.psum",
       [](int64_t n) {
         return with_op(make(Opcode::tensor_tensor, Engine::vector, sbuf(f32, n), {psum(f32, n), sbuf(f32, n)}), AluOp::add);
       },
       149, 1.04},
      {"vector.tensor_scalar.f32", one(O::tensor_scalar, E::vector, f32, f32), 160, 0.52},
      {"vector.tensor_reduce.f32",
       [](int64_t n) { return with_op(make(Opcode::tensor_reduce, Engine::vector, sbuf(f32, 1), {sbuf(f32, n)}), AluOp::add); },
       152.5, 1.0417},
      {"vector.tensor_reduce.psum",
       [](int64_t n) { return with_op(make(Opcode::tensor_reduce, Engine::vector, sbuf(f32, 1), {psum(f32, n)}), AluOp::add); },
       157, 1.042},
      {"vector.tensor_reduce.bf16_to_f32",
       [](int64_t n) { return with_op(make(Opcode::tensor_reduce, Engine::vector, sbuf(f32, 1), {sbuf(bf16, n)}), AluOp::add); },
       142.7, 1.044},
      {"vector.reciprocal", one(O::reciprocal, E::vector, f32, f32), 153, 6.25, false, "documented as 8N cycles"},
      {"vector.tensor_tensor_scan", two(O::tensor_tensor_scan, E::vector, f32), 157.7, 2.083},
      {"vector.tensor_tensor_scan.seed_tile",
       [](int64_t n) {
         Instruction in = with_op(
             make(Opcode::tensor_tensor_scan, Engine::vector, sbuf(f32, n), {sbuf(f32, n), sbuf(f32, n)}), AluOp::add);
         in.s0 = isa::Scalar::of(sbuf(f32, 1));
         return in;
       },
       157.7 + 60, 2.083},
      {"vector.memset", [](int64_t n) { return make(Opcode::memset, Engine::vector, sbuf(f32, n), {}); }, 58.5, 0.83, false,
       "documented as N cycles, N/2 for zeros of 16 bits"},
      {"gpsimd.affine_select",
       [](int64_t n) { return make(Opcode::affine_select, Engine::gpsimd, sbuf(f32, n), {sbuf(f32, n)}); }, 177, 0.846},
      {"tensor.nc_matmul.bf16",
       [](int64_t n) { return make(Opcode::nc_matmul, Engine::tensor, psum(f32, n), {sbuf(bf16, 128), sbuf(bf16, n)}); }, 203,
       0.828},
      {"tensor.nc_matmul.f32",
       [](int64_t n) { return make(Opcode::nc_matmul, Engine::tensor, psum(f32, n), {sbuf(f32, 128), sbuf(f32, n)}); }, 381,
       2 * 4 / 2.4},
      // Documented only (back-to-back cost in cycles).
      {"vector.bn_stats", [](int64_t n) { return make(Opcode::bn_stats, Engine::vector, sbuf(f32, 6), {sbuf(f32, n)}); }, 0, 1, true},
      {"vector.bn_aggr", [](int64_t n) { return make(Opcode::bn_aggr, Engine::vector, sbuf(f32, 2), {sbuf(f32, n)}); }, 0,
       13.0 / 3, true},
      {"vector.max8", [](int64_t n) { return make(Opcode::max8, Engine::vector, sbuf(f32, 8), {sbuf(f32, n)}); }, 0, 1, true},
      {"vector.nc_find_index8",
       [](int64_t n) { return make(Opcode::nc_find_index8, Engine::vector, sbuf(DType::u32, 8), {sbuf(f32, n), sbuf(f32, 8)}); },
       0, 1, true},
      {"vector.nc_match_replace8",
       [](int64_t n) { return make(Opcode::nc_match_replace8, Engine::vector, sbuf(f32, n), {sbuf(f32, n), sbuf(f32, 8)}); }, 0,
       1, true, "printed as min(MIN_II, N), read as max"},
      {"vector.tensor_copy_predicated",
       [](int64_t n) { return make(Opcode::tensor_copy_predicated, Engine::vector, sbuf(f32, n), {sbuf(f32, n), sbuf(f32, n)}); },
       0, 2, true, "a predicated copy of a scalar was measured at 1.06 cycles per element"},
      {"vector.tensor_scalar.bf16", one(O::tensor_scalar, E::vector, bf16, bf16), 0, 0.25, true, "performance mode 4x"},
      {"vector.tensor_reduce.bf16",
       [](int64_t n) { return with_op(make(Opcode::tensor_reduce, Engine::vector, sbuf(bf16, 1), {sbuf(bf16, n)}), AluOp::add); },
       0, 0.5, true},
      {"vector.scalar_tensor_tensor.bf16",
       [](int64_t n) {
         Instruction in = make(Opcode::scalar_tensor_tensor, Engine::vector, sbuf(bf16, n), {sbuf(bf16, n), sbuf(bf16, n)});
         in.op0 = AluOp::subtract;
         in.op1 = AluOp::mult;
         return in;
       },
       0, 1, true},
  };
}

std::vector<Row> trn1_rows() {
  return {
      {"vector.tensor_tensor.f32",
       [](int64_t n) {
         return with_op(make(Opcode::tensor_tensor, Engine::vector, sbuf(f32, n), {sbuf(f32, n), sbuf(f32, n)}), AluOp::add);
       },
       340, 2 / 1.12},
      {"scalar.activation.exp", [](int64_t n) { return activation(isa::ActFn::exp, sbuf(f32, n), sbuf(f32, n)); }, 158, 1 / 1.4},
      {"tensor.nc_matmul.bf16",
       [](int64_t n) { return make(Opcode::nc_matmul, Engine::tensor, psum(f32, n), {sbuf(bf16, 128), sbuf(bf16, n)}); }, 143,
       1 / 2.8},
      {"vector.tensor_copy.f32",
       [](int64_t n) { return make(Opcode::tensor_copy, Engine::vector, sbuf(f32, n), {sbuf(f32, n)}); }, 0, 1, true},
      {"vector.reciprocal",
       [](int64_t n) { return make(Opcode::reciprocal, Engine::vector, sbuf(f32, n), {sbuf(f32, n)}); }, 0, 8, true},
      {"vector.tensor_tensor_scan",
       [](int64_t n) {
         return with_op(make(Opcode::tensor_tensor_scan, Engine::vector, sbuf(f32, n), {sbuf(f32, n), sbuf(f32, n)}), AluOp::add);
       },
       0, 2, true},
  };
}

// Instructions whose size is fixed.
void add_single(std::vector<Conformance>& out, const spec::Chip& chip) {
  isa::Program empty;
  if (chip.name == "trn1") {
    Instruction event = make(Opcode::event_semaphore, Engine::sync, {}, {});
    out.push_back({"chip.cost.sync.event_semaphore", isolated_ns(event, empty, chip), 9, "measured", ""});
    out.push_back({"chip.cost.scalar.act_table_load", chip.act_table_load_ns, 368, "measured", ""});
  }
  if (chip.name != "trn2") return;
  Instruction transpose = make(Opcode::nc_transpose, Engine::vector, sbuf(f32, 32), {sbuf(f32, 32)});
  transpose.dst.partitions = transpose.src[0].partitions = 32;
  out.push_back({"chip.cost.vector.nc_transpose.issue", static_cast<double>(cost(transpose, empty, chip).issue_ps) / 1000, 93, "measured", ""});
  out.push_back({"chip.cost.vector.nc_transpose", isolated_ns(transpose, empty, chip), 233, "measured", ""});
  Instruction square = make(Opcode::nc_transpose, Engine::tensor, psum(bf16, 128), {sbuf(bf16, 128)});
  Cost c = cost(square, empty, chip);
  out.push_back({"chip.cost.tensor.nc_transpose.issue", static_cast<double>(c.issue_ps) / 1000, 168, "measured",
                 "documented as 128 cycles; every transpose loads a new stationary operand"});
  out.push_back({"chip.cost.tensor.nc_transpose", isolated_ns(square, empty, chip), 377, "measured", ""});
  Instruction kept = activation(isa::ActFn::copy, sbuf(f32, 512), sbuf(f32, 512));
  double without = static_cast<double>(cost(kept, empty, chip).issue_ps) / 1000;
  kept.dst1 = sbuf(f32, 1);
  out.push_back({"chip.cost.scalar.accumulator_read.issue", static_cast<double>(cost(kept, empty, chip).issue_ps) / 1000 - without, 185,
                 "measured", "documented as MIN_II (64) cycles"});
  out.push_back({"chip.cost.scalar.act_table_load", chip.act_table_load_ns, 1283, "measured", ""});
}

}  // namespace

std::vector<Conformance> instruction_conformance(const spec::Chip& chip) {
  std::vector<Row> rows;
  if (chip.name == "trn2") rows = trn2_rows();
  if (chip.name == "trn1") rows = trn1_rows();
  isa::Program empty;
  std::vector<Conformance> out;
  for (const Row& row : rows)
    for (int64_t n : {64, 128, 512, 2048}) {
      Instruction in = row.build(n);
      if (in.engine == Engine::tensor && n > chip.moving_free_max) continue;
      const spec::EngineSpec& engine = chip.engines[static_cast<size_t>(in.engine)];
      Conformance c;
      c.name = fmt::format("chip.cost.{}.n{}", row.name, n);
      c.source = row.documented ? "documented" : "measured";
      c.note = row.note;
      if (row.documented) {
        c.model_ns = static_cast<double>(cost(in, empty, chip).issue_ps) / 1000;
        c.law_ns = std::max(engine.min_issue_cycles, row.slope_ns * static_cast<double>(n)) / engine.ghz;
      } else {
        c.model_ns = isolated_ns(in, empty, chip);
        c.law_ns = row.startup_ns + row.slope_ns * static_cast<double>(n);
      }
      out.push_back(c);
    }
  add_single(out, chip);
  return out;
}

std::vector<Conformance> dma_conformance(const spec::Chip& chip) {
  // Percent of the rate at 32 KiB per partition, read off a chart of AWS's DMA bandwidth guide for trn2.
  constexpr std::pair<int64_t, double> kCurve[] = {{32, 1.2},   {64, 2.6},    {128, 5.0},   {256, 10.3},  {512, 20.6},
                                                   {1024, 42.2}, {2048, 81.3}, {4096, 96.6}, {8192, 98.3}, {16384, 99.0}, {32768, 100}};
  std::vector<Conformance> out;
  if (chip.name != "trn2") return out;
  isa::Program empty;
  auto model = [&](int64_t bytes) {
    AccessPattern hbm = tile(Memory::hbm, DType::u8, bytes);
    hbm.partition_stride = bytes;
    Instruction in = make(Opcode::dma_copy, Engine::sync, sbuf(DType::u8, bytes), {hbm});
    in.queue = 0;
    return isolated_ns(in, empty, chip);
  };
  // The rate at 32 KiB: the practical rate with the constant term.
  double full_ns = 128 * 32768 / (chip.dma_bytes_per_ns_per_engine * chip.dma_engines) + chip.dma_transfer_overhead_ns;
  double rate = 128 * 32768 / full_ns;
  for (auto [bytes, percent] : kCurve)
    out.push_back({fmt::format("chip.dma.{}", bytes), model(bytes), static_cast<double>(128 * bytes) / (rate * percent / 100), "measured",
                   bytes <= 64 ? "chart read to one decimal: 4 percent" : ""});
  return out;
}

}  // namespace opentrn::cost
