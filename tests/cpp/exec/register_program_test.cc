// gpsimd_kernel: register programs over elements, over rows, and where operands alias.
#include "exec/register_math.h"
#include "machine.h"

namespace opentrn::exec {
namespace {

using isa::KernelInstruction;

KernelInstruction op(KernelOp o, KernelType type, int dst, int a = 0, int b = 0, int c = 0) {
  KernelInstruction k;
  k.op = o;
  k.type = type;
  k.dst = static_cast<uint8_t>(dst);
  k.a = static_cast<uint8_t>(a);
  k.b = static_cast<uint8_t>(b);
  k.c = static_cast<uint8_t>(c);
  return k;
}
KernelInstruction load(KernelType type, int dst, int operand) { return op(KernelOp::load, type, dst, operand); }
KernelInstruction store(KernelType type, int operand, int reg) { return op(KernelOp::store, type, 0, operand, reg); }
KernelInstruction integer(KernelType type, int dst, int64_t value) {
  KernelInstruction k = op(KernelOp::constant, type, dst);
  k.imm_int = value;
  return k;
}
KernelInstruction real(KernelType type, int dst, double value) {
  KernelInstruction k = op(KernelOp::constant, type, dst);
  k.imm = value;
  return k;
}
KernelInstruction convert(KernelType to, KernelType from, int dst, int a) {
  KernelInstruction k = op(KernelOp::convert, to, dst, a);
  k.from = from;
  return k;
}

struct Kernels : Machine {
  int kernel(std::vector<KernelInstruction> prologue, std::vector<KernelInstruction> body, std::vector<KernelInstruction> epilogue = {}) {
    program().kernels.push_back({"k", std::move(prologue), std::move(body), std::move(epilogue)});
    return static_cast<int>(program().kernels.size()) - 1;
  }
  Instruction& call(int kernel, const AccessPattern& dst, std::initializer_list<AccessPattern> src) {
    Instruction& i = emit(Opcode::gpsimd_kernel, Engine::gpsimd, dst, src);
    i.kernel = static_cast<int16_t>(kernel);
    return i;
  }
};

int64_t bits64(Machine& m, const AccessPattern& ap, int64_t p, int64_t i) {
  int64_t v;
  std::memcpy(&v, m.at(ap, p, i), 8);
  return v;
}

TEST(RegisterProgram, SixtyFourBitIntegersAreExact) {
  Kernels m;
  const auto t = KernelType::i64;
  const int mix = m.kernel({}, {load(t, 0, 0), integer(t, 1, 6364136223846793005), op(KernelOp::mul, t, 0, 0, 1),
                                integer(t, 2, 1442695040888963407), op(KernelOp::add, t, 0, 0, 2), integer(t, 3, 29),
                                op(KernelOp::shr, t, 4, 0, 3), op(KernelOp::bit_xor, t, 0, 0, 4), store(t, 1, 0)});
  for (const int n : {1, 7, 256, 257, 1000}) {
    const AccessPattern x = Machine::row(DType::i64, 3, n), y = Machine::sbuf(DType::i64, 3, {{2, n}}, 16384);
    m.fill(x, [](int64_t p, int64_t i) { return static_cast<double>(p * 100003 + i); });
    m.call(mix, y, {x});
    ASSERT_TRUE(m.run());
    for (int p = 0; p < 3; ++p)
      for (int i = 0; i < n; ++i) {
        uint64_t v = static_cast<uint64_t>(p * 100003 + i) * 6364136223846793005u + 1442695040888963407u;
        v ^= v >> 29;
        EXPECT_EQ(bits64(m, y, p, i), static_cast<int64_t>(v));
      }
  }
}

// Sum, maximum and its position in one pass: registers carried along the row, results stored by the epilogue.
TEST(RegisterProgram, CarriesRegistersAlongARow) {
  for (const auto& [partitions, outer, n] : {std::tuple{1, 1, 500}, {5, 1, 33}, {128, 3, 20}, {7, 100, 1}}) {
    Kernels m;
    const auto f = KernelType::f64, i = KernelType::i64;
    const int argmax = m.kernel({real(f, 0, -INFINITY), integer(i, 1, 0)},
                                {load(f, 2, 0), op(KernelOp::column, i, 3), op(KernelOp::gt, f, 4, 2, 0),
                                 op(KernelOp::select, f, 0, 4, 2, 0), convert(i, f, 5, 4), op(KernelOp::select, i, 1, 5, 3, 1)},
                                {store(i, 1, 1), store(f, 2, 0)});
    const AccessPattern x = Machine::sbuf(DType::f32, partitions, {{n + 2, outer}, {1, n}}),
                        position = Machine::sbuf(DType::i64, partitions, {{1, outer}, {1, 1}}, 32768),
                        largest = Machine::sbuf(DType::f32, partitions, {{2, outer}, {1, 1}}, 40000);
    m.fill_random(x, -10000, 10000);
    m.call(argmax, position, {x}).dst1 = largest;
    ASSERT_TRUE(m.run());
    for (int p = 0; p < partitions; ++p)
      for (int o = 0; o < outer; ++o) {
        int best = 0;
        for (int k = 1; k < n; ++k)
          if (m.get(x, p, o * n + k) > m.get(x, p, o * n + best)) best = k;
        EXPECT_EQ(m.get(position, p, o), best);
        EXPECT_EQ(m.get(largest, p, o), m.get(x, p, o * n + best));
      }
  }
}

TEST(RegisterProgram, PrefixSumStoresEveryElement) {
  Kernels m;
  const auto t = KernelType::f64;
  const int cumsum = m.kernel({real(t, 0, 0)}, {load(t, 1, 0), op(KernelOp::add, t, 0, 0, 1), store(t, 1, 0)});
  const AccessPattern x = Machine::row(DType::f64, 9, 300), y = Machine::row(DType::f64, 9, 300, 8192);
  m.fill_random(x);
  m.call(cumsum, y, {x});
  ASSERT_TRUE(m.run());
  for (int p = 0; p < 9; ++p) {
    double sum = 0;
    for (int i = 0; i < 300; ++i) EXPECT_EQ(m.get(y, p, i), sum += m.get(x, p, i));
  }
}

TEST(RegisterProgram, IndexFollowsPositionOrPattern) {
  Kernels m;
  const auto t = KernelType::i64;
  const int index = m.kernel({}, {op(KernelOp::index, t, 0), store(t, 0, 0)});
  const int column = m.kernel({}, {op(KernelOp::column, KernelType::i32, 0), store(KernelType::i32, 0, 0)});
  const int sequential = m.kernel({integer(t, 1, 0)}, {op(KernelOp::index, t, 0), op(KernelOp::add, t, 1, 1, 0), store(t, 0, 1)});
  const AccessPattern flat = Machine::sbuf(DType::i64, 4, {{30, 5}, {1, 30}}), patterned = Machine::sbuf(DType::i64, 4, {{30, 5}, {1, 30}}, 8192),
                      columns = Machine::sbuf(DType::i32, 4, {{30, 5}, {1, 30}}, 16384), sums = Machine::sbuf(DType::i64, 4, {{30, 5}, {1, 30}}, 24576);
  m.call(index, flat, {}).s0 = Scalar::imm(7);
  Instruction& i = m.call(index, patterned, {});
  i.channel_multiplier = 1000;
  i.pattern = {{100, 5}, {-2, 30}};
  m.call(column, columns, {});
  m.call(sequential, sums, {});
  ASSERT_TRUE(m.run());
  for (int p = 0; p < 4; ++p)
    for (int k = 0; k < 150; ++k) {
      EXPECT_EQ(m.get(flat, p, k), 7 + p * 150 + k);
      EXPECT_EQ(m.get(patterned, p, k), 1000 * p + 100 * (k / 30) - 2 * (k % 30));
      EXPECT_EQ(m.get(columns, p, k), k % 30);
      const int64_t first = p * 150 + k / 30 * 30, n = k % 30 + 1;
      EXPECT_EQ(m.get(sums, p, k), static_cast<double>(n * first + n * (n - 1) / 2));
    }
}

TEST(RegisterProgram, LaunchScalarsAndOneValuePerRow) {
  Kernels m;
  m.program().scalars = {{"a", DType::f64}};
  const auto t = KernelType::f64;
  KernelInstruction argument = op(KernelOp::argument, t, 1);
  argument.imm_int = 0;
  // y = x * a + b[row]
  const int axpb = m.kernel({load(t, 2, 1)}, {load(t, 0, 0), argument, op(KernelOp::fma, t, 0, 0, 1, 2), store(t, 2, 0)});
  const AccessPattern x = Machine::sbuf(DType::f32, 6, {{40, 3}, {1, 40}}), b = Machine::sbuf(DType::f32, 6, {{1, 3}, {1, 1}}, 4096), y = Machine::sbuf(DType::f32, 6, {{40, 3}, {1, 40}}, 8192);
  m.fill_random(x);
  m.fill_random(b);
  m.call(axpb, y, {x, b});
  ScalarValue a;
  a.real = 0.1;
  ASSERT_TRUE(m.run({a}));
  for (int p = 0; p < 6; ++p)
    for (int k = 0; k < 120; ++k) EXPECT_EQ(m.get(y, p, k), static_cast<float>(std::fma(m.get(x, p, k), 0.1, m.get(b, p, k / 40))));
}

TEST(RegisterProgram, OverlappingOperandsRunInElementOrder) {
  Kernels m;
  const auto t = KernelType::i32;
  // x[i + 1] = x[i] + 1, one element after the other
  const int chain = m.kernel({}, {load(t, 0, 0), integer(t, 1, 1), op(KernelOp::add, t, 0, 0, 1), store(t, 1, 0)});
  const AccessPattern from = Machine::row(DType::i32, 2, 400), to = Machine::row(DType::i32, 2, 400, 4);
  m.fill(from, [](int64_t, int64_t) { return 0.0; });
  m.call(chain, to, {from});
  // In place is no overlap of that kind.
  const int twice = m.kernel({}, {load(t, 0, 0), op(KernelOp::add, t, 0, 0, 0), store(t, 1, 0)});
  m.call(twice, to, {to});
  ASSERT_TRUE(m.run());
  for (int i = 0; i < 400; ++i) EXPECT_EQ(m.get(to, 1, i), 2 * (i + 1));
}

template <typename T>
void check_integers(KernelType type, DType dtype) {
  const T values[] = {0, 1, 2, 3, 7, static_cast<T>(-1), static_cast<T>(-7), std::numeric_limits<T>::max(), std::numeric_limits<T>::min(), 31, 64};
  constexpr int kCount = std::size(values);
  struct Case {
    KernelOp op;
    T (*expected)(T, T);
  };
  using U = std::make_unsigned_t<T>;
  const Case cases[] = {
      {KernelOp::add, [](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); }},
      {KernelOp::sub, [](T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); }},
      {KernelOp::mul, [](T a, T b) { return static_cast<T>(static_cast<U>(static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b))); }},
      {KernelOp::mul_hi, [](T a, T b) { return static_cast<T>((static_cast<__int128>(a) * static_cast<__int128>(b)) >> (sizeof(T) * 8)); }},
      {KernelOp::div, [](T a, T b) { return b == 0 ? T{0} : static_cast<T>(static_cast<__int128>(a) / b); }},
      {KernelOp::rem, [](T a, T b) { return b == 0 ? T{0} : static_cast<T>(static_cast<__int128>(a) % b); }},
      {KernelOp::floor_div, [](T a, T b) {
         if (b == 0) return T{0};
         const __int128 q = static_cast<__int128>(a) / b, r = static_cast<__int128>(a) % b;
         return static_cast<T>(r != 0 && (r < 0) != (b < 0) ? q - 1 : q);
       }},
      {KernelOp::mod, [](T a, T b) {
         if (b == 0) return T{0};
         const __int128 r = static_cast<__int128>(a) % b;
         return static_cast<T>(r != 0 && (r < 0) != (b < 0) ? r + b : r);
       }},
      {KernelOp::min, [](T a, T b) { return std::min(a, b); }},
      {KernelOp::max, [](T a, T b) { return std::max(a, b); }},
      {KernelOp::lt, [](T a, T b) { return static_cast<T>(a < b); }},
      {KernelOp::ge, [](T a, T b) { return static_cast<T>(a >= b); }},
      {KernelOp::eq, [](T a, T b) { return static_cast<T>(a == b); }},
      {KernelOp::shl, [](T a, T b) { return static_cast<U>(b) < sizeof(T) * 8 ? static_cast<T>(static_cast<U>(a) << b) : T{0}; }},
      {KernelOp::shr, [](T a, T b) { return static_cast<U>(b) < sizeof(T) * 8 ? static_cast<T>(static_cast<U>(a) >> b) : T{0}; }},
  };
  for (const Case& c : cases) {
    Kernels m;
    const int k = m.kernel({}, {load(type, 0, 0), load(type, 1, 1), op(c.op, type, 2, 0, 1), store(type, 2, 2)});
    const AccessPattern a = Machine::row(dtype, kCount, kCount), b = Machine::row(dtype, kCount, kCount, 1024), y = Machine::row(dtype, kCount, kCount, 2048);
    for (int p = 0; p < kCount; ++p)
      for (int i = 0; i < kCount; ++i) {
        std::memcpy(m.at(a, p, i), &values[p], sizeof(T));
        std::memcpy(m.at(b, p, i), &values[i], sizeof(T));
      }
    m.call(k, y, {a, b});
    ASSERT_TRUE(m.run());
    for (int p = 0; p < kCount; ++p)
      for (int i = 0; i < kCount; ++i) {
        T got;
        std::memcpy(&got, m.at(y, p, i), sizeof(T));
        EXPECT_EQ(got, c.expected(values[p], values[i])) << static_cast<int>(c.op) << ": " << values[p] << ", " << values[i];
      }
  }
}

