// Reductions over free dimensions and over partitions.
#include "machine.h"

namespace opentrn::exec {
namespace {

TEST(TensorReduce, SumsAreAccurateAndInAFixedOrder) {
  for (const int n : {1, 2, 5, 31, 32, 33, 200, 512, 513, 1024, 1537, 4096}) {
    Machine m;
    const AccessPattern x = Machine::row(DType::f32, 3, n), y = Machine::row(DType::f32, 3, 1, 32768);
    std::uniform_real_distribution<float> any(-1, 1);
    m.fill(x, [&](int64_t, int64_t) { return any(m.random); });
    m.emit(Opcode::tensor_reduce, Engine::vector, y, {x}).op0 = AluOp::add;
    ASSERT_TRUE(m.run());
    for (int p = 0; p < 3; ++p) {
      // The documented order: blocks of 512, 32 lanes, blocks joined pairwise, lanes joined in halves.
      std::vector<std::vector<float>> stack;
      double exact = 0;
      size_t blocks = 0;
      for (int start = 0; start < n; start += 512) {
        std::vector<float> lanes(32, 0.0f);
        for (int i = start; i < std::min(n, start + 512); ++i) {
          lanes[static_cast<size_t>(i - start) % 32] += static_cast<float>(m.get(x, p, i));
          exact += m.get(x, p, i);
        }
        stack.push_back(lanes);
        const auto join = [&] {
          for (size_t l = 0; l < 32; ++l) stack[stack.size() - 2][l] += stack.back()[l];
          stack.pop_back();
        };
        for (size_t b = ++blocks; b % 2 == 0; b /= 2) join();
        if (start + 512 >= n)
          while (stack.size() > 1) join();
      }
      std::vector<float>& lanes = stack[0];
      for (size_t half = 16; half > 0; half /= 2)
        for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
      EXPECT_EQ(m.get(y, p, 0), lanes[0]) << n;
      EXPECT_NEAR(m.get(y, p, 0), exact, 1e-5 * std::sqrt(n));
    }
  }
}

double combine(AluOp op, double a, double b) {
  switch (op) {
    case AluOp::add: return a + b;
    case AluOp::mult: return a * b;
    case AluOp::max: return std::max(a, b);
    case AluOp::min: return std::min(a, b);
    case AluOp::abs_max: return std::max(std::fabs(a), std::fabs(b));
    case AluOp::logical_and: return a != 0 && b != 0;
    case AluOp::logical_or: return a != 0 || b != 0;
    default: return (a != 0) != (b != 0);
  }
}

TEST(TensorReduce, EveryOperationOverStridedAxes) {
  for (const AluOp op : {AluOp::add, AluOp::mult, AluOp::max, AluOp::min, AluOp::abs_max, AluOp::logical_and, AluOp::logical_or, AluOp::logical_xor}) {
    for (const int axes : {1, 2, 3}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
        Machine m;
        // [4][3][5] elements, the middle dimension innermost in memory.
        const AccessPattern x = Machine::sbuf(dtype, 6, {{15, 4}, {1, 3}, {3, 5}}, 64);
        const int kept = axes == 1 ? 12 : axes == 2 ? 4 : 1, length = 60 / kept;
        const AccessPattern y = Machine::sbuf(DType::f32, 6, {{2, kept}}, 4096);
        m.fill_random(x, op == AluOp::mult ? 1 : -9, op == AluOp::mult ? 2 : 9);
        Instruction& i = m.emit(Opcode::tensor_reduce, Engine::vector, y, {x});
        i.op0 = op;
        i.axes = static_cast<int8_t>(axes);
        i.negate = op == AluOp::max;
        ASSERT_TRUE(m.run());
        for (int p = 0; p < 6; ++p)
          for (int k = 0; k < kept; ++k) {
            double expected = m.get(x, p, k * length);
            if (op == AluOp::abs_max) expected = std::fabs(expected);
            if (op >= AluOp::logical_and && op <= AluOp::logical_xor) expected = expected != 0;
            for (int j = 1; j < length; ++j) expected = combine(op, expected, m.get(x, p, k * length + j));
            EXPECT_EQ(m.get(y, p, k), static_cast<float>(op == AluOp::max ? -expected : expected)) << isa::name_of(op) << " " << axes;
          }
      }
    }
  }
}

TEST(TensorReduce, NaNWins) {
  for (const int n : {3, 40, 600}) {
    for (const AluOp op : {AluOp::max, AluOp::min}) {
      Machine m;
      const AccessPattern y = Machine::row(DType::f32, std::min(n, 128), 1, 32768);
      const AccessPattern rows = Machine::row(DType::f32, std::min(n, 128), n);
      m.fill(rows, [&](int64_t p, int64_t i) { return i == p * n / 128 ? NAN : static_cast<double>(i); });
      m.emit(Opcode::tensor_reduce, Engine::vector, y, {rows}).op0 = op;
      ASSERT_TRUE(m.run());
      for (int p = 0; p < y.partitions; ++p) EXPECT_TRUE(std::isnan(m.get(y, p, 0)));
    }
  }
}

TEST(TensorReduce, IntegersOnGpSimdAreExact) {
  Machine m;
  const AccessPattern x = Machine::row(DType::i32, 2, 2000), y = Machine::row(DType::i32, 2, 1, 16384);
  m.fill(x, [](int64_t, int64_t i) { return i == 0 ? 16777217.0 : 1.0; });
  m.emit(Opcode::tensor_reduce, Engine::gpsimd, y, {x}).op0 = AluOp::add;
  ASSERT_TRUE(m.run());
  EXPECT_EQ(m.get(y, 1, 0), 16777217 + 1999);
  m.emit(Opcode::tensor_reduce, Engine::vector, y, {x}).op0 = AluOp::bitwise_xor;
  ASSERT_TRUE(m.run());
  EXPECT_EQ(m.get(y, 1, 0), 16777216);
}

// The reference for columns: the same elements copied so that each is a dense row.
TEST(TensorReduce, ColumnsHaveTheBitsOfRows) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32}) {
    for (const AluOp op : {AluOp::add, AluOp::mult, AluOp::max, AluOp::min, AluOp::abs_max}) {
      for (const int partitions : {1, 8, 13, 16, 37, 128}) {
        for (const int n : {2, 31, 33, 512, 513, 1100}) {
          if (n > 33 && op != AluOp::add && partitions != 37) continue;
          Machine m;
          const int pitch = 131, table = m.buffer(int64_t{1100} * pitch * 4 + 64);
          const AccessPattern columns = Machine::hbm(table, dtype, partitions, 1, {{pitch, n}}, 3 * size_of(dtype));
          const AccessPattern rows = Machine::row(dtype, partitions, n), x = Machine::row(DType::f32, partitions, 1, 32768),
                              y = Machine::row(DType::f32, partitions, 1, 32832);
          std::normal_distribution<double> any(0, dtype == DType::i32 ? 100 : 2);
          m.fill(columns, [&](int64_t p, int64_t i) {
            if (dtype != DType::i32 && p == 5 && i % 17 == 3) return i % 2 ? static_cast<double>(NAN) : INFINITY;
            return p == 6 ? -0.0 : any(m.random);
          });
          m.emit(Opcode::dma_copy, Engine::sync, rows, {columns});
          for (const auto& [to, from] : {std::pair{x, rows}, {y, columns}}) {
            Instruction& i = m.emit(Opcode::tensor_reduce, Engine::vector, to, {from});
            i.op0 = op;
            i.negate = op == AluOp::min;
          }
          ASSERT_TRUE(m.run());
          for (int p = 0; p < partitions; ++p)
            ASSERT_TRUE(same_value(m.get(x, p, 0), m.get(y, p, 0))) << isa::name_of(op) << " " << p << " of " << partitions << ", " << n << ": "
                                                                    << m.get(x, p, 0) << " " << m.get(y, p, 0);
        }
      }
    }
  }
}

