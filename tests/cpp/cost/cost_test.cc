#include "cost/cost.h"

#include <gtest/gtest.h>

#include "cost/conformance.h"

namespace opentrn::cost {
namespace {

using isa::AccessPattern;
using isa::Engine;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;

AccessPattern tile(Memory memory, DType dtype, int partitions, std::initializer_list<isa::Dim> dims) {
  AccessPattern ap;
  ap.memory = memory;
  ap.dtype = dtype;
  ap.buffer = 0;
  ap.partitions = static_cast<int16_t>(partitions);
  for (const isa::Dim& d : dims) ap.dims.push_back(d);
  return ap;
}

Instruction load(DType dtype, int partitions, int64_t elements, int64_t stride = 1) {
  Instruction in;
  in.opcode = Opcode::dma_copy;
  in.queue = 0;
  AccessPattern hbm = tile(Memory::hbm, dtype, partitions, {{stride, static_cast<int32_t>(elements)}});
  hbm.partition_stride = elements * stride;
  in.src = {hbm};
  in.dst = tile(Memory::sbuf, dtype, partitions, {{1, static_cast<int32_t>(elements)}});
  return in;
}

const spec::Chip& trn2() { return spec::chip("trn2"); }
const isa::Program kEmpty;

TEST(Cost, InstructionsFollowTheirPublicLawsWithinFivePercent) {
  for (const char* name : {"trn1", "trn2"}) {
    std::vector<Conformance> rows = instruction_conformance(spec::chip(name));
    EXPECT_GT(rows.size(), 20u);
    for (const Conformance& row : rows) EXPECT_NEAR(row.model_ns / row.law_ns, 1, 0.05) << name << " " << row.name;
  }
}

TEST(Cost, DmaFollowsTheBandwidthCurveWithinTenPercent) {
  std::vector<Conformance> rows = dma_conformance(trn2());
  EXPECT_EQ(rows.size(), 11u);
  for (const Conformance& row : rows) EXPECT_NEAR(row.model_ns / row.law_ns, 1, 0.10) << row.name;
}

TEST(Cost, EveryOpcodeHasACostOnEveryChip) {
  for (const std::string& name : spec::chip_names()) {
    Instruction in;
    in.opcode = Opcode::tensor_tensor;
    for (Engine engine : {Engine::vector, Engine::gpsimd}) {
      in.engine = engine;
      in.dst = tile(Memory::sbuf, DType::f32, 128, {{1, 100}});
      in.src = {in.dst, in.dst};
      Cost c = cost(in, kEmpty, spec::chip(name));
      EXPECT_GT(c.issue_ps, 0);
      EXPECT_GE(c.completion_ps, c.issue_ps);
    }
  }
}

TEST(Cost, PerformanceModesDoNotExistOnTrn1) {
  Instruction in;
  in.opcode = Opcode::tensor_copy;
  in.engine = Engine::vector;
  in.dst = tile(Memory::sbuf, DType::bf16, 128, {{1, 1024}});
  in.src = {in.dst};
  EXPECT_TRUE(in_perf_mode(in, trn2()));
  EXPECT_FALSE(in_perf_mode(in, spec::chip("trn1")));
  EXPECT_GT(cost(in, kEmpty, spec::chip("trn1")).issue_ps, 3 * cost(in, kEmpty, trn2()).issue_ps);
}

TEST(Cost, WideStridesSlowAnSbufAccessDown) {
  Instruction in;
  in.opcode = Opcode::tensor_copy;
  in.engine = Engine::scalar;
  in.dst = tile(Memory::sbuf, DType::f32, 128, {{1, 512}});
  in.src = {in.dst};
  int64_t dense = cost(in, kEmpty, trn2()).issue_ps;
  in.src[0].dims[0].stride = 64;
  EXPECT_NEAR(static_cast<double>(cost(in, kEmpty, trn2()).issue_ps), 2.0 * static_cast<double>(dense), 2.0);
}

TEST(Cost, Fp32MatmulTakesFourPasses) {
  Instruction in;
  in.opcode = Opcode::nc_matmul;
  in.engine = Engine::tensor;
  in.dst = tile(Memory::psum, DType::f32, 128, {{1, 512}});
  in.src = {tile(Memory::sbuf, DType::bf16, 128, {{1, 128}}), tile(Memory::sbuf, DType::bf16, 128, {{1, 512}})};
  int64_t bf16 = cost(in, kEmpty, trn2()).columns_ps;
  in.src[0].dtype = in.src[1].dtype = DType::f32;
  EXPECT_NEAR(static_cast<double>(cost(in, kEmpty, trn2()).columns_ps), 4.0 * static_cast<double>(bf16), 4);
  EXPECT_EQ(bf16, 213333);  // 512 columns at 2.4 GHz
}

TEST(Transfer, RowsOfAPartitionAreDescriptors) {
  Transfer t = transfer(load(DType::bf16, 128, 512), kEmpty, trn2());
  EXPECT_EQ(t.descriptors, 128);
  EXPECT_EQ(t.engines, 16);
  EXPECT_EQ(t.bytes, 128 * 1024);
  EXPECT_EQ(t.engine_ps, 860'000);  // eight descriptors of 107.5 ns each
  EXPECT_EQ(t.hbm_read_bytes, t.bytes);
  EXPECT_EQ(t.hbm_write_bytes, 0);
}

TEST(Transfer, StridedElementsAreOneDescriptorEach) {
  Transfer t = transfer(load(DType::f32, 128, 512, 2), kEmpty, trn2());
  EXPECT_EQ(t.descriptors, 128 * 512);
  EXPECT_EQ(t.engine_ps, 4096 * 107'500);
}

TEST(Transfer, LongRunsAreSplitOverTheEngines) {
  Transfer t = transfer(load(DType::u8, 1, 32768), kEmpty, trn2());
  EXPECT_EQ(t.engines, 16);
  EXPECT_EQ(t.descriptors, 16);
  EXPECT_EQ(t.engine_ps, 139'043);  // 2 KiB at 23 B/ns and 50 ns
  Transfer small = transfer(load(DType::u8, 1, 1000), kEmpty, trn2());
  EXPECT_EQ(small.engines, 1);
}

TEST(Transfer, NothingToMoveTakesNoTime) {
  Transfer t = transfer(load(DType::f32, 128, 0), kEmpty, trn2());
  EXPECT_EQ(t.engines, 0);
  EXPECT_EQ(t.engine_ps, 0);
  EXPECT_EQ(t.bytes, 0);
}

TEST(Transfer, CopiesWithinHbmMergeRowsAndTakeTheBandwidthTwice) {
  Instruction in = load(DType::f32, 1024, 256);
  in.dst = in.src[0];
  Transfer t = transfer(in, kEmpty, trn2());
  EXPECT_EQ(t.descriptors, 16);  // one run of 1 MiB in pieces of 64 KiB
  EXPECT_EQ(t.hbm_read_bytes + t.hbm_write_bytes, 2 << 20);
  EXPECT_GT(t.hbm_ps, t.engine_ps);
}

TEST(Transfer, TransposeRunsAtNineTenthsOfThePlainRate) {
  Instruction plain = load(DType::bf16, 128, 4096);
  Instruction transposed = plain;
  transposed.opcode = Opcode::dma_transpose;
  EXPECT_NEAR(static_cast<double>(transfer(plain, kEmpty, trn2()).engine_ps),
              0.9 * static_cast<double>(transfer(transposed, kEmpty, trn2()).engine_ps), 2);
}

TEST(Transfer, GatherFollowsTheSoftwareDescriptorLaw) {
  Instruction in = load(DType::f32, 128, 512);
  in.opcode = Opcode::dma_gather;
  in.engine = Engine::gpsimd;
  in.src.push_back(tile(Memory::sbuf, DType::i32, 128, {{1, 1}}));
  in.row_bytes = 2048;
  Transfer t = transfer(in, kEmpty, trn2());
  double law_ns = 293 + 1.305 * 128 * 2048 / 368;
  EXPECT_NEAR(static_cast<double>(t.engine_ps) / 1000, law_ns, 0.01 * law_ns);
  EXPECT_EQ(t.issue_ps, 599'000);
  EXPECT_EQ(t.start_ps, 751'000);
}

// A kernel's cost is its text: operations times elements over lanes.
TEST(GpsimdKernel, CostFollowsFromItsText) {
  using isa::KernelInstruction;
  using isa::KernelOp;
  using isa::KernelType;
  isa::Program program;
  program.kernels.resize(1);
  auto kernel = [&](KernelOp op, KernelType type) {
    program.kernels[0].body = {{KernelOp::load, type, type, 0, 0}, {op, type, type, 1, 0, 0}, {KernelOp::store, type, type, 0, 1, 1}};
  };
  Instruction in;
  in.opcode = Opcode::gpsimd_kernel;
  in.engine = Engine::gpsimd;
  in.kernel = 0;
  auto ns = [&](int partitions, int64_t n) {
    in.dst = tile(Memory::sbuf, DType::f32, partitions, {{1, static_cast<int32_t>(n)}});
    in.src = {in.dst};
    return isolated_ns(in, program, trn2());
  };
  kernel(KernelOp::add, KernelType::f32);
  EXPECT_NEAR(ns(128, 1200), 125 + 3 * 1200 / 1.2, 1);
  EXPECT_EQ(ns(16, 1200), ns(128, 1200));        // one core does its 16 partitions while the others idle
  EXPECT_NEAR(ns(1, 1200), 125 + 3 * 75 / 1.2, 1);
  double f32 = ns(128, 4096);
  kernel(KernelOp::add, KernelType::i64);
  double i64 = ns(128, 4096);
  kernel(KernelOp::mul, KernelType::i64);
  double mul = ns(128, 4096);
  kernel(KernelOp::exp, KernelType::f32);
  double exp = ns(128, 4096);
  EXPECT_NEAR(i64 / f32, 2, 0.05);
  EXPECT_GT(mul, i64);
  EXPECT_GT(exp, 4 * f32);
}

}  // namespace
}  // namespace opentrn::cost
