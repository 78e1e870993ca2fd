// Matrix multiplications are compiled, proved sound and executed, and compared with a loop in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include <fmt/format.h>

#include "exec/interpreter.h"
#include "isa/verify.h"
#include "matmul_case.h"
#include "run_plan.h"

namespace opentrn::compiler {
namespace {

double read(const std::byte* at, DType dtype) {
  if (dtype == DType::f32) {
    float f;
    std::memcpy(&f, at, 4);
    return f;
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  if (dtype == DType::bf16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float f;
    std::memcpy(&f, &wide, 4);
    return f;
  }
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(mantissa, -24)
                           : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                            : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// A value that every dtype here holds exactly.
void write(std::byte* at, DType dtype, int eighths) {
  const float f = static_cast<float>(eighths) / 8;
  if (dtype == DType::f32) {
    std::memcpy(at, &f, 4);
    return;
  }
  uint32_t wide;
  std::memcpy(&wide, &f, 4);
  uint16_t bits = static_cast<uint16_t>(wide >> 16);
  if (dtype == DType::f16) {
    bits = 0;
    if (f != 0) {
      int exponent;
      const float fraction = std::frexp(std::abs(f), &exponent);
      bits = static_cast<uint16_t>((f < 0 ? 0x8000 : 0) | (exponent + 14) << 10 |
                                   (static_cast<int>(fraction * 2048) & 1023));
    }
  }
  std::memcpy(at, &bits, 2);
}

std::vector<std::byte> random_matrix(const View& v, uint32_t seed) {
  std::vector<std::byte> data(static_cast<size_t>(extent(v)));
  std::mt19937 random(seed);
  for (size_t i = 0; i + static_cast<size_t>(size_of(v.dtype)) <= data.size(); i += static_cast<size_t>(size_of(v.dtype)))
    write(data.data() + i, v.dtype, static_cast<int>(random() % 33) - 16);
  return data;
}

void expect_product(const MatmulCase& c, const spec::Chip& chip) {
  const auto program = program_of(c, chip);
  for (const isa::Finding& finding : isa::check(*program, chip))
    FAIL() << "instruction " << finding.instruction << ": " << finding.message;
  const Matmul matmul = matmul_of(c);
  std::vector<std::byte> lhs = random_matrix(matmul.lhs, 1), rhs = random_matrix(matmul.rhs, 2);
  std::vector<std::byte> out(static_cast<size_t>(extent(matmul.out)), std::byte{0xff});  // NaN
  std::vector<std::byte*> buffers{lhs.data(), rhs.data(), out.data()};
  const PlanRun run = run_plan(program, chip, buffers);
  ASSERT_TRUE(run.ok) << run.fault.message;
  EXPECT_EQ(run.difference, "");
  EXPECT_EQ(run.literal, "");

  int64_t batches = 1;
  for (int64_t b : c.batch) batches *= b;
  const auto offset = [&](const View& v, int64_t batch, int64_t row, int64_t column) {
    int64_t o = v.offset;
    for (size_t d = c.batch.size(); d-- > 0; batch /= c.batch[d]) o += batch % c.batch[d] * v.strides[d];
    return (o + row * v.strides[c.batch.size()] + column * v.strides[c.batch.size() + 1]) * size_of(v.dtype);
  };
  const double rounding = c.out == DType::f32 ? 1e-6 : c.out == DType::bf16 ? 1.0 / 256 : 1.0 / 2048;
  std::vector<double> a(static_cast<size_t>(c.m * c.k)), row(static_cast<size_t>(c.n));
  std::vector<double> x(static_cast<size_t>(c.k * c.n));
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t m = 0; m < c.m; ++m)
      for (int64_t k = 0; k < c.k; ++k)
        a[static_cast<size_t>(m * c.k + k)] = read(lhs.data() + offset(matmul.lhs, b, m, k), c.dtype);
    for (int64_t k = 0; k < c.k; ++k)
      for (int64_t n = 0; n < c.n; ++n)
        x[static_cast<size_t>(k * c.n + n)] = read(rhs.data() + offset(matmul.rhs, b, k, n), c.dtype);
    for (int64_t m = 0; m < c.m; ++m) {
      std::fill(row.begin(), row.end(), 0.0);
      for (int64_t k = 0; k < c.k; ++k)
        for (int64_t n = 0; n < c.n; ++n)
          row[static_cast<size_t>(n)] += a[static_cast<size_t>(m * c.k + k)] * x[static_cast<size_t>(k * c.n + n)];
      for (int64_t n = 0; n < c.n; ++n) {
        const double sum = row[static_cast<size_t>(n)], got = read(out.data() + offset(matmul.out, b, m, n), c.out);
        ASSERT_LE(std::abs(got - sum), rounding * std::abs(sum) + 1e-5)
            << fmt::format("[{}, {}, {}]: {} instead of {}", b, m, n, got, sum);
      }
    }
  }
}

const spec::Chip& trn2() { return spec::chip("trn2"); }

// A chip whose SBUF is so small that small matrices need several panels, or stream.
spec::Chip with_sbuf(int64_t bytes) {
  spec::Chip chip = trn2();
  chip.sbuf_bytes_per_partition = bytes;
  return chip;
}

MatmulCase shape(int64_t m, int64_t n, int64_t k) {
  MatmulCase c;
  c.m = m;
  c.n = n;
  c.k = k;
  return c;
}

TEST(Matmul, EveryLayout) {
  for (int layout = 0; layout < 8; ++layout) {
    MatmulCase c = shape(200, 150, 300);
    c.lhs_transposed = layout & 1;
    c.rhs_transposed = layout & 2;
    c.out_transposed = layout & 4;
    SCOPED_TRACE(fmt::format("layout {}", layout));
    expect_product(c, trn2());
  }
}

TEST(Matmul, EveryType) {
  for (DType dtype : {DType::bf16, DType::f16, DType::f32})
    for (DType out : {DType::bf16, DType::f16, DType::f32})
      for (int layout = 0; layout < 4; ++layout) {
        MatmulCase c = shape(40, 70, 270);
        c.dtype = dtype;
        c.out = out;
        c.lhs_transposed = layout & 1;
        c.rhs_transposed = layout & 2;
        SCOPED_TRACE(fmt::format("{} -> {}, layout {}", name_of(dtype), name_of(out), layout));
        expect_product(c, trn2());
      }
}

TEST(Matmul, MixedTypesMultiplyInF32) {
  const MatmulCase c = shape(20, 30, 140);
  for (bool transposed : {false, true}) {
    Matmul matmul = matmul_of(c);
    matmul.lhs = matrix_view(0, DType::f32, c, c.m, c.k, transposed, false);
    isa::Program program;
    program.chip = "trn2";
    for (const View* v : {&matmul.lhs, &matmul.rhs}) program.buffers.push_back({isa::Buffer::Kind::input, "", extent(*v)});
    program.buffers.push_back({isa::Buffer::Kind::output, "", extent(matmul.out)});
    KernelBuilder builder(program, 0, trn2());
    emit_matmul(builder, matmul, 1);
    builder.finish();
    isa::verify(program, trn2());
    for (const isa::Instruction& i : program.cores[0].code)
      if (i.opcode == isa::Opcode::nc_matmul) {
        EXPECT_EQ(i.src[1].dtype, DType::f32);
      }
  }
}

TEST(Matmul, SmallestShapes) {
  for (int64_t m : {1, 129})
    for (int64_t n : {1, 3, 300})
      for (int64_t k : {1, 127, 257})
        for (int layout = 0; layout < 4; ++layout) {
          MatmulCase c = shape(m, n, k);
          c.lhs_transposed = layout & 1;
          c.rhs_transposed = layout & 2;
          SCOPED_TRACE(fmt::format("{} x {} x {}, layout {}", m, n, k, layout));
          expect_product(c, trn2());
        }
}

TEST(Matmul, RaggedTiles) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{1025, 130, 129}, {130, 1100, 257}, {129, 1537, 130}}) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", m, n, k));
    expect_product(shape(m, n, k), trn2());
  }
}