TEST(TensorReduce, AStridedAxisBesideADenseOne) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Machine m;
    // [2][300][20] elements; the 300 are reduced.
    const AccessPattern x = Machine::sbuf(DType::f32, 3, {{300 * 20, 2}, {1, 20}, {20, 300}}), y = Machine::row(dtype, 3, 40, 60000),
                        rows = Machine::sbuf(DType::f32, 1, {{300 * 20, 2}, {1, 20}, {20, 300}}, 0, 2), dense = Machine::row(DType::f32, 1, 12000, 0), z = Machine::row(dtype, 1, 40, 48000);
    std::normal_distribution<double> any;
    m.fill(x, [&](int64_t, int64_t) { return any(m.random); });
    m.emit(Opcode::tensor_reduce, Engine::vector, y, {x}).op0 = AluOp::add;
    m.emit(Opcode::tensor_copy, Engine::vector, dense, {rows});
    m.emit(Opcode::tensor_reduce, Engine::vector, z, {Machine::sbuf(DType::f32, 1, {{300, 40}, {1, 300}})}).op0 = AluOp::add;
    ASSERT_TRUE(m.run());
    for (int i = 0; i < 40; ++i) EXPECT_EQ(m.get(y, 2, i), m.get(z, 0, i));
  }
}

TEST(PartitionReduce, CombinesRowsOfAllPartitions) {
  for (const int partitions : {1, 2, 3, 31, 100, 128}) {
    for (const AluOp op : {AluOp::add, AluOp::average, AluOp::max, AluOp::min}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
        Machine m;
        const AccessPattern x = Machine::sbuf(dtype, partitions, {{40, 9}, {1, 37}}), y = Machine::row(DType::f32, 1, 333, 16384);
        m.fill_random(x);
        m.emit(Opcode::tensor_partition_reduce, Engine::gpsimd, y, {x}).op0 = op;
        ASSERT_TRUE(m.run());
        for (int i = 0; i < 333; ++i) {
          double expected = m.get(x, 0, i);
          for (int p = 1; p < partitions; ++p) expected = combine(op == AluOp::average ? AluOp::add : op, expected, m.get(x, p, i));
          if (op == AluOp::average) expected = dtype == DType::i32 ? std::trunc(expected / partitions) : static_cast<float>(expected) / static_cast<float>(partitions);
          EXPECT_EQ(m.get(y, 0, i), static_cast<float>(expected));
        }
      }
    }
  }
}

}  // namespace
}  // namespace opentrn::exec
