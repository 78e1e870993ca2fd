// Every function of the SIMD table computes the same bits on the baseline as on the host's best target.
#include "exec/simd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "exec/floats.h"
#include "exec/interpreter.h"

namespace opentrn::exec {
namespace {

struct Targets {
  Simd baseline, best;
  Targets() {
    use_simd_target("baseline");
    baseline = simd();
    use_simd_target("");
    best = simd();
  }
};
const Targets& targets() {
  static const Targets both;
  return both;
}

// Ordinary values, all magnitudes, and special ones.
std::vector<float> values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 1e-45f, -1e-39f, 3.4e38f, 88.7f, -104.0f, 0.5f, 2.0f, 1e7f};
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = static_cast<uint32_t>(random());
    if (i % 5 == 0) v[i] = special[bits % std::size(special)];
    else if (i % 5 == 1 && !std::isnan(std::bit_cast<float>(bits))) v[i] = std::bit_cast<float>(bits);
    else v[i] = normal(random);
  }
  return v;
}

// Equal bits; NaNs may differ in sign and payload.
template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>)
      if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) {
      ADD_FAILURE() << "element " << i << ": " << a[i] << " and " << b[i];
      return false;
    }
  }
  return true;
}

constexpr size_t kCount = 997;  // no multiple of a vector

TEST(Simd, TargetsDiffer) {
  EXPECT_STRNE(targets().best.target, "");
  EXPECT_EQ(simd_target(), targets().best.target);
}

TEST(Simd, AluOperations) {
  const auto a = values(kCount, 1), b = values(kCount, 2);
  for (int op = 0; op < kAluOps; ++op) {
    ASSERT_EQ(targets().baseline.f32[op] == nullptr, targets().best.f32[op] == nullptr);
    for (const Form form : {Form::rows, Form::row_value, Form::value_row}) {
      if (targets().best.f32[op]) {
        std::vector<float> x(kCount), y(kCount);
        targets().baseline.f32[op](x.data(), a.data(), b.data(), kCount, form);
        targets().best.f32[op](y.data(), a.data(), b.data(), kCount, form);
        EXPECT_TRUE(same_bits(x, y)) << isa::name_of(static_cast<isa::AluOp>(op));
      }
      if (!targets().best.i32[op]) continue;
      std::vector<uint32_t> p(kCount), q(kCount), x(kCount), y(kCount);
      std::memcpy(p.data(), a.data(), kCount * 4);
      std::memcpy(q.data(), b.data(), kCount * 4);
      for (size_t i = 0; i < kCount; i += 3) q[i] %= 40;
      for (const bool is_signed : {false, true}) {
        (is_signed ? targets().baseline.i32 : targets().baseline.u32)[op](x.data(), p.data(), q.data(), kCount, form);
        (is_signed ? targets().best.i32 : targets().best.u32)[op](y.data(), p.data(), q.data(), kCount, form);
        EXPECT_TRUE(same_bits(x, y)) << isa::name_of(static_cast<isa::AluOp>(op));
      }
    }
  }
}

// `row` as bf16.
std::vector<uint16_t> narrowed(const std::vector<float>& row) {
  std::vector<uint16_t> result(row.size());
  for (size_t i = 0; i < row.size(); ++i) result[i] = f32_to_bf16(row[i]);
  return result;
}