TEST(Matmul, PanelsAndStreams) {
  for (int64_t sbuf : {24576, 65536})
    for (int layout = 0; layout < 4; ++layout) {
      const spec::Chip chip = with_sbuf(sbuf);
      MatmulCase c = shape(400, 300, 641);
      c.lhs_transposed = layout & 1;
      c.rhs_transposed = layout & 2;
      SCOPED_TRACE(fmt::format("{} bytes, layout {}", sbuf, layout));
      expect_product(c, chip);
    }
}

TEST(Matmul, Batches) {
  for (int layout = 0; layout < 4; ++layout)
    for (bool inside : {false, true}) {
      MatmulCase c = shape(65, 130, 64);
      c.batch = {2, 3};
      c.batch_inside = inside;
      c.lhs_transposed = layout & 1;
      c.rhs_transposed = layout & 2;
      SCOPED_TRACE(fmt::format("layout {}, batch inside {}", layout, inside));
      expect_product(c, trn2());
    }
}

TEST(Matmul, BatchOfVectors) {
  MatmulCase c = shape(1, 200, 64);
  c.batch = {6};
  expect_product(c, trn2());
  c.rhs_transposed = true;
  expect_product(c, trn2());
}

TEST(Matmul, SharedOperands) {
  MatmulCase c = shape(30, 50, 70);
  c.batch = {4};
  c.rhs_shared = true;
  expect_product(c, trn2());
  c.rhs_shared = false;
  c.lhs_shared = true;
  expect_product(c, trn2());
  c.rhs_shared = true;
  expect_product(c, trn2());
}

