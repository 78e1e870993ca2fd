// Gather, scatter, iota and affine_select.
#include "machine.h"

namespace opentrn::exec {
namespace {

struct Rows {
  Machine m;
  int table = m.buffer(50 * 80 * 8);
  // Row r of the table: 24 elements, every second one of 48; rows are 80 elements apart.
  AccessPattern row(DType dtype, int stride) { return Machine::hbm(table, dtype, 1, 0, {{stride, 24}}); }
  void address(Instruction& i, DType dtype) {
    i.rows = 50;
    i.row_bytes = 80 * size_of(dtype);
  }
  double& expected(int64_t r, int64_t k) { return values[static_cast<size_t>(r * 24 + k)]; }
  std::vector<double> values = std::vector<double>(50 * 24);
};

TEST(Gather, RowsByAnyIndexType) {
  for (const DType index_type : {DType::i32, DType::u32, DType::i64}) {
    for (const DType from : {DType::f32, DType::bf16}) {
      for (const DType to : {DType::f32, DType::bf16}) {
        for (const int stride : {1, 2}) {
          Rows t;
          Machine& m = t.m;
          AccessPattern row = t.row(from, stride);
          for (int r = 0; r < 50; ++r) {
            row.offset = r * 80 * size_of(from);
            m.fill(row, [&](int64_t, int64_t k) { return t.expected(r, k) = rounded(DType::bf16, r * 24 + static_cast<double>(k)); });
          }
          row.offset = 0;
          const AccessPattern index = Machine::row(index_type, 16, 3), dst = Machine::sbuf(to, 16, {{30, 3}, {1, 24}}, 4096);
          m.fill(index, [](int64_t p, int64_t j) { return static_cast<double>((p * 7 + j * 13) % 50); });
          Instruction& i = m.emit(Opcode::dma_gather, Engine::gpsimd, dst, {row, index});
          t.address(i, from);
          ASSERT_TRUE(m.run());
          for (int p = 0; p < 16; ++p)
            for (int j = 0; j < 3; ++j)
              for (int k = 0; k < 24; ++k) EXPECT_EQ(m.get(dst, p, j * 24 + k), t.expected((p * 7 + j * 13) % 50, k));
        }
      }
    }
  }
}

TEST(Gather, OutOfRangeIsAFaultUnlessSkipped) {
  Rows t;
  Machine& m = t.m;
  const AccessPattern index = Machine::row(DType::i32, 4, 1), dst = Machine::row(DType::f32, 4, 24, 4096);
  m.fill(index, [](int64_t p, int64_t) { return p == 2 ? -1.0 : 3.0; });
  m.fill(t.row(DType::f32, 1), [](int64_t, int64_t) { return 0.0; });
  AccessPattern third = t.row(DType::f32, 1);
  third.offset = 3 * 320;
  m.fill(third, [](int64_t, int64_t) { return 5.0; });
  m.fill(dst, [](int64_t, int64_t) { return 9.0; });
  Instruction& faulty = m.emit(Opcode::dma_gather, Engine::gpsimd, dst, {t.row(DType::f32, 1), index});
  t.address(faulty, DType::f32);
  EXPECT_FALSE(m.run());
  EXPECT_EQ(m.fault.message, "index -1 is out of bounds for dimension with size 50");
  Instruction& skipping = m.emit(Opcode::dma_gather, Engine::gpsimd, dst, {t.row(DType::f32, 1), index});
  t.address(skipping, DType::f32);
  skipping.skip_out_of_bounds = true;
  ASSERT_TRUE(m.run());
  EXPECT_EQ(m.get(dst, 1, 23), 5);
  EXPECT_EQ(m.get(dst, 2, 23), 9);
  EXPECT_EQ(m.get(dst, 3, 0), 5);
}

TEST(Scatter, StoresAndAccumulatesInRowOrder) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
    for (const bool accumulate : {false, true}) {
      for (const int stride : {1, 2}) {
        Rows t;
        Machine& m = t.m;
        AccessPattern row = t.row(dtype, stride);
        for (int r = 0; r < 50; ++r) {
          row.offset = r * 80 * size_of(dtype);
          m.fill(row, [&](int64_t, int64_t) { return t.expected(r, 0) = 1.0; });
          for (int k = 0; k < 24; ++k) t.expected(r, k) = 1;
        }
        row.offset = 0;
        const AccessPattern index = Machine::row(DType::i32, 32, 2), src = Machine::row(dtype, 32, 48, 4096);
        m.fill(index, [](int64_t p, int64_t j) { return static_cast<double>((p * 3 + j) % 11); });  // repeats
        m.fill_random(src);
        Instruction& i = m.emit(Opcode::dma_scatter, Engine::gpsimd, row, {src, index});
        t.address(i, dtype);
        i.accumulate = accumulate;
        ASSERT_TRUE(m.run());
        for (int p = 0; p < 32; ++p)
          for (int j = 0; j < 2; ++j)
            for (int k = 0; k < 24; ++k) {
              double& e = t.expected((p * 3 + j) % 11, k);
              e = accumulate ? rounded(dtype, e + m.get(src, p, j * 24 + k)) : m.get(src, p, j * 24 + k);
            }
        for (int r = 0; r < 50; ++r) {
          row.offset = r * 80 * size_of(dtype);
          for (int k = 0; k < 24; ++k) EXPECT_EQ(m.get(row, 0, k), t.expected(r, k)) << name_of(dtype) << r;
        }
      }
    }
  }
}

