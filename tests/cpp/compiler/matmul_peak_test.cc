// How close compiled matrix multiplications come to the tensor engine's peak in modelled time: from the first DMA
// trigger to the last semaphore on one core of trn2.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include <fmt/format.h>

#include "cost/timing.h"
#include "matmul_case.h"

namespace opentrn::compiler {
namespace {

double modelled_us(const MatmulCase& c) {
  const spec::Chip& chip = spec::chip("trn2");
  return static_cast<double>(cost::time_program(*program_of(c, chip), chip).total_ps) * 1e-6;
}

// The time of all tiles at one moving column per cycle: K and M are padded to 128, a moving tile has 64 columns at least.
double tiles_us(const MatmulCase& c) {
  const auto tiles = [](int64_t size) { return static_cast<double>((size + 127) / 128); };
  const int64_t columns = c.n / 512 * 512 + (c.n % 512 > 0 ? std::max<int64_t>(c.n % 512, 64) : 0);
  const double passes = c.dtype == DType::f32 ? 4 : 1;
  return tiles(c.m) * tiles(c.k) * static_cast<double>(columns) * passes / 2400 / c.lnc;
}

void expect_share(MatmulCase c, double share, std::vector<double>* shares = nullptr) {
  for (int layout = 0; layout < 4; ++layout) {
    c.lhs_transposed = layout & 1;
    c.rhs_transposed = layout & 2;
    const double bound = tiles_us(c), us = modelled_us(c);
    if (shares) shares->push_back(bound / us);
    EXPECT_GE(bound / us, share) << fmt::format("{} x {} x {} {} lhs {} rhs {}: {:.1f} us of {:.1f}", c.m, c.n, c.k,
                                                name_of(c.dtype), c.lhs_transposed ? "k,m" : "m,k",
                                                c.rhs_transposed ? "n,k" : "k,n", us, bound);
  }
}

MatmulCase shape(int64_t m, int64_t n, int64_t k, DType dtype = DType::bf16) {
  MatmulCase c;
  c.m = m;
  c.n = n;
  c.k = k;
  c.dtype = c.out = dtype;
  return c;
}

TEST(MatmulPeak, Cube4096) { expect_share(shape(4096, 4096, 4096), 0.95); }

TEST(MatmulPeak, Cubes) {
  for (int64_t size : {2048, 2560, 3072, 5120, 8192}) expect_share(shape(size, size, size), 0.90);
  expect_share(shape(4096, 12288, 5120), 0.90);
}

TEST(MatmulPeak, Cube1024) { expect_share(shape(1024, 1024, 1024), 0.70); }

TEST(MatmulPeak, Ragged) {
  expect_share(shape(2049, 2049, 2049), 0.90);
  expect_share(shape(3000, 2500, 4097), 0.90);
}

TEST(MatmulPeak, RandomShapes) {
  std::mt19937 random(20);
  const auto size = [&] { return static_cast<int64_t>(1536 + random() % 3072); };
  // Transposing rows of an odd number of 16-bit elements takes twice the transfers: those are the lowest shares.
  std::vector<double> shares;
  for (int i = 0; i < 20; ++i) {
    const int64_t m = size(), n = size(), k = size();
    expect_share(shape(m, n, k), 0.87, &shares);
  }
  std::sort(shares.begin(), shares.end());
  EXPECT_GE(shares[shares.size() / 2], 0.94);
}

TEST(MatmulPeak, OtherTypes) {
  expect_share(shape(4096, 4096, 4096, DType::f16), 0.95);
  expect_share(shape(2048, 2048, 2048, DType::f32), 0.90);
  expect_share(shape(4096, 4096, 4096, DType::f32), 0.95);
}

TEST(MatmulPeak, TwoCores) {
  MatmulCase c = shape(4096, 4096, 4096);
  c.lnc = 2;
  expect_share(c, 0.90);
}

}  // namespace
}  // namespace opentrn::compiler
