// Matrix multiplication and transposes.
#include "exec/simd.h"
#include "machine.h"

namespace opentrn::exec {
namespace {

TEST(Matmul, IsAChainOfFusedMultiplyAddsInOrderOfK) {
  const int sizes[][3] = {{1, 1, 1}, {128, 128, 512}, {128, 1, 512}, {128, 128, 1}, {3, 7, 17}, {64, 100, 300}, {127, 13, 31}, {128, 6, 16}, {96, 128, 509}};
  for (const auto& [k, m_, n] : sizes) {
    for (const bool accumulate : {false, true}) {
      Machine m;
      const AccessPattern a = Machine::row(DType::f32, k, m_), b = Machine::row(DType::f32, k, n, 4096), c = Machine::psum(DType::f32, m_, {{1, n}}, 2048);
      std::normal_distribution<float> any;
      for (const AccessPattern& ap : {a, b, c}) m.fill(ap, [&](int64_t, int64_t) { return any(m.random); });
      std::vector<float> before;
      for (int r = 0; r < m_; ++r)
        for (int j = 0; j < n; ++j) before.push_back(static_cast<float>(m.get(c, r, j)));
      m.emit(Opcode::nc_matmul, Engine::tensor, c, {a, b}).accumulate = accumulate;
      ASSERT_TRUE(m.run());
      for (int r = 0; r < m_; ++r)
        for (int j = 0; j < n; j += 1 + j / 40) {
          float sum = accumulate ? before[static_cast<size_t>(r * n + j)] : 0;
          for (int i = 0; i < k; ++i) sum = std::fma(static_cast<float>(m.get(a, i, r)), static_cast<float>(m.get(b, i, j)), sum);
          ASSERT_EQ(m.get(c, r, j), sum) << k << "x" << m_ << "x" << n << " at " << r << "," << j;
        }
    }
  }
}

TEST(Matmul, NarrowTypesAndStridedOperands) {
  for (const DType stationary : {DType::f32, DType::bf16, DType::f16, DType::f8e4m3, DType::f8e5m2}) {
    for (const DType moving : {DType::f32, DType::bf16, DType::f16, DType::f8e4m3fn}) {
      Machine m;
      const int k = 33, rows = 20, columns = 48;
      const AccessPattern a = Machine::sbuf(stationary, k, {{2, rows}}), b = Machine::sbuf(moving, k, {{1, 6}, {8, 8}}, 8192),
                          c = Machine::psum(DType::f32, rows, {{100, 2}, {2, 24}}), packed = Machine::row(moving, k, columns, 16384),
                          dense = Machine::psum(DType::f32, rows, {{1, columns}}, 8192);
      m.fill_random(a);
      m.fill_random(b);
      m.fill(packed, [&](int64_t p, int64_t i) { return m.get(b, p, i); });
      m.emit(Opcode::nc_matmul, Engine::tensor, c, {a, b});
      m.emit(Opcode::nc_matmul, Engine::tensor, dense, {a, packed});
      ASSERT_TRUE(m.run());
      for (int r = 0; r < rows; ++r)
        for (int j = 0; j < columns; ++j) {
          float sum = 0;
          for (int i = 0; i < k; ++i) sum = std::fma(static_cast<float>(m.get(a, i, r)), static_cast<float>(m.get(b, i, j)), sum);
          EXPECT_EQ(m.get(c, r, j), sum);
          EXPECT_EQ(m.get(dense, r, j), sum);
        }
    }
  }
}

// Both operands in HBM, dense or transposed, of any shape and alignment of lines.
TEST(Matmul, OperandsInHbm) {
  const int sizes[][3] = {{128, 128, 512}, {128, 1, 512}, {128, 2, 300}, {128, 3, 129}, {5, 9, 23}, {127, 13, 31}, {1, 7, 40}, {64, 20, 1}, {33, 128, 64}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const auto& [k, m_, n] : sizes) {
      for (const int layout : {0, 1, 2, 3}) {
        for (const bool accumulate : {false, true}) {
          Machine m;
          const int pitch = 521, a_buffer = m.buffer(int64_t{520} * pitch * 4), b_buffer = m.buffer(int64_t{520} * pitch * 4);
          const AccessPattern a = layout & 1 ? Machine::hbm(a_buffer, dtype, k, 1, {{pitch, m_}}, 3 * size_of(dtype)) : Machine::hbm(a_buffer, dtype, k, pitch, {{1, m_}}, 3 * size_of(dtype));
          const AccessPattern b = layout & 2 ? Machine::hbm(b_buffer, dtype, k, 1, {{pitch, n}}, size_of(dtype)) : Machine::hbm(b_buffer, dtype, k, pitch, {{1, n}}, size_of(dtype));
          const AccessPattern c = Machine::psum(DType::f32, m_, {{1, n}}, 2048);
          std::normal_distribution<float> any;
          for (const AccessPattern& ap : {a, b, c}) m.fill(ap, [&](int64_t, int64_t) { return any(m.random); });
          std::vector<float> before;
          for (int r = 0; r < m_; ++r)
            for (int j = 0; j < n; ++j) before.push_back(static_cast<float>(m.get(c, r, j)));
          m.emit(Opcode::nc_matmul, Engine::tensor, c, {a, b}).accumulate = accumulate;
          ASSERT_TRUE(m.run());
          const bool fast = dtype == DType::bf16 && k % 2 == 0 && simd().matmul_bf16.rows > 0 && !exact_numerics();
          for (int r = 0; r < m_; ++r)
            for (int j = 0; j < n; j += 1 + j / 20) {
              float sum = accumulate ? before[static_cast<size_t>(r * n + j)] : 0;
              double magnitude = std::fabs(sum);
              for (int i = 0; i < k; ++i) {
                const auto x = static_cast<float>(m.get(a, i, r)), y = static_cast<float>(m.get(b, i, j));
                sum = std::fma(x, y, sum);
                magnitude += std::fabs(double{x} * y);
              }
              if (fast) ASSERT_NEAR(m.get(c, r, j), sum, magnitude * k * 0x1p-24) << k << "x" << m_ << "x" << n;
              else ASSERT_EQ(m.get(c, r, j), sum) << name_of(dtype) << " " << k << "x" << m_ << "x" << n << " layout " << layout << " at " << r << "," << j;
            }
        }
      }
    }
  }
}

// The dot instructions of the host add the products of two k at a time; the difference is bounded by the rounding of a sum.
TEST(Matmul, FastBf16IsCloseToExact) {
  if (simd().matmul_bf16.rows == 0) GTEST_SKIP() << "this host has no bf16 dot instructions";
  const size_t k = 128, rows = static_cast<size_t>(simd().matmul_bf16.rows), columns = static_cast<size_t>(simd().matmul_bf16.columns);
  std::mt19937 random(3);
  std::normal_distribution<float> any;
  std::vector<uint16_t> a(k * rows), b(k * columns), b_transposed(k * columns);
  for (uint16_t& v : a) v = f32_to_bf16(any(random));
  for (uint16_t& v : b) v = f32_to_bf16(any(random));
  for (size_t i = 0; i < k; ++i)
    for (size_t j = 0; j < columns; ++j) b_transposed[j * k + i] = b[i * columns + j];
  const auto at = [](const std::vector<uint16_t>& v) { return reinterpret_cast<const std::byte*>(v.data()); };
  const auto multiply = [&](const Matmul& table, bool transposed) {
    std::vector<float> pa(k * rows), pb(k * columns), c(rows * columns);
    for (size_t r = 0; r < rows; ++r) {  // one row at a time: the tables' tiles differ
      table.pack_bf16(at(a) + r * 2, static_cast<int64_t>(rows * 2), k, 1, pa.data(), 1, 0);
      for (size_t j = 0; j < columns; j += static_cast<size_t>(table.columns)) {
        const auto n = static_cast<size_t>(table.columns);
        if (transposed) table.pack_transposed_bf16(at(b_transposed) + j * k * 2, static_cast<int64_t>(k * 2), k, n, pb.data(), n, 0);
        else table.pack_bf16(at(b) + j * 2, static_cast<int64_t>(columns * 2), k, n, pb.data(), n, 0);
        table.tile[1](pa.data(), pb.data(), table.columns, k / static_cast<size_t>(table.k_step), c.data() + r * columns + j, static_cast<int64_t>(columns), false);
      }
    }
    return c;
  };
  const auto exact = multiply(simd().matmul, false), fast = multiply(simd().matmul_bf16, false), other = multiply(simd().matmul_bf16, true);
  EXPECT_EQ(fast, other);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(fast[i], exact[i], 128 * 64 * 0x1p-24);
}

void check_transpose(Machine& m, Opcode opcode, Engine engine, const AccessPattern& dst, const AccessPattern& src) {
  m.fill(src, [](int64_t p, int64_t i) { return static_cast<double>((p * 31 + i) % 127); });
  m.emit(opcode, engine, dst, {src});
  ASSERT_TRUE(m.run());
  for (int64_t p = 0; p < src.partitions; ++p)
    for (int64_t f = 0; f < src.free_elements(); ++f) ASSERT_EQ(m.get(dst, f, p), static_cast<double>((p * 31 + f) % 127)) << p << "," << f;
}

TEST(Transpose, AnyShapeTypeAndPlace) {
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::i64}) {
    for (const auto& [p, f] : {std::pair{128, 128}, {32, 32}, {1, 128}, {128, 1}, {5, 9}, {33, 70}, {127, 65}}) {
      Machine m;
      const int hbm = m.buffer(128 * 160 * 8 * 2);
      const AccessPattern src = Machine::row(dtype, p, f);
      check_transpose(m, Opcode::nc_transpose, Engine::vector, Machine::row(dtype, f, p, 8192), src);
      check_transpose(m, Opcode::nc_transpose, Engine::tensor, Machine::psum(DType::f32, f, {{1, p}}), src);
      check_transpose(m, Opcode::dma_transpose, Engine::sync, Machine::row(dtype, f, p, 8192), Machine::hbm(hbm, dtype, p, f + 3, {{1, f}}));
      check_transpose(m, Opcode::dma_transpose, Engine::sync, Machine::hbm(hbm, dtype, f, p + 5, {{1, p}}), src);
      check_transpose(m, Opcode::nc_transpose, Engine::vector, Machine::sbuf(dtype, f, {{2, p}}, 8192), Machine::sbuf(dtype, p, {{3, f}}));
      if (p == f) check_transpose(m, Opcode::nc_transpose, Engine::vector, Machine::row(dtype, f, p, 16384), Machine::row(dtype, p, f, 16384));
    }
  }
}

TEST(Transpose, InPlace) {
  Machine m;
  const AccessPattern x = Machine::row(DType::f32, 32, 32);
  m.fill(x, [](int64_t p, int64_t i) { return static_cast<double>(p * 100 + i); });
  m.emit(Opcode::nc_transpose, Engine::vector, x, {x});
  ASSERT_TRUE(m.run());
  for (int p = 0; p < 32; ++p)
    for (int i = 0; i < 32; ++i) EXPECT_EQ(m.get(x, p, i), i * 100 + p);
}

}  // namespace
}  // namespace opentrn::exec