TEST(RegisterProgram, IntegerOperationsOfEveryType) {
  check_integers<int32_t>(KernelType::i32, DType::i32);
  check_integers<uint32_t>(KernelType::u32, DType::u32);
  check_integers<int64_t>(KernelType::i64, DType::i64);
  check_integers<uint64_t>(KernelType::u64, DType::u64);
}

TEST(RegisterProgram, SpecialFunctions) {
  struct Case {
    KernelOp op;
    double x, expected;
  };
  // Values from tables: erfinv(erf(1)), digamma(1) = -Euler's constant, digamma(-1/2), lgamma(1/2) = log(pi) / 2.
  const Case cases[] = {{KernelOp::erfinv, std::erf(1.0), 1}, {KernelOp::erfinv, 0.5, 0.47693627620446987}, {KernelOp::erfinv, -0.999, -2.326753765513525},
                        {KernelOp::erfinv, 1e-10, 8.862269254527581e-11}, {KernelOp::digamma, 1, -0.57721566490153286},
                        {KernelOp::digamma, -0.5, 0.03648997397857652}, {KernelOp::digamma, 100, 4.600161852738087},
                        {KernelOp::lgamma, 0.5, 0.57236494292470008}, {KernelOp::lgamma, -1.5, 0.8600470153764810},
                        {KernelOp::tan, 1, 1.5574077246549023}, {KernelOp::acosh, 2, 1.3169578969248166}, {KernelOp::log2, 8, 3},
                        {KernelOp::round, 2.5, 2}, {KernelOp::round, -3.5, -4}, {KernelOp::exp2, -3, 0.125}};
  for (const auto& [o, x, expected] : cases) {
    for (const auto& [type, dtype] : {std::pair{KernelType::f32, DType::f32}, {KernelType::f64, DType::f64}}) {
      Kernels m;
      const int k = m.kernel({}, {load(type, 0, 0), op(o, type, 1, 0), store(type, 1, 1)});
      const AccessPattern a = Machine::row(dtype, 1, 1), y = Machine::row(dtype, 1, 1, 64);
      m.set(a, 0, 0, x);
      m.call(k, y, {a});
      ASSERT_TRUE(m.run());
      const double slope = o == KernelOp::erfinv || o == KernelOp::digamma ? 2e-5 : 2e-7;  // of an f32 argument's rounding
      EXPECT_NEAR(m.get(y, 0, 0), expected, std::fabs(expected) * (dtype == DType::f32 ? slope : 1e-14) + 1e-16) << static_cast<int>(o) << " " << x;
    }
  }
  EXPECT_EQ(erfinv(1), INFINITY);
  EXPECT_TRUE(std::isnan(erfinv(1.5)));
  EXPECT_TRUE(std::isnan(digamma(-2)));
  EXPECT_EQ(digamma(0), -INFINITY);
  for (double y = -5.5; y < 5.5; y += 0.37) EXPECT_NEAR(erfinv(std::erf(y)), y, std::fabs(y) * 1e-15 * std::exp(y * y) + 1e-15);
}