TEST(Simd, MixedOperationsEqualConversionsAndTheOperation) {
  const auto a = values(kCount, 1), b = values(kCount, 2);
  const auto a16 = narrowed(a), b16 = narrowed(b);
  std::vector<float> wide_a(kCount), wide_b(kCount), result(kCount), to(kCount);
  for (const Targets* both = &targets(); const Simd* table : {&both->baseline, &both->best}) {
    for (int op = 0; op < kAluOps; ++op) {
      for (size_t mixed = 0; mixed < kMixedForms; ++mixed) {
        const MixedFn fn = table->mixed[op][mixed];
        if (!fn) continue;
        const bool bf16_a = mixed & 4, bf16_b = mixed & 2, bf16_to = mixed & 1;
        for (size_t i = 0; i < kCount; ++i) {
          wide_a[i] = bf16_a ? bf16_to_f32(a16[i]) : a[i];
          wide_b[i] = bf16_b ? bf16_to_f32(b16[i]) : b[i];
        }
        for (const Form form : {Form::rows, Form::row_value, Form::value_row}) {
          if ((form == Form::row_value && bf16_b) || (form == Form::value_row && bf16_a)) continue;
          for (const size_t n : {size_t{1}, size_t{7}, size_t{40}, kCount - 3}) {
            const size_t at = 3;  // an unaligned start
            table->f32[op](result.data(), wide_a.data() + at, wide_b.data() + at, n, form);
            const void* p = bf16_a ? static_cast<const void*>(a16.data() + at) : a.data() + at;
            const void* q = bf16_b ? static_cast<const void*>(b16.data() + at) : b.data() + at;
            fn(to.data(), p, q, n, form);
            for (size_t i = 0; i < n; ++i) {
              if (bf16_to) ASSERT_EQ(reinterpret_cast<const uint16_t*>(to.data())[i], f32_to_bf16(result[i])) << op << " " << mixed;
              else ASSERT_TRUE(std::memcmp(&to[i], &result[i], 4) == 0) << op << " " << mixed;
            }
          }
        }
      }
    }
  }
}

TEST(Simd, ActivationFunctions) {
  const auto a = values(20 * kCount, 3);
  for (int act = 0; act < kActFns; ++act) {
    std::vector<float> x(a.size()), y(a.size());
    targets().baseline.act[act](x.data(), a.data(), a.size());
    targets().best.act[act](y.data(), a.data(), a.size());
    EXPECT_TRUE(same_bits(x, y)) << isa::name_of(static_cast<isa::ActFn>(act));
  }
}

TEST(Simd, Reductions) {
  for (int op = 0; op < kAluOps; ++op) {
    if (!targets().best.reduce_rows[op]) continue;
    for (const size_t n : {1, 3, 31, 32, 100, 512}) {
      const auto a = values(7 * n, 4);
      std::vector<float> x(7), y(7);
      targets().baseline.reduce_rows[op](a.data(), 7, n, x.data());
      targets().best.reduce_rows[op](a.data(), 7, n, y.data());
      EXPECT_TRUE(same_bits(x, y)) << isa::name_of(static_cast<isa::AluOp>(op)) << n;
    }
  }
}

TEST(Simd, ReductionsOfBf16EqualThoseOfF32) {
  for (int op = 0; op < kAluOps; ++op) {
    if (!targets().best.reduce_rows[op]) continue;
    for (const size_t n : {1, 3, 31, 32, 100, 512}) {
      const auto a16 = narrowed(values(7 * n, 4));
      std::vector<float> wide(7 * n), x(7), y(7), z(7), block(32), block16(32);
      for (size_t i = 0; i < wide.size(); ++i) wide[i] = bf16_to_f32(a16[i]);
      targets().best.reduce_rows[op](wide.data(), 7, n, x.data());
      targets().best.reduce_rows_bf16[op](a16.data(), 7, n, y.data());
      targets().baseline.reduce_rows_bf16[op](a16.data(), 7, n, z.data());
      EXPECT_TRUE(same_bits(x, y) && same_bits(x, z)) << isa::name_of(static_cast<isa::AluOp>(op)) << n;
      targets().best.reduce_block[op](wide.data(), n, block.data());
      targets().best.reduce_block_bf16[op](a16.data(), n, block16.data());
      EXPECT_TRUE(same_bits(block, block16));
    }
  }
}

