// tensor_copy, dma_copy, predicated copies, select and memset.
#include <limits>

#include "machine.h"

namespace opentrn::exec {
namespace {

constexpr DType kTypes[] = {DType::boolean, DType::u8, DType::i8, DType::u16, DType::i16, DType::u32, DType::i32, DType::u64,
                            DType::i64, DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3, DType::f16, DType::bf16, DType::f32, DType::f64};

TEST(Copy, ConvertsBetweenAllTypes) {
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      Machine m;
      const AccessPattern src = Machine::row(from, 3, 37), dst = Machine::row(to, 3, 37, 4096);
      m.fill_random(src, -7, 7);
      m.emit(Opcode::tensor_copy, Engine::vector, dst, {src});
      ASSERT_TRUE(m.run());
      for (int p = 0; p < 3; ++p)
        for (int i = 0; i < 37; ++i) {
          const double x = m.get(src, p, i);
          double expected = rounded(to, x);
          if (is_float(from) && (is_integer(to))) expected = is_signed(to) || x >= 0 ? std::trunc(x) : m.get(dst, p, i);
          EXPECT_EQ(m.get(dst, p, i), expected) << name_of(from) << " " << x << " to " << name_of(to);
        }
    }
  }
}

double converted(DType from, DType to, double value) {
  Machine m;
  const AccessPattern src = Machine::row(from, 1, 1), dst = Machine::row(to, 1, 1, 64);
  m.set(src, 0, 0, value);
  m.emit(Opcode::tensor_copy, Engine::vector, dst, {src});
  m.run();
  return m.get(dst, 0, 0);
}

TEST(Copy, FloatsBeyondAnIntegerTypesRange) {
  EXPECT_EQ(converted(DType::f32, DType::i32, 3e9), INT32_MAX);
  EXPECT_EQ(converted(DType::f32, DType::i32, -INFINITY), INT32_MIN);
  EXPECT_EQ(converted(DType::f32, DType::i32, NAN), INT32_MIN);
  EXPECT_EQ(converted(DType::f32, DType::u32, -1), 0);
  EXPECT_EQ(converted(DType::f32, DType::u32, 5e9), UINT32_MAX);
  EXPECT_EQ(converted(DType::f32, DType::i64, 1e30), static_cast<double>(INT64_MAX));
  EXPECT_EQ(converted(DType::f32, DType::i64, -1e30), static_cast<double>(INT64_MIN));
  // 8 and 16-bit integers wrap, as PyTorch's do.
  EXPECT_EQ(converted(DType::f32, DType::u8, -1.5), 255);
  EXPECT_EQ(converted(DType::f32, DType::u8, 300.7), 44);
  EXPECT_EQ(converted(DType::f32, DType::i8, 200), -56);
  EXPECT_EQ(converted(DType::f32, DType::i16, NAN), 0);
  EXPECT_EQ(converted(DType::f32, DType::boolean, NAN), 1);
  EXPECT_EQ(converted(DType::f32, DType::boolean, -0.0), 0);
  EXPECT_EQ(converted(DType::i64, DType::i32, 4294967301.0), 5);
}

TEST(Copy, NarrowFloatsRoundToNearestEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {  // every f16 and bf16 survives a round trip
    const auto b = static_cast<uint16_t>(bits);
    if (!std::isnan(f16_to_f32(b))) {
      EXPECT_EQ(f32_to_f16(f16_to_f32(b)), b);
    }
    if (!std::isnan(bf16_to_f32(b))) {
      EXPECT_EQ(f32_to_bf16(bf16_to_f32(b)), b);
    }
  }
  std::mt19937 random(3);
  for (int k = 0; k < 100000; ++k) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(x)) continue;
    const auto expected = static_cast<_Float16>(x);  // the compiler's conversion
    EXPECT_EQ(f32_to_f16(x), std::bit_cast<uint16_t>(expected)) << x;
    EXPECT_EQ(f16_to_f32(f32_to_f16(x)), static_cast<float>(expected));
  }
  EXPECT_EQ(f8_to_f32(DType::f8e4m3fn, 0x7E), 448);
  EXPECT_EQ(f8_to_f32(DType::f8e4m3fn, f32_to_f8(DType::f8e4m3fn, 1e9f)), 448);
  EXPECT_EQ(f8_to_f32(DType::f8e4m3, f32_to_f8(DType::f8e4m3, 1e9f)), INFINITY);
  EXPECT_EQ(f8_to_f32(DType::f8e4m3, f32_to_f8(DType::f8e4m3, 240)), 240);
  EXPECT_EQ(f8_to_f32(DType::f8e5m2, f32_to_f8(DType::f8e5m2, 57344)), 57344);
  EXPECT_EQ(f8_to_f32(DType::f8e5m2, f32_to_f8(DType::f8e5m2, 61441)), INFINITY);
  EXPECT_TRUE(std::isnan(f8_to_f32(DType::f8e4m3fnuz, 0x80)));
  EXPECT_EQ(f8_to_f32(DType::f8e8m0fnu, f32_to_f8(DType::f8e8m0fnu, 6.0f)), 8);
  for (const DType dtype : {DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz, DType::f8e4m3})
    for (int b = 0; b < 256; ++b) {
      const float x = f8_to_f32(dtype, static_cast<uint8_t>(b));
      if (std::isnan(x)) continue;
      EXPECT_EQ(f32_to_f8(dtype, x), b) << name_of(dtype);
      // Half way to the next larger value: the even one of the two.
      const float next = f8_to_f32(dtype, static_cast<uint8_t>(b + 1));
      if ((b & 0x7F) == 0x7F || std::isnan(next) || std::isinf(next)) continue;
      EXPECT_EQ(f32_to_f8(dtype, (x + next) / 2), b % 2 == 0 ? b : b + 1) << name_of(dtype) << " " << x;
    }
}

