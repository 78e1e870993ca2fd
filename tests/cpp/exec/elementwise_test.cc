// tensor_tensor, tensor_scalar, scalar_tensor_tensor and reciprocal against a plain loop.
#include "machine.h"

namespace opentrn::exec {
namespace {

constexpr AluOp kArithmetic[] = {AluOp::add, AluOp::subtract, AluOp::mult, AluOp::divide, AluOp::max, AluOp::min, AluOp::pow,
                                 AluOp::mod, AluOp::abs_max, AluOp::is_equal, AluOp::not_equal, AluOp::is_gt, AluOp::is_ge,
                                 AluOp::is_lt, AluOp::is_le, AluOp::logical_and, AluOp::logical_or, AluOp::logical_xor,
                                 AluOp::average, AluOp::bypass};

// What an operation means, for one pair of f32 values.
float alu(AluOp op, float a, float b) {
  switch (op) {
    case AluOp::add: return a + b;
    case AluOp::subtract: return a - b;
    case AluOp::mult: return a * b;
    case AluOp::divide: return a / b;
    case AluOp::max: return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
    case AluOp::min: return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
    case AluOp::pow: return static_cast<float>(std::pow(static_cast<double>(a), static_cast<double>(b)));
    case AluOp::mod: {
      const float r = std::fmod(a, b);
      return r != 0 && (b < 0) != (r < 0) ? r + b : r;
    }
    case AluOp::abs_max: return alu(AluOp::max, std::fabs(a), std::fabs(b));
    case AluOp::is_equal: return a == b;
    case AluOp::not_equal: return a != b;
    case AluOp::is_gt: return a > b;
    case AluOp::is_ge: return a >= b;
    case AluOp::is_lt: return a < b;
    case AluOp::is_le: return a <= b;
    case AluOp::logical_and: return a != 0 && b != 0;
    case AluOp::logical_or: return a != 0 || b != 0;
    case AluOp::logical_xor: return (a != 0) != (b != 0);
    case AluOp::average: return (a + b) * 0.5f;
    default: return a;
  }
}

TEST(TensorTensor, EveryOperationInEveryShape) {
  for (const AluOp op : kArithmetic) {
    for (const int n : {1, 3, 8, 37, 100, 1500}) {
      Machine m;
      const AccessPattern a = Machine::row(DType::f32, 5, n), b = Machine::sbuf(DType::f32, 5, {{2, n}}, 8192), dst = Machine::row(DType::f32, 5, n, 32768);
      m.fill_random(a);
      m.fill_random(b, -9, 9);
      m.emit(Opcode::tensor_tensor, Engine::vector, dst, {a, b}).op0 = op;
      ASSERT_TRUE(m.run());
      for (int p = 0; p < 5; ++p)
        for (int i = 0; i < n; ++i) {
          const auto x = static_cast<float>(m.get(a, p, i)), y = static_cast<float>(m.get(b, p, i));
          const double expected = alu(op, x, y), got = m.get(dst, p, i);
          if (op == AluOp::max || op == AluOp::min) ASSERT_EQ(got, expected);
          else ASSERT_TRUE(same_value(got, expected)) << isa::name_of(op) << " " << x << " " << y << ": " << got << " not " << expected;
        }
    }
  }
}

TEST(TensorTensor, SpecialValues) {
  const float values[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1.0f, -1.0f, 3.0f, -2.5f, 1e-42f, 3e38f, 0x1p24f, 0.5f};
  constexpr int kCount = std::size(values);
  for (const AluOp op : kArithmetic) {
    Machine m;
    const AccessPattern a = Machine::row(DType::f32, kCount, kCount), b = Machine::row(DType::f32, kCount, kCount, 1024), dst = Machine::row(DType::f32, kCount, kCount, 2048);
    m.fill(a, [&](int64_t p, int64_t) { return values[p]; });
    m.fill(b, [&](int64_t, int64_t i) { return values[i]; });
    m.emit(Opcode::tensor_tensor, Engine::vector, dst, {a, b}).op0 = op;
    ASSERT_TRUE(m.run());
    for (int p = 0; p < kCount; ++p)
      for (int i = 0; i < kCount; ++i) {
        const double expected = alu(op, values[p], values[i]), got = m.get(dst, p, i);
        const bool either_zero = op == AluOp::max || op == AluOp::min;  // of +0 and -0
        EXPECT_TRUE(same_value(got, expected) || (either_zero && got == expected)) << isa::name_of(op) << " " << values[p] << " " << values[i] << ": " << got << " not " << expected;
      }
  }
}

TEST(TensorTensor, ConvertsInAndOut) {
  for (const DType x : {DType::boolean, DType::u8, DType::i32, DType::f16, DType::bf16, DType::f8e4m3fn}) {
    for (const DType y : {DType::i8, DType::bf16, DType::f32}) {
      for (const DType z : {DType::boolean, DType::i32, DType::f16, DType::bf16, DType::f32}) {
        Machine m;
        const AccessPattern a = Machine::row(x, 3, 75), b = Machine::sbuf(y, 3, {{0, 3}, {1, 25}}, 2048), dst = Machine::psum(z, 3, {{1, 75}});
        m.fill_random(a, -10, 10);
        m.fill_random(b, -10, 10);
        m.emit(Opcode::tensor_tensor, Engine::vector, dst, {a, b}).op0 = AluOp::mult;
        ASSERT_TRUE(m.run());
        for (int i = 0; i < 75; ++i) EXPECT_EQ(m.get(dst, 2, i), rounded(z, m.get(a, 2, i) * m.get(b, 2, i)));
      }
    }
  }
}

TEST(TensorTensor, InPlaceAndShifted) {
  Machine m;
  const AccessPattern x = Machine::row(DType::f32, 4, 200), next = Machine::row(DType::f32, 4, 199, 4), start = Machine::row(DType::f32, 4, 199);
  m.fill(x, [](int64_t, int64_t i) { return static_cast<double>(i * i); });
  m.emit(Opcode::tensor_tensor, Engine::vector, x, {x, x}).op0 = AluOp::add;
  m.emit(Opcode::tensor_tensor, Engine::vector, next, {next, start}).op0 = AluOp::subtract;  // first differences
  ASSERT_TRUE(m.run());
  for (int i = 1; i < 200; ++i) EXPECT_EQ(m.get(x, 3, i), 2 * (2 * i - 1));
}

TEST(TensorScalar, ImmediateArgumentAndTileOperands) {
  for (const int n : {1, 5, 16, 300}) {
    for (const bool reversed : {false, true}) {
      Machine m;
      m.program().scalars = {{"k", DType::f32}};
      const AccessPattern x = Machine::row(DType::bf16, 9, n), per_partition = Machine::row(DType::f32, 9, 1, 4096), dst = Machine::row(DType::f32, 9, n, 8192);
      m.fill_random(x);
      m.fill_random(per_partition);
      Instruction& i = m.emit(Opcode::tensor_scalar, Engine::vector, dst, {x});
      i.op0 = AluOp::subtract;
      i.s0 = Scalar::of(per_partition);
      i.reverse0 = reversed;
      i.op1 = AluOp::divide;
      i.s1 = Scalar::arg(0);
      i.reverse1 = reversed;
      ScalarValue k;
      k.real = 0.3;
      ASSERT_TRUE(m.run({k}));
      for (int p = 0; p < 9; ++p)
        for (int j = 0; j < n; ++j) {
          const auto a = static_cast<float>(m.get(x, p, j)), b = static_cast<float>(m.get(per_partition, p, 0));
          const float t = reversed ? b - a : a - b;
          EXPECT_TRUE(same_value(m.get(dst, p, j), reversed ? 0.3f / t : t / 0.3f));
        }
    }
  }
}

TEST(TensorScalar, TheScalarsTileMayLieInTheDestination) {
  struct Case {
    int partitions, n, column;
  };
  for (const auto& [partitions, n, column] : {Case{6, 4, 0}, Case{6, 64, 0}, Case{128, 10, 3}, Case{128, 15, 14}}) {
    Machine m;
    const AccessPattern x = Machine::row(DType::f32, partitions, n), one = Machine::row(DType::f32, partitions, 1, 4 * column);
    m.fill(x, [](int64_t p, int64_t i) { return static_cast<double>(100 * p + i); });
    Instruction& i = m.emit(Opcode::tensor_scalar, Engine::vector, x, {x});
    i.op0 = AluOp::subtract;
    i.s0 = Scalar::of(one);
    ASSERT_TRUE(m.run());
    for (int p = 0; p < partitions; ++p)
      for (int j = 0; j < n; ++j) EXPECT_EQ(m.get(x, p, j), j - column);
  }
}

TEST(ScalarTensorTensor, KeepsASourceThatIsAlsoTheDestination) {
  Machine m;
  const AccessPattern x = Machine::row(DType::f32, 4, 333), y = Machine::row(DType::f32, 4, 333, 4096);
  m.fill_random(x);
  m.fill_random(y);
  std::vector<double> before;
  for (int i = 0; i < 333; ++i) before.push_back(m.get(y, 1, i));
  Instruction& i = m.emit(Opcode::scalar_tensor_tensor, Engine::vector, y, {x, y});  // y = x * -3 + y
  i.op0 = AluOp::mult;
  i.s0 = Scalar::imm(-3);
  i.op1 = AluOp::add;
  ASSERT_TRUE(m.run());
  for (int j = 0; j < 333; ++j) EXPECT_EQ(m.get(y, 1, j), m.get(x, 1, j) * -3 + before[static_cast<size_t>(j)]);
}

TEST(Integers, BitwiseOperationsActOnRawBits) {
  Machine m;
  const AccessPattern x = Machine::row(DType::i32, 1, 4), y = Machine::row(DType::i32, 1, 4, 64), dst = Machine::row(DType::i32, 1, 4, 128);
  const auto check = [&](AluOp op, std::vector<double> a, std::vector<double> b, std::vector<double> expected) {
    m.fill(x, [&](int64_t, int64_t i) { return a[static_cast<size_t>(i)]; });
    m.fill(y, [&](int64_t, int64_t i) { return b[static_cast<size_t>(i)]; });
    m.emit(Opcode::tensor_tensor, Engine::vector, dst, {x, y}).op0 = op;
    ASSERT_TRUE(m.run());
    for (int i = 0; i < 4; ++i) EXPECT_EQ(m.get(dst, 0, i), expected[static_cast<size_t>(i)]) << isa::name_of(op);
  };
  check(AluOp::bitwise_and, {-1, 12, 0x7FFFFFFF, 5}, {123456789, 10, 0x7FFFFFFE, 2}, {123456789, 8, 0x7FFFFFFE, 0});
  check(AluOp::bitwise_or, {-16, 12, 1, 5}, {15, 3, 0, 2}, {-1, 15, 1, 7});
  check(AluOp::bitwise_xor, {-1, 6, 7, 5}, {1, 3, 7, 0}, {-2, 5, 0, 5});
  check(AluOp::shift_left, {1, 1, 3, 1}, {31, 32, 30, -1}, {INT32_MIN, 0, -1073741824, 0});
  check(AluOp::shift_right, {-1, -1, 8, 8}, {31, 32, 2, 0}, {1, 0, 2, 8});
  check(AluOp::arith_shift_right, {-8, -8, 8, -1}, {1, 40, 2, 31}, {-4, -1, 2, -1});

  const AccessPattern narrow = Machine::row(DType::i8, 1, 2, 256);
  m.fill(narrow, [](int64_t, int64_t i) { return i ? -2.0 : 64.0; });
  Instruction& shift = m.emit(Opcode::tensor_scalar, Engine::vector, narrow, {narrow});
  shift.op0 = AluOp::shift_right;
  shift.s0 = Scalar::imm(1);
  ASSERT_TRUE(m.run());
  EXPECT_EQ(m.get(narrow, 0, 0), 32);
  EXPECT_EQ(m.get(narrow, 0, 1), 127);  // 0xFE >> 1
}

TEST(Integers, GpSimdIsExactWhereTheVectorEngineRounds) {
  Machine m;
  const AccessPattern x = Machine::row(DType::i32, 1, 3), y = Machine::row(DType::i32, 1, 3, 64), dst = Machine::row(DType::i32, 1, 3, 128);
  m.fill(x, [](int64_t, int64_t i) { return i == 0 ? 16777217.0 : i == 1 ? 2147483647.0 : -7.0; });
  m.fill(y, [](int64_t, int64_t i) { return i == 2 ? 3.0 : 2.0; });
  const auto run = [&](Engine engine, AluOp op, int i) {
    m.emit(Opcode::tensor_tensor, engine, dst, {x, y}).op0 = op;
    EXPECT_TRUE(m.run());
    return m.get(dst, 0, i);
  };
  EXPECT_EQ(run(Engine::vector, AluOp::add, 0), 16777218);  // 16777217 is no f32
  EXPECT_EQ(run(Engine::gpsimd, AluOp::add, 0), 16777219);
  EXPECT_EQ(run(Engine::gpsimd, AluOp::add, 1), -2147483647);
  EXPECT_EQ(run(Engine::gpsimd, AluOp::mult, 0), 33554434);
  EXPECT_EQ(run(Engine::gpsimd, AluOp::divide, 2), -2);
  EXPECT_EQ(run(Engine::gpsimd, AluOp::mod, 2), 2);
  EXPECT_EQ(run(Engine::gpsimd, AluOp::pow, 2), -343);
  EXPECT_EQ(run(Engine::gpsimd, AluOp::is_gt, 0), 1);
}

}  // namespace
}  // namespace opentrn::exec