TEST(Simd, ReductionsOfColumns) {
  for (int op = 0; op < kAluOps; ++op) {
    if (!targets().best.reduce_columns[op]) continue;
    for (const size_t columns : {1, 5, 16, 37, 128}) {
      const size_t n = 77, pitch = column_pitch(columns);
      const auto a = values(n * columns, 4);
      const auto a16 = narrowed(a);
      std::vector<float> x(32 * pitch), y(32 * pitch), column(n), lanes(32);
      targets().baseline.reduce_columns[op](reinterpret_cast<const std::byte*>(a.data()), static_cast<int64_t>(columns * 4), n, columns, true, x.data());
      targets().best.reduce_columns[op](reinterpret_cast<const std::byte*>(a.data()), static_cast<int64_t>(columns * 4), n, columns, true, y.data());
      EXPECT_TRUE(same_bits(x, y));
      for (size_t j = 0; j < columns; ++j) {
        for (size_t i = 0; i < n; ++i) column[i] = a[i * columns + j];
        targets().best.reduce_block[op](column.data(), n, lanes.data());
        for (size_t l = 0; l < 32; ++l) EXPECT_TRUE(same_bits<float>({lanes[l]}, {y[l * pitch + j]}));
      }
      targets().baseline.reduce_columns_bf16[op](reinterpret_cast<const std::byte*>(a16.data()), static_cast<int64_t>(columns * 2), n, columns, true, x.data());
      targets().best.reduce_columns_bf16[op](reinterpret_cast<const std::byte*>(a16.data()), static_cast<int64_t>(columns * 2), n, columns, true, y.data());
      EXPECT_TRUE(same_bits(x, y));
    }
  }
}

TEST(Simd, Conversions) {
  for (int from = 0; from < kDTypes; ++from) {
    for (int to = 0; to < kDTypes; ++to) {
      const ConvertFn slow = targets().baseline.convert[from][to], fast = targets().best.convert[from][to];
      ASSERT_EQ(slow == nullptr, fast == nullptr);
      if (!slow) continue;
      const auto a = values(2 * kCount, 5);
      const auto size = static_cast<size_t>(size_of(static_cast<DType>(to)));
      std::vector<uint8_t> x(kCount * size), y(kCount * size);
      slow(a.data(), x.data(), kCount);
      fast(a.data(), y.data(), kCount);
      EXPECT_EQ(x, y) << name_of(static_cast<DType>(from)) << " to " << name_of(static_cast<DType>(to));
    }
  }
}

TEST(Simd, TruncationSaturates) {
  const std::vector<float> x = {0, -0.9f, 2.9f, -2.9f, 0x1p31f, -0x1p31f, 2147483520.0f, -2147483904.0f, INFINITY, -INFINITY, NAN, -NAN, 1e-45f};
  const std::vector<int32_t> expected = {0, 0, 2, -2, INT32_MAX, INT32_MIN, 2147483520, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MIN, INT32_MIN, 0};
  std::vector<int32_t> y(x.size());
  targets().best.convert[static_cast<int>(DType::f32)][static_cast<int>(DType::i32)](x.data(), y.data(), x.size());
  EXPECT_EQ(y, expected);
}

TEST(Simd, StreamedCopiesAndFills) {
  std::mt19937 random(11);
  std::vector<uint8_t> from(5000), to(5000);
  for (uint8_t& b : from) b = static_cast<uint8_t>(random());
  for (const size_t size : {1, 2, 4, 8, 16}) {
    for (const size_t start : {size_t{0}, size}) {
      for (const size_t bytes : {size, 5 * size, 16 * size, 4096 + 3 * size}) {
        to.assign(to.size(), 0x55);
        targets().best.stream_copy(to.data() + start, from.data() + 16, bytes);
        EXPECT_EQ(std::memcmp(to.data() + start, from.data() + 16, bytes), 0);
        EXPECT_EQ(to[start + bytes], 0x55);
        targets().best.stream_fill(to.data() + start, from.data(), size, bytes);
        for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(to[start + i], from[i % size]) << size << " " << start << " " << i;
        EXPECT_EQ(to[start + bytes], 0x55);
      }
    }
  }
}