TEST(Iota, FollowsItsPattern) {
  for (const DType dtype : {DType::i32, DType::f32, DType::u8, DType::i64}) {
    Machine m;
    m.program().scalars = {{"start", DType::i64}};
    const AccessPattern dst = Machine::row(dtype, 10, 24);
    m.program().cores[0].loop_registers = 1;
    Instruction& begin = m.emit(Opcode::loop_begin, Engine::sync);
    begin.reg = 0;
    begin.count = 2;
    Instruction& i = m.emit(Opcode::iota, Engine::gpsimd, dst);
    i.s0 = Scalar::arg(0);
    i.channel_multiplier = 5;
    i.pattern = {{3, 2}, {0, 3}, {-1, 4}};
    i.pattern_terms = {{0, 20}};
    m.emit(Opcode::loop_end, Engine::sync).reg = 0;
    ScalarValue start;
    start.kind = ScalarValue::Kind::integer;
    start.integer = 10;
    ASSERT_TRUE(m.run({start}));
    for (int p = 0; p < 10; ++p)
      for (int k = 0; k < 24; ++k) EXPECT_EQ(m.get(dst, p, k), 10 + 20 + 5 * p + 3 * (k / 12) - k % 4);
  }
}

TEST(AffineSelect, MasksATriangle) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
    for (const AluOp op : {AluOp::is_ge, AluOp::is_gt, AluOp::is_le, AluOp::is_lt, AluOp::is_equal, AluOp::not_equal}) {
      Machine m;
      const AccessPattern x = Machine::row(dtype, 40, 50), y = Machine::row(dtype, 40, 50, 8192);
      m.fill(x, [](int64_t, int64_t) { return 1.0; });
      Instruction& i = m.emit(Opcode::affine_select, Engine::gpsimd, y, {x});
      i.op0 = op;
      i.s0 = Scalar::imm(3);
      i.s1 = Scalar::imm(dtype == DType::i32 ? -7 : -1e30);
      i.channel_multiplier = 1;
      i.pattern = {{-1, 50}};
      ASSERT_TRUE(m.run());
      for (int p = 0; p < 40; ++p)
        for (int k = 0; k < 50; ++k) {
          const int v = 3 + p - k;
          const bool keep = op == AluOp::is_ge ? v >= 0 : op == AluOp::is_gt ? v > 0 : op == AluOp::is_le ? v <= 0 : op == AluOp::is_lt ? v < 0 : op == AluOp::is_equal ? v == 0 : v != 0;
          EXPECT_EQ(m.get(y, p, k), keep ? 1 : rounded(dtype, dtype == DType::i32 ? -7 : -1e30));
        }
    }
  }
}

}  // namespace
}  // namespace opentrn::exec