struct Pattern {
  const char* name;
  AccessPattern dst, src;
};

TEST(Copy, MovesBetweenAnyTwoPatterns) {
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::i64, DType::c128}) {
    Machine m;
    const int hbm = m.buffer(1 << 20);
    const AccessPattern patterns[] = {
        Machine::sbuf(dtype, 8, {{1, 60}}),
        Machine::sbuf(dtype, 8, {{1, 4}, {4, 15}}),                      // transposed inside the row
        Machine::sbuf(dtype, 8, {{30, 2}, {-1, 30}}, 29 * size_of(dtype)),  // reversed
        Machine::sbuf(dtype, 8, {{50, 3}, {2, 20}}),
        Machine::sbuf(dtype, 4, {{80, 2}, {6, 3}, {18, 4}, {1, 5}}),
        Machine::hbm(hbm, dtype, 8, 60, {{1, 60}}),
        Machine::hbm(hbm, dtype, 8, 1, {{8, 60}}),                       // transposed in HBM
        Machine::hbm(hbm, dtype, 60, 1, {{60, 8}}),
        Machine::hbm(hbm, dtype, 120, 4, {{1, 4}}),
        Machine::hbm(hbm, dtype, 1, 0, {{480, 1}, {1, 480}}, 48),
    };
    for (const AccessPattern& from : patterns) {
      for (AccessPattern to : patterns) {
        to.offset += to.memory == Memory::hbm ? 400000 : 32768;
        m.fill(from, [&](int64_t p, int64_t i) {
          if (dtype == DType::c128) {
            Machine::write(DType::f64, m.at(from, p, i) + 8, static_cast<double>(i));
            Machine::write(DType::f64, m.at(from, p, i), static_cast<double>(p));
          }
          return static_cast<double>((p * 61 + i * 7) % 120);
        });
        m.emit(Opcode::dma_copy, Engine::sync, to, {from});
        ASSERT_TRUE(m.run());
        const int64_t per_from = from.free_elements(), per_to = to.free_elements();
        for (int64_t k = 0; k < 480; ++k)
          ASSERT_EQ(std::memcmp(m.at(to, k / per_to, k % per_to), m.at(from, k / per_from, k % per_from), static_cast<size_t>(size_of(dtype))), 0)
              << name_of(dtype) << " pattern " << (&from - patterns) << " element " << k;
      }
    }
  }
}

TEST(Copy, OverlappingSourceIsReadFirst) {
  Machine m;
  // Widening in place, and a shift by one element.
  const AccessPattern narrow = Machine::row(DType::bf16, 4, 300), wide = Machine::row(DType::f32, 4, 300);
  m.fill(narrow, [](int64_t p, int64_t i) { return static_cast<double>(p * 10 + i % 200); });
  m.emit(Opcode::tensor_copy, Engine::vector, wide, {narrow});
  const AccessPattern shifted = Machine::row(DType::f32, 4, 299, 4), start = Machine::row(DType::f32, 4, 299);
  m.emit(Opcode::tensor_copy, Engine::vector, shifted, {start});
  ASSERT_TRUE(m.run());
  for (int p = 0; p < 4; ++p)
    for (int i = 0; i < 299; ++i) ASSERT_EQ(m.get(shifted, p, i), p * 10 + i % 200);
}

