// Activation functions: accuracy against double precision, special values, scale, bias and the row result.
#include "machine.h"

namespace opentrn::exec {
namespace {

double reference(ActFn act, double x) {
  switch (act) {
    case ActFn::exp: return std::exp(x);
    case ActFn::log: return std::log(x);
    case ActFn::sqrt: return std::sqrt(x);
    case ActFn::rsqrt: return 1 / std::sqrt(x);
    case ActFn::square: return x * x;
    case ActFn::reciprocal: return 1 / x;
    case ActFn::abs: return std::fabs(x);
    case ActFn::sign: return (x > 0) - (x < 0);
    case ActFn::sigmoid: return 1 / (1 + std::exp(-x));
    case ActFn::tanh: return std::tanh(x);
    case ActFn::relu: return x < 0 ? 0 : x;
    case ActFn::gelu: return 0.5 * x * std::erfc(-x * M_SQRT1_2);
    case ActFn::gelu_tanh: return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActFn::silu: return x / (1 + std::exp(-x));
    case ActFn::erf: return std::erf(x);
    case ActFn::erfc: return std::erfc(x);
    case ActFn::softplus: return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    case ActFn::sin: return std::sin(x);
    case ActFn::cos: return std::cos(x);
    case ActFn::arctan: return std::atan(x);
    case ActFn::log1p: return std::log1p(x);
    case ActFn::expm1: return std::expm1(x);
    case ActFn::floor: return std::floor(x);
    case ActFn::ceil: return std::ceil(x);
    case ActFn::copy: return x;
  }
  return NAN;
}

constexpr ActFn kAll[] = {ActFn::copy, ActFn::exp, ActFn::log, ActFn::sqrt, ActFn::rsqrt, ActFn::square, ActFn::reciprocal,
                          ActFn::abs, ActFn::sign, ActFn::sigmoid, ActFn::tanh, ActFn::relu, ActFn::gelu, ActFn::gelu_tanh,
                          ActFn::silu, ActFn::erf, ActFn::erfc, ActFn::softplus, ActFn::sin, ActFn::cos, ActFn::arctan,
                          ActFn::log1p, ActFn::expm1, ActFn::floor, ActFn::ceil};

// Distance in units of the last place of the f32 nearest to `exact`.
double ulps(float got, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (std::isnan(got) || std::isnan(nearest)) return std::isnan(got) && std::isnan(nearest) ? 0 : INFINITY;
  if (got == nearest) return 0;
  if (std::isinf(got) || std::isinf(nearest)) return INFINITY;
  const double unit = std::max(std::ldexp(1.0, std::ilogb(nearest == 0 ? 1e-45f : nearest) - 23), 0x1p-149);
  return std::fabs(got - exact) / unit;
}

// Functions evaluated in f32; the others are evaluated in double and rounded.
double tolerance(ActFn act) {
  switch (act) {
    case ActFn::exp:
    case ActFn::log: return 1;
    case ActFn::erf: return 1.2;
    case ActFn::rsqrt: return 1.6;
    case ActFn::sigmoid:
    case ActFn::silu:
    case ActFn::tanh: return 2.5;
    default: return 0.6;
  }
}

// e^-x overflows in f32 where these are denormal.
bool underflows(ActFn act, double x) { return (act == ActFn::sigmoid || act == ActFn::silu) && x < -87 && std::isfinite(x); }

TEST(Activation, WithinTwoUlpsOfTheExactValue) {
  constexpr int kPartitions = 16, kCount = 2000;
  for (const ActFn act : kAll) {
    Machine m;
    const AccessPattern x = Machine::row(DType::f32, kPartitions, kCount), y = Machine::row(DType::f32, kPartitions, kCount, 16384);
    std::uniform_real_distribution<double> exponent(-60, 10), sign(-1, 1), near(-6, 6);
    m.fill(x, [&](int64_t p, int64_t) { return p % 2 ? near(m.random) : std::copysign(std::exp2(exponent(m.random)), sign(m.random)); });
    m.emit(Opcode::activation, Engine::scalar, y, {x}).act = act;
    ASSERT_TRUE(m.run());
    double worst = 0;
    for (int p = 0; p < kPartitions; ++p)
      for (int i = 0; i < kCount; ++i) {
        const auto got = static_cast<float>(m.get(y, p, i));
        const double exact = reference(act, m.get(x, p, i));
        const double u = underflows(act, m.get(x, p, i)) ? std::fabs(got - exact) * 1e36 : ulps(got, exact);
        if (u > worst) worst = u;
        ASSERT_LE(u, tolerance(act)) << isa::name_of(act) << "(" << m.get(x, p, i) << ") = " << got;
      }
    RecordProperty(std::string(isa::name_of(act)), std::to_string(worst));
  }
}

TEST(Activation, SpecialValues) {
  const float inputs[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f, -1e-40f, 88.5f, 89.0f, -87.4f, -103.9f, -104.1f, 1e30f, -1e30f, 4194305.0f, 1.0f, -1.0f};
  constexpr int kCount = std::size(inputs);
  for (const ActFn act : kAll) {
    Machine m;
    const AccessPattern x = Machine::row(DType::f32, 1, kCount), y = Machine::row(DType::f32, 1, kCount, 1024);
    m.fill(x, [&](int64_t, int64_t i) { return inputs[i]; });
    m.emit(Opcode::activation, Engine::scalar, y, {x}).act = act;
    ASSERT_TRUE(m.run());
    for (int i = 0; i < kCount; ++i) {
      const auto got = static_cast<float>(m.get(y, 0, i));
      double exact = reference(act, inputs[i]);
      if (act == ActFn::sign && std::isnan(inputs[i])) exact = 0;
      // inf * 0 and inf / inf in the definitions
      if (inputs[i] == -INFINITY && (act == ActFn::gelu || act == ActFn::gelu_tanh || act == ActFn::silu)) exact = NAN;
      if (inputs[i] == INFINITY && act == ActFn::gelu_tanh) exact = INFINITY;
      if (std::fabs(inputs[i]) == 1e30f && act == ActFn::gelu_tanh) exact = inputs[i] > 0 ? 1e30f : -0.0;
      if (underflows(act, inputs[i])) {
        EXPECT_NEAR(got, exact, 1e-36);
        continue;
      }
      EXPECT_LE(ulps(got, exact), 1.6) << isa::name_of(act) << "(" << inputs[i] << ") = " << got << ", not " << exact;
      if (got == 0 && exact == 0 && (act == ActFn::sin || act == ActFn::tanh || act == ActFn::erf || act == ActFn::expm1 || act == ActFn::log1p || act == ActFn::sqrt || act == ActFn::arctan)) {
        EXPECT_EQ(std::signbit(got), std::signbit(exact)) << isa::name_of(act);
      }
    }
  }
}

TEST(Activation, ScaleBiasAndRowResult) {
  for (const int n : {1, 7, 511, 512, 513, 3000}) {
    Machine m;
    const AccessPattern x = Machine::row(DType::bf16, 5, n), bias = Machine::row(DType::f32, 5, 1, 8192), y = Machine::row(DType::f32, 5, n, 16384), sum = Machine::row(DType::f32, 5, 1, 8256);
    m.fill_random(x);
    m.fill_random(bias);
    Instruction& i = m.emit(Opcode::activation, Engine::scalar, y, {x});
    i.act = ActFn::exp;
    i.s0 = Scalar::imm(0.25);
    i.s1 = Scalar::of(bias);
    i.dst1 = sum;
    i.op0 = AluOp::add;
    ASSERT_TRUE(m.run());
    for (int p = 0; p < 5; ++p) {
      double total = 0;
      for (int j = 0; j < n; ++j) {
        EXPECT_LE(ulps(static_cast<float>(m.get(y, p, j)), std::exp(m.get(x, p, j) * 0.25 + m.get(bias, p, 0))), 1);
        total += m.get(y, p, j);
      }
      EXPECT_NEAR(m.get(sum, p, 0) / total, 1, 2e-7);
    }
  }
}

}  // namespace
}  // namespace opentrn::exec