TEST(Simd, Transposes) {
  for (int log2 = 0; log2 < 4; ++log2) {
    const size_t size = size_t{1} << log2;
    std::vector<std::byte> a(67 * 45 * size), x(a.size()), y(a.size());
    std::mt19937 random(6);
    for (std::byte& b : a) b = static_cast<std::byte>(random());
    const auto from = static_cast<int64_t>(45 * size), to = static_cast<int64_t>(67 * size);
    targets().baseline.transpose[log2](a.data(), from, x.data(), to, 67, 45);
    targets().best.transpose[log2](a.data(), from, y.data(), to, 67, 45);
    EXPECT_EQ(x, y);
  }
}

TEST(Simd, MatmulTiles) {
  // A column of the product is the same chain of fused multiply-adds in any tile.
  const size_t k = 50;
  const auto a = values(k, 7), b = values(k, 8);
  const auto column = [&](const Matmul& matmul) {
    std::vector<float> panel(k * static_cast<size_t>(matmul.columns)), c(static_cast<size_t>(matmul.columns), 0.25f);
    for (size_t i = 0; i < k; ++i) panel[i * static_cast<size_t>(matmul.columns) + 1] = std::fmod(b[i], 100.0f);
    std::vector<float> finite(k);
    for (size_t i = 0; i < k; ++i) finite[i] = std::isfinite(a[i]) ? std::fmod(a[i], 100.0f) : 1;
    for (float& v : panel) v = std::isfinite(v) ? v : 1;
    matmul.tile[1](finite.data(), panel.data(), matmul.columns, k, c.data(), matmul.columns, true);
    return std::vector<float>{c[1]};
  };
  EXPECT_TRUE(same_bits(column(targets().baseline.matmul), column(targets().best.matmul)));
}

TEST(Simd, RegisterOperations) {
  for (int op = 0; op < kKernelOps; ++op) {
    for (int type = 0; type < kKernelTypes; ++type) {
      const RegisterFn slow = targets().baseline.registers[op][type], fast = targets().best.registers[op][type];
      ASSERT_EQ(slow == nullptr, fast == nullptr);
      if (!slow) continue;
      const bool real = type >= static_cast<int>(isa::KernelType::f32), wide = type == 5 || type == 2 || type == 3;
      const size_t n = 500, bytes = wide ? 8 : 4;
      std::vector<uint64_t> in[3], x(n), y(n);
      for (uint32_t s = 0; s < 3; ++s) {
        in[s].resize(n);
        const auto v = values(2 * n, 9 + s);
        if (type == 5) {
          for (size_t i = 0; i < n; ++i) in[s][i] = std::bit_cast<uint64_t>(static_cast<double>(v[i]));
        } else {
          std::memcpy(in[s].data(), v.data(), n * bytes);
        }
      }
      slow(x.data(), in[0].data(), in[1].data(), in[2].data(), n);
      fast(y.data(), in[0].data(), in[1].data(), in[2].data(), n);
      for (size_t i = 0; i < n; ++i) {
        bool same;
        if (real && wide) {
          const double p = std::bit_cast<double>(x[i]), q = std::bit_cast<double>(y[i]);
          same = x[i] == y[i] || (std::isnan(p) && std::isnan(q));
        } else if (real) {
          const float p = reinterpret_cast<const float*>(x.data())[i], q = reinterpret_cast<const float*>(y.data())[i];
          same = std::memcmp(&p, &q, 4) == 0 || (std::isnan(p) && std::isnan(q));
        } else {
          same = std::memcmp(reinterpret_cast<const char*>(x.data()) + i * bytes, reinterpret_cast<const char*>(y.data()) + i * bytes, bytes) == 0;
        }
        ASSERT_TRUE(same) << "operation " << op << " type " << type << " element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace opentrn::exec