TEST(Matmul, RowsWithGapsAndSteps) {
  for (int layout = 0; layout < 4; ++layout) {
    MatmulCase c = shape(60, 70, 260);
    c.lhs_transposed = layout & 1;
    c.rhs_transposed = layout & 2;
    c.gap = 5;
    expect_product(c, trn2());
    c.step = 2;
    expect_product(c, trn2());
  }
}

TEST(Matmul, TwoCoresShareTheWork) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{300, 200, 130}, {1, 700, 130}, {700, 1, 130}, {1, 1, 5}}) {
    MatmulCase c = shape(m, n, k);
    c.lnc = 2;
    SCOPED_TRACE(fmt::format("{} x {} x {}", m, n, k));
    expect_product(c, trn2());
  }
  MatmulCase c = shape(30, 40, 50);
  c.batch = {5};
  c.lnc = 2;
  expect_product(c, trn2());
}

TEST(Matmul, OtherChips) {
  for (const char* name : {"trn1", "trn3"}) expect_product(shape(300, 600, 300), spec::chip(name));
}

// Blocks of n that overlap, a last group of one tile, a wide last panel, streaming: proved, not executed.
TEST(Matmul, LargeProgramsAreSound) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{3102, 1903, 1177}, {2350, 1641, 2641}, {2049, 2049, 2049}, {100, 20000, 500}})
    for (int layout = 0; layout < 4; ++layout) {
      MatmulCase c = shape(m, n, k);
      c.lhs_transposed = layout & 1;
      c.rhs_transposed = layout & 2;
      for (const isa::Finding& finding : isa::check(*program_of(c, trn2()), trn2()))
        ADD_FAILURE() << fmt::format("{} x {} x {}, layout {}, instruction {}: {}", m, n, k, layout, finding.instruction,
                                     finding.message);
    }
}

TEST(Matmul, ProgramSizeDoesNotGrowWithTheProblem) {
  MatmulCase small = shape(4096, 4096, 4096), large = shape(16384, 16384, 16384);
  EXPECT_LE(program_of(small, trn2())->cores[0].code.size(), 150u);
  EXPECT_LE(program_of(large, trn2())->cores[0].code.size(), 150u);
  MatmulCase batch = shape(128, 128, 64), batches = batch;
  batch.batch = {4};
  batches.batch = {4096};
  EXPECT_EQ(program_of(batch, trn2())->cores[0].code.size(), program_of(batches, trn2())->cores[0].code.size());
}

}  // namespace
}  // namespace opentrn::compiler