TEST(RegisterProgram, ConvertsSaturatingAndBitcasts) {
  Kernels m;
  const int k = m.kernel({}, {load(KernelType::f64, 0, 0), convert(KernelType::i32, KernelType::f64, 0, 0), store(KernelType::i32, 1, 0)});
  const AccessPattern x = Machine::row(DType::f64, 1, 4), y = Machine::row(DType::i32, 1, 4, 64);
  m.fill(x, [](int64_t, int64_t i) { return i == 0 ? 1e20 : i == 1 ? -1e20 : i == 2 ? -2.9 : 2.9; });
  m.call(k, y, {x});
  KernelInstruction cast = op(KernelOp::bitcast, KernelType::u32, 1, 0);
  cast.from = KernelType::f32;
  const int bits = m.kernel({}, {load(KernelType::f32, 0, 0), cast, store(KernelType::u32, 1, 1)});
  const AccessPattern one = Machine::row(DType::f32, 1, 1, 128), word = Machine::row(DType::u32, 1, 1, 192);
  m.set(one, 0, 0, 1);
  m.call(bits, word, {one});
  ASSERT_TRUE(m.run());
  EXPECT_EQ(m.get(y, 0, 0), INT32_MAX);
  EXPECT_EQ(m.get(y, 0, 1), INT32_MIN);
  EXPECT_EQ(m.get(y, 0, 2), -2);
  EXPECT_EQ(m.get(y, 0, 3), 2);
  EXPECT_EQ(m.get(word, 0, 0), 0x3F800000);
}

}  // namespace
}  // namespace opentrn::exec