TEST(Copy, BroadcastsWithStrideZero) {
  Machine m;
  const int hbm = m.buffer(64 * 4);
  const AccessPattern src = Machine::hbm(hbm, DType::f32, 16, 0, {{1, 64}}), dst = Machine::row(DType::f32, 16, 64);
  m.fill(src, [](int64_t, int64_t i) { return static_cast<double>(i); });
  m.emit(Opcode::dma_copy, Engine::sync, dst, {src});
  const AccessPattern column = Machine::sbuf(DType::f32, 16, {{1, 8}, {0, 40}}), wide = Machine::row(DType::f32, 16, 320, 1024);
  m.emit(Opcode::tensor_copy, Engine::vector, wide, {column});
  ASSERT_TRUE(m.run());
  for (int p = 0; p < 16; ++p) {
    for (int i = 0; i < 64; ++i) EXPECT_EQ(m.get(dst, p, i), i);
    for (int i = 0; i < 320; ++i) EXPECT_EQ(m.get(wide, p, i), i / 40);
  }
}

TEST(Copy, AccumulatesInTheDestinationsType) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::u8, DType::i64}) {
    Machine m;
    const int hbm = m.buffer(5 * 40 * 8);
    const AccessPattern dst = Machine::hbm(hbm, dtype, 5, 40, {{1, 40}}), src = Machine::row(dtype, 5, 40);
    m.fill_random(dst, 0, 100);
    m.fill_random(src, 0, 100);
    std::vector<double> before;
    for (int k = 0; k < 200; ++k) before.push_back(m.get(dst, k / 40, k % 40));
    m.emit(Opcode::dma_copy, Engine::gpsimd, dst, {src}).accumulate = true;
    ASSERT_TRUE(m.run());
    for (int k = 0; k < 200; ++k) EXPECT_EQ(m.get(dst, k / 40, k % 40), rounded(dtype, before[static_cast<size_t>(k)] + m.get(src, k / 40, k % 40)));
  }
}

TEST(Select, PicksByAnyPredicateType) {
  for (const DType predicate : {DType::boolean, DType::u8, DType::i32, DType::f32, DType::bf16}) {
    for (const DType dtype : {DType::u8, DType::bf16, DType::f32}) {
      Machine m;
      const AccessPattern p = Machine::row(predicate, 5, 130), a = Machine::row(dtype, 5, 130, 2048),
                          b = Machine::sbuf(DType::f32, 5, {{0, 130}}, 4096), dst = Machine::sbuf(dtype, 5, {{2, 130}}, 8192);
      m.fill(p, [](int64_t q, int64_t i) { return (q + i) % 3 == 0 ? 0.0 : 2.0; });
      m.fill_random(a);
      m.fill_random(b, 0, 16);
      m.emit(Opcode::select, Engine::vector, dst, {p, a, b});
      ASSERT_TRUE(m.run());
      for (int q = 0; q < 5; ++q)
        for (int i = 0; i < 130; ++i)
          EXPECT_EQ(m.get(dst, q, i), (q + i) % 3 != 0 ? m.get(a, q, i) : rounded(dtype, m.get(b, q, i)));
    }
  }
}

TEST(Select, PredicatedCopyKeepsTheRest) {
  for (const bool inverted : {false, true}) {
    Machine m;
    const AccessPattern dst = Machine::row(DType::f32, 3, 70), src = Machine::row(DType::f32, 3, 70, 1024), p = Machine::row(DType::u8, 3, 70, 2048);
    m.fill(dst, [](int64_t, int64_t) { return -1.0; });
    m.fill(src, [](int64_t, int64_t i) { return static_cast<double>(i); });
    m.fill(p, [](int64_t, int64_t i) { return static_cast<double>(i % 2); });
    m.emit(Opcode::tensor_copy_predicated, Engine::vector, dst, {src, p}).reverse0 = inverted;
    ASSERT_TRUE(m.run());
    for (int i = 0; i < 70; ++i) EXPECT_EQ(m.get(dst, 2, i), (i % 2 == 1) != inverted ? i : -1);
  }
}

TEST(Memset, WritesEveryTypeAndShape) {
  for (const DType dtype : kTypes) {
    Machine m;
    const AccessPattern dst = Machine::sbuf(dtype, 7, {{10, 6}, {2, 5}});
    m.emit(Opcode::memset, Engine::vector, dst).s0 = Scalar::imm(1);
    ASSERT_TRUE(m.run());
    for (int i = 0; i < 30; ++i) EXPECT_EQ(m.get(dst, 6, i), 1);
    EXPECT_EQ(*(m.at(dst, 0, 0) + size_of(dtype)), std::byte{0xFF});  // the gap is untouched
  }
  Machine m;
  const AccessPattern complex = Machine::row(DType::c64, 1, 2);
  m.emit(Opcode::memset, Engine::vector, complex).s0 = Scalar::imm(-2.5);
  ASSERT_TRUE(m.run());
  EXPECT_EQ(Machine::read(DType::f32, m.at(complex, 0, 1)), -2.5);
  EXPECT_EQ(Machine::read(DType::f32, m.at(complex, 0, 1) + 4), 0);
}

}  // namespace
}  // namespace opentrn::exec
