// Scans, batch statistics and the searches for the eight largest values.
#include "machine.h"

namespace opentrn::exec {
namespace {

TEST(Scan, RunsAlongTheLastDimension) {
  for (const AluOp op1 : {AluOp::add, AluOp::max}) {
    Machine m;
    const AccessPattern a = Machine::sbuf(DType::f32, 4, {{30, 3}, {1, 30}}), b = Machine::sbuf(DType::bf16, 4, {{30, 3}, {1, 30}}, 4096),
                        y = Machine::sbuf(DType::f32, 4, {{30, 3}, {1, 30}}), initial = Machine::row(DType::f32, 4, 1, 8192);
    m.fill_random(a, -8, 8);
    m.fill_random(b);
    m.fill_random(initial);
    std::vector<float> before;
    for (int k = 0; k < 90; ++k) before.push_back(static_cast<float>(m.get(a, 3, k)));
    Instruction& i = m.emit(Opcode::tensor_tensor_scan, Engine::vector, y, {a, b});  // in place over a
    i.op0 = AluOp::mult;
    i.op1 = op1;
    i.s0 = Scalar::of(initial);
    ASSERT_TRUE(m.run());
    for (int row = 0; row < 3; ++row) {
      auto state = static_cast<float>(m.get(initial, 3, 0));
      for (int k = 0; k < 30; ++k) {
        const float t = before[static_cast<size_t>(row * 30 + k)] * state, x = static_cast<float>(m.get(b, 3, row * 30 + k));
        state = op1 == AluOp::add ? t + x : std::max(t, x);
        EXPECT_EQ(m.get(y, 3, row * 30 + k), state);
      }
    }
  }
}

TEST(BatchNorm, StatisticsAggregateToMeanAndVariance) {
  Machine m;
  const AccessPattern x = Machine::row(DType::bf16, 8, 301), first = Machine::row(DType::bf16, 8, 101), rest = Machine::row(DType::bf16, 8, 200, 202);
  const AccessPattern stats = Machine::row(DType::f32, 8, 12, 4096), result = Machine::row(DType::f32, 8, 2, 8192);
  m.fill_random(x);
  m.emit(Opcode::bn_stats, Engine::vector, Machine::row(DType::f32, 8, 6, 4096), {first});
  m.emit(Opcode::bn_stats, Engine::vector, Machine::row(DType::f32, 8, 6, 4096 + 24), {rest});
  m.emit(Opcode::bn_aggr, Engine::vector, result, {stats});
  ASSERT_TRUE(m.run());
  EXPECT_EQ(m.get(stats, 0, 0), 51);
  EXPECT_EQ(m.get(stats, 0, 3), 50);
  for (int p = 0; p < 8; ++p) {
    double mean = 0, variance = 0;
    for (int i = 0; i < 301; ++i) mean += m.get(x, p, i) / 301;
    for (int i = 0; i < 301; ++i) variance += (m.get(x, p, i) - mean) * (m.get(x, p, i) - mean) / 301;
    EXPECT_NEAR(m.get(result, p, 0), mean, 1e-6);
    EXPECT_NEAR(m.get(result, p, 1), variance, 1e-5);
  }
}

TEST(Max8, FindsPositionsAndReplaces) {
  for (const int n : {8, 9, 100, 3000}) {
    Machine m;
    const AccessPattern x = Machine::row(DType::f32, 5, n), top = Machine::row(DType::f32, 5, 8, 16384), at = Machine::row(DType::u32, 5, 8, 20480), rest = Machine::row(DType::f32, 5, n, 32768);
    m.fill_random(x, -30, 30);  // many equal values
    if (n > 8) m.set(x, 1, 4, NAN);
    m.emit(Opcode::max8, Engine::vector, top, {x});
    m.emit(Opcode::nc_find_index8, Engine::vector, at, {x, top});
    m.emit(Opcode::nc_match_replace8, Engine::vector, rest, {x, top}).s0 = Scalar::imm(-99);
    ASSERT_TRUE(m.run());
    for (int p = 0; p < 5; ++p) {
      std::vector<int> order(static_cast<size_t>(n));
      for (int i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
      const auto key = [&](int i) { return std::isnan(m.get(x, p, i)) ? INFINITY : m.get(x, p, i); };
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(a) > key(b); });
      int replaced = 0;
      for (int k = 0; k < 8; ++k) {
        EXPECT_TRUE(same_value(m.get(top, p, k), m.get(x, p, order[static_cast<size_t>(k)])));
        EXPECT_EQ(m.get(at, p, k), order[static_cast<size_t>(k)]);
        EXPECT_EQ(m.get(rest, p, order[static_cast<size_t>(k)]), -99);
      }
      for (int i = 0; i < n; ++i) replaced += m.get(rest, p, i) == -99;
      EXPECT_EQ(replaced, 8);
    }
  }
}

TEST(Max8, AbsentValuesHaveNoPosition) {
  Machine m;
  const AccessPattern x = Machine::row(DType::f32, 1, 10), values = Machine::row(DType::f32, 1, 8, 256), at = Machine::row(DType::u32, 1, 8, 512);
  m.fill(x, [](int64_t, int64_t i) { return static_cast<double>(i); });
  m.fill(values, [](int64_t, int64_t i) { return i < 2 ? 3.0 : 50.0; });
  m.emit(Opcode::nc_find_index8, Engine::vector, at, {x, values});
  ASSERT_TRUE(m.run());
  EXPECT_EQ(m.get(at, 0, 0), 3);
  EXPECT_EQ(m.get(at, 0, 1), UINT32_MAX);  // there is only one 3
  EXPECT_EQ(m.get(at, 0, 7), UINT32_MAX);
}

}  // namespace
}  // namespace opentrn::exec
