// The host plan on small programs: it must agree with the interpreter, and do what it is for exactly where that is sound.
#include "exec/plan.h"

#include <atomic>
#include <barrier>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "plan_case.h"

namespace opentrn::exec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Pools x, y, z, w: four slots of 64 f32; acc: PSUM.
std::string core(const std::string& code, int number = 0) {
  return fmt::format("core {} {{\n", number) +
         "pool x sbuf offset=0 bytes=256 depth=4\npool y sbuf offset=1024 bytes=256 depth=4\n"
         "pool z sbuf offset=2048 bytes=256 depth=4\npool w sbuf offset=3072 bytes=256 depth=4\n"
         "pool acc psum offset=0 bytes=2048 depth=2\n" + code + "}\n";
}
// a and b: inputs of 256 rows of 64 f32, out: an output of that size.
const std::string kBuffers = "buffer a input bytes=65536\nbuffer b input bytes=65536\nbuffer out output bytes=65536\n";
// The same, and the output is a.
const std::string kInPlace = "buffer a input bytes=65536\nbuffer b input bytes=65536\nbuffer out output bytes=65536 alias=a\n";
const std::string kLoadA = "sync.q0 dma_copy f32 x[t0] [0:128] [1,64] <- f32 a+i0*32768 [0:128 step 64] [1,64]\n";
const std::string kLoadB = "sync.q0 dma_copy f32 y[t1] [0:128] [1,64] <- f32 b+i0*32768 [0:128 step 64] [1,64]\n";
const std::string kAdd = "vector tensor_tensor.add f32 z[t2] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64], f32 y[t1] [0:128] [1,64]\n";
const std::string kStore = "sync.q0 dma_copy f32 out+i0*32768 [0:128 step 64] [1,64] <- f32 z[t2] [0:128] [1,64]\n";
const std::string kRotate = "rotate t0 = x\nrotate t1 = y\nrotate t2 = z\n";

std::string loop(int count, const std::string& body, int reg = 0) { return fmt::format("loop i{} < {} {{\n", reg, count) + body + "}\n"; }

// ---- forwarding

TEST(Plan, AdditionReadsAndWritesHbmItself) {
  const Planned p = check_plan(kBuffers + core(loop(2, kRotate + kLoadA + kLoadB + kAdd + kStore)));
  EXPECT_EQ(p.text, R"(stage 0, core 0, 0 bytes of tiles: i0 < 2 shared out
  tensor_tensor.add f32 out+i0*32768 [0:128 step 64] [1,64] <- f32 a+i0*32768 [0:128 step 64] [1,64], f32 b+i0*32768 [0:128 step 64] [1,64]
)");
  EXPECT_THAT(p.run.groups, ElementsAre(2));
}

TEST(Plan, InPlaceAdditionReadsAndWritesHbmItself) {
  const Planned p = check_plan(kInPlace + core(loop(2, kRotate + kLoadA + kLoadB + kAdd + kStore)));
  EXPECT_EQ(p.count("dma_copy"), 0) << p.text;
  EXPECT_THAT(p.run.groups, ElementsAre(2));
}

// The result lies `shift` bytes further than the first operand, in the same buffer.
Planned shifted(const std::string& place) {
  return check_plan("buffer a input bytes=131072\nbuffer b input bytes=65536\nbuffer out output bytes=131072 alias=a\n" +
                    core(loop(2, kRotate + kLoadA + kLoadB + kAdd +
                                     "sync.q0 dma_copy f32 out" + place + " [1,64] <- f32 z[t2] [0:128] [1,64]\n")));
}
TEST(Plan, ShiftedInPlaceResultsKeepACopy) {
  for (const char* place : {"+4+i0*32768 [0:128 step 64]", "+256+i0*32768 [0:128 step 64]", "+16384+i0*32768 [0:128 step 64]",
                            "+32768-i0*32768 [0:128 step 64]"}) {
    const Planned p = shifted(place[1] == '3' ? "+32768+i0*-32768 [0:128 step 64]" : place);
    EXPECT_THAT(p.run.groups, ElementsAre(1)) << place << p.text;
    EXPECT_GT(p.count("dma_copy"), 0) << place << p.text;
  }
  // Elsewhere in the same buffer.
  const Planned apart = shifted("+65536+i0*32768 [0:128 step 64]");
  EXPECT_THAT(apart.run.groups, ElementsAre(2)) << apart.text;
}

TEST(Plan, AWriteBetweenLoadAndUseKeepsTheLoad) {
  const std::string use = "vector tensor_tensor.add f32 z[t2] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64], f32 x[t0] [0:128] [1,64]\n";
  // Another tile is stored over what was loaded, wholly, partly, and not at all.
  const auto with = [&](const std::string& to) {
    return check_plan(kInPlace + core(loop(2, kRotate + kLoadA + kLoadB + "sync.q0 dma_copy f32 " + to +
                                                  " <- f32 y[t1] [0:128] [1,64]\n" + use +
                                                  "sync.q0 dma_copy f32 out+i0*32768 [0:128 step 64] [1,64] <- f32 z[t2] [0:128] [1,64]\n")));
  };
  for (const char* to : {"out+i0*32768 [0:128 step 64] [1,64]", "out+4 [0:128 step 64] [1,64]", "out+32764 [0:128 step 64] [1,64]"}) {
    const Planned p = with(to);
    EXPECT_EQ(p.count("dma_copy f32 tiles"), 1) << p.text;
  }
}

TEST(Plan, AWriteThatOnlySeemsToBeInBetweenDoesNot) {
  // Every second element of each row is loaded, the others are written.
  const Planned p = check_plan(kInPlace + core(loop(2, kRotate +
      "sync.q0 dma_copy f32 x[t0] [0:128] [1,32] <- f32 a+i0*32768 [0:128 step 64] [2,32]\n"
      "sync.q0 dma_copy f32 y[t1] [0:128] [1,32] <- f32 b+i0*32768 [0:128 step 64] [1,32]\n"
      "sync.q0 dma_copy f32 out+4+i0*32768 [0:128 step 64] [2,32] <- f32 y[t1] [0:128] [1,32]\n"
      "sync.q0 dma_copy f32 z[t2] [0:128] [1,32] <- f32 x[t0] [0:128] [1,32]\n"
      "sync.q0 dma_copy f32 out+i0*32768 [0:128 step 64] [2,32] <- f32 z[t2] [0:128] [1,32]\n")));
  EXPECT_THAT(p.run.groups, ElementsAre(2)) << p.text;
}

TEST(Plan, APrologueLoadIsKeptWhereTheLoopOverwritesItsSource) {
  const std::string load = "rotate t0 = x\nsync.q0 dma_copy f32 x[t0] [0:128] [1,64] <- f32 a [0:128 step 64] [1,64]\n";
  const std::string body = "rotate t1 = y\nrotate t2 = z\n" + kLoadB + kAdd;
  const Planned kept = check_plan(kInPlace + core(load + loop(2, body + kStore)));
  EXPECT_EQ(kept.count("dma_copy f32 tiles"), 1) << kept.text;
  EXPECT_THAT(kept.run.groups, ElementsAre(1)) << kept.text;
  const Planned forwarded = check_plan(kBuffers + core(load + loop(2, body + kStore)));
  EXPECT_EQ(forwarded.count("dma_copy"), 0) << forwarded.text;
  EXPECT_THAT(forwarded.run.groups, ElementsAre(2)) << forwarded.text;
}

TEST(Plan, WhatALoopLoadedLastIsReadBehindIt) {
  const std::string use = "sync.q0 dma_copy f32 out [0:128 step 64] [1,64] <- f32 x[t0] [0:128] [1,64]\n"
                          "sync.q0 dma_copy f32 out+32768 [0:128 step 64] [1,64] <- f32 x[t0] [0:128] [1,64]\n";
  check_plan(kBuffers + core("rotate t0 = x\n" + loop(2, kLoadA) + use));
  check_plan(kBuffers + core("rotate t0 = x\n" + loop(2, kLoadA) + loop(2, "sync.q0 dma_copy f32 out+i0*32768 [0:128 step 64] [1,64] <- f32 x[t0] [0:128] [1,64]\n")));
  check_plan(kBuffers + core(loop(2, "rotate t0 = x\n" + loop(2, "sync.q0 dma_copy f32 x[t0] [0:128] [1,64] <- f32 a+i1*16384+i0*4096 [0:128 step 64] [1,64]\n", 1) +
      "sync.q0 dma_copy f32 out+i0*32768 [0:128 step 64] [1,64] <- f32 x[t0] [0:128] [1,64]\n")));
}

TEST(Plan, LoadsOfATileArePutTogether) {
  // Two halves of each row, interleaved or side by side, and one load read by two instructions.
  for (const char* second : {"x[t0]+128 [0:128] [1,32]", "x[t0]+4 [0:128] [2,32]"}) {
    const bool interleaved = second[6] == '4';
    const std::string first = interleaved ? "x[t0] [0:128] [2,32]" : "x[t0] [0:128] [1,32]";
    const Planned p = check_plan(kBuffers + core(loop(2, "rotate t0 = x\nrotate t2 = z\n"
        "sync.q0 dma_copy f32 " + first + " <- f32 a+i0*32768 [0:128 step 64] [1,32]\n"
        "sync.q0 dma_copy f32 " + std::string(second) + " <- f32 a+128+i0*32768 [0:128 step 64] [1,32]\n"
        "scalar activation.copy f32 z[t2] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64]\n" + kStore)));
    EXPECT_EQ(p.count("dma_copy"), interleaved ? 2 : 0) << p.text;
  }
  const Planned twice = check_plan(kBuffers + core(loop(2, kRotate + kLoadA +
      "vector tensor_scalar.add f32 y[t1] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64] s0=1\n" + kAdd + kStore)));
  EXPECT_EQ(twice.count("dma_copy"), 0) << twice.text;
}

TEST(Plan, LoadsThatOverlapInTheTileAreKept) {
  // The last one of each byte counts.
  const Planned p = check_plan(kBuffers + core(loop(2, "rotate t0 = x\n"
      "sync.q0 dma_copy f32 x[t0] [0:128] [1,48] <- f32 a+i0*32768 [0:128 step 64] [1,48]\n"
      "sync.q0 dma_copy f32 x[t0]+64 [0:128] [1,48] <- f32 b+i0*32768 [0:128 step 64] [1,48]\n"
      "sync.q0 dma_copy f32 out+i0*32768 [0:128 step 64] [1,64] <- f32 x[t0] [0:128] [1,64]\n")));
  EXPECT_EQ(p.count("dma_copy"), 3) << p.text;
}

TEST(Plan, ReadersSeePartsOfALoad) {
  const auto with = [](const std::string& operand, int columns) {
    return check_plan(kBuffers + core(loop(2, "rotate t0 = x\nrotate t2 = z\n" + kLoadA +
        "scalar activation.relu f32 z[t2] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64]\n"
        "scalar activation.copy f32 z[t2] [0:128] [1," + std::to_string(columns) + "] <- f32 x[t0]" + operand + "\n" + kStore)));
  };
  EXPECT_EQ(with("+32 [0:128] [1,16]", 16).count("<- f32 a+i0"), 1);
  EXPECT_TRUE(with("+32 [0:128] [1,16]", 16).has("<- f32 a+32+i0*32768+i1*16384 [0:64 step 64] [1,16]"));
  EXPECT_TRUE(with(" [0:128] [0,2][1,32]", 64).has("<- f32 a+i0*32768 [0:128 step 64] [0,2][1,32]"));
  EXPECT_TRUE(with("+4 [0:128] [0,64]", 64).has("<- f32 a+4+i0*32768+i1*16384 [0:64 step 64] [0,64]"));
  // A strided reader keeps the load: it would leave the fast path of its instruction.
  EXPECT_TRUE(with("+8 [0:128] [3,16]", 16).has("dma_copy f32 tiles"));
  with("+252 [0:128] [-1,64]", 64);
  const Planned inner = check_plan(kBuffers + core(loop(2, "rotate t0 = x\nrotate t2 = z\n" + kLoadA +
      loop(4, "scalar activation.copy f32 z[t2]+i1*64 [0:128] [1,16] <- f32 x[t0]+i1*64 [0:128] [1,16]\n", 1) + kStore)));
  EXPECT_TRUE(inner.has("<- f32 a+i0*32768+i1*64+i2*16384 [0:64 step 64] [1,16]")) << inner.text;
}

// ---- shapes that instructions look at

TEST(Plan, ReductionsKeepTheirDimensions) {
  const std::string store = "sync.q0 dma_copy f32 out+i0*8192 [0:128 step 16] [1,16] <- f32 z[t2] [0:128] [1,16]\n";
  const auto with = [&](const std::string& load, const std::string& reduce) {
    return check_plan("buffer a input bytes=65536\nbuffer b input bytes=65536\nbuffer out output bytes=16384\n" +
                      core(loop(2, "rotate t0 = x\nrotate t2 = z\n" + load + reduce + store)));
  };
  const std::string plain = kLoadA;
  // One element in the last dimension: nothing is reduced.
  EXPECT_TRUE(with(plain, "vector tensor_reduce.add f32 z[t2] [0:128] [1,16] <- f32 x[t0] [0:128] [1,16][1,1]\n").has("[1,16][1,1]"));
  EXPECT_TRUE(with(plain, "vector tensor_reduce.add f32 z[t2] [0:128] [1,16] <- f32 x[t0] [0:128] [1,1][4,16][1,4]\n").has("<- f32 a"));
  with(plain, "vector tensor_reduce.add f32 z[t2] [0:128] [1,16] <- f32 x[t0] [0:128] [4,16][1,1][1,4] axes=2\n");
  with(plain, "vector tensor_reduce.max f32 z[t2] [0:128] [1,16] <- f32 x[t0] [0:128] [1,16][16,4]\n");
  // Rows of the tile that lie in pieces in HBM.
  const std::string pieces = "sync.q0 dma_copy f32 x[t0] [0:128] [32,2][1,32] <- f32 a+i0*16384 [0:128 step 32] [4096,2][1,32]\n";
  with(pieces, "vector tensor_reduce.add f32 z[t2] [0:128] [1,16] <- f32 x[t0] [0:128] [4,16][1,4]\n");
  with(pieces, "vector tensor_reduce.max f32 z[t2] [0:128] [1,1] <- f32 x[t0] [0:128] [1,64]\n"
               "vector tensor_copy f32 z[t2]+4 [0:128] [1,15] <- f32 x[t0] [0:128] [1,15]\n");
}

const std::string kKernels = R"(kernel flat {
  body {
    r0 = load.f32 0
    r1 = index.i32
    r2 = convert.f32 r1.i32
    r3 = add.f32 r0, r2
    store.f32 1, r3
  }
}
kernel rows {
  prologue {
    r0 = constant.f32 0
  }
  body {
    r2 = load.f32 0
    r0 = add.f32 r0, r2
  }
  epilogue {
    r1 = index.i32
    r3 = convert.f32 r1.i32
    r0 = add.f32 r0, r3
    store.f32 1, r0
  }
}
kernel scaled {
  prologue {
    r0 = load.f32 1
  }
  body {
    r1 = load.f32 0
    r2 = mul.f32 r0, r1
    store.f32 2, r2
  }
}
)";

TEST(Plan, RowProgramsKeepTheirDimensions) {
  const auto with = [&](const std::string& kernel, const std::string& pools = "") {
    return check_plan(kBuffers + kKernels + core(pools + loop(2, kRotate + kLoadA + kLoadB + "gpsimd gpsimd_kernel f32 z[t2] " + kernel + kStore)));
  };
  with("[0:128] [1,64] <- f32 x[t0] [0:128] [1,64] kernel=flat\n");
  with("[0:128] [16,4][1,16] <- f32 x[t0] [0:128] [16,4][1,16] kernel=flat\n");
  with("[0:128] [1,64][1,1] <- f32 x[t0] [0:128] [1,64][1,1] kernel=flat\n");
  with("[0:128] [16,4][1,16] <- f32 x[t0] [0:128] [16,4][1,16], f32 y[t1] [0:128] [1,4][1,1] kernel=scaled\n");
  with("[0:128] [1,1][1,64] <- f32 x[t0] [0:128] [1,1][1,64], f32 y[t1] [0:128] [1,1] kernel=scaled\n");
  check_plan("buffer a input bytes=65536\nbuffer out output bytes=4096\n" + kKernels +
             core(loop(2, "rotate t0 = x\nrotate t2 = z\n" + kLoadA +
                  "gpsimd gpsimd_kernel f32 z[t2] [0:128] [1,4][1,1] <- f32 x[t0] [0:128] [16,4][1,16] kernel=rows base=3\n"
                  "sync.q0 dma_copy f32 out+i0*2048 [0:128 step 4] [1,4] <- f32 z[t2] [0:128] [1,4]\n")));
}

TEST(Plan, TransposingLoads) {
  // a as 64 x 128 per iteration, read transposed by element-wise instructions, reductions and multiplications.
  const std::string load = "sync.q0 dma_transpose f32 x[t0] [0:128] [1,64] <- f32 a+i0*32768 [0:64 step 128] [1,128]\n";
  check_plan(kBuffers + core(loop(2, kRotate + load + kLoadB + kAdd + kStore)));
  check_plan(kBuffers + core(loop(2, kRotate + load + "sync.q0 dma_copy f32 out+i0*32768 [0:128 step 64] [1,64] <- f32 x[t0] [0:128] [1,64]\n")));
  const Planned reduced = check_plan("buffer a input bytes=65536\nbuffer out output bytes=1024\n" +
      core(loop(2, "rotate t0 = x\nrotate t2 = z\n" + load +
           "vector tensor_reduce.add f32 z[t2] [0:128] [1,1] <- f32 x[t0] [0:128] [1,64]\n"
           "sync.q0 dma_copy f32 out+i0*512 [0:128 step 1] [1,1] <- f32 z[t2] [0:128] [1,1]\n")));
  EXPECT_TRUE(reduced.has("tensor_reduce.add f32 out+i0*512 [0:128 step 1] [1,1] <- f32 a+i0*32768 [0:128 step 1] [128,64]")) << reduced.text;
  const Planned product = check_plan("buffer a input bytes=65536\nbuffer b input bytes=65536\nbuffer out output bytes=32768\n" +
      core(loop(2, "rotate t0 = x\nrotate t1 = y\nrotate t2 = z\nrotate t3 = acc\n" + load + kLoadB +
           "tensor nc_matmul f32 acc[t3] [0:64] [1,64] <- f32 x[t0] [0:128] [1,64], f32 y[t1] [0:128] [1,64]\n"
           "scalar tensor_copy f32 z[t2] [0:64] [1,64] <- f32 acc[t3] [0:64] [1,64]\n"
           "sync.q0 dma_copy f32 out+i0*16384 [0:64 step 64] [1,64] <- f32 z[t2] [0:64] [1,64]\n")));
  EXPECT_EQ(product.count("dma_"), 0) << product.text;
  EXPECT_EQ(product.count("tensor_copy"), 0) << product.text;
}

// ---- stores

TEST(Plan, ATileMayBeStoredTwice) {
  check_plan("buffer a input bytes=65536\nbuffer b input bytes=65536\nbuffer out output bytes=65536\nbuffer two output bytes=65536\n" +
             core(loop(2, kRotate + kLoadA + kLoadB + kAdd + kStore +
                  "sync.q0 dma_copy f32 two+i0*32768 [0:128 step 64] [1,64] <- f32 z[t2] [0:128] [1,64]\n")));
}

TEST(Plan, StoredBytesThatAreReadAgainInTheIteration) {
  const std::string again = "rotate t3 = w\nsync.q0 dma_copy f32 w[t3] [0:128] [1,64] <- f32 s+i0*32768 [0:128 step 64] [1,64]\n"
                            "vector tensor_tensor.max f32 z[t2] [0:128] [1,64] <- f32 w[t3] [0:128] [1,64], f32 x[t0] [0:128] [1,64]\n";
  const std::string to_scratch = "sync.q0 dma_copy f32 s+i0*32768 [0:128 step 64] [1,64] <- f32 y[t1] [0:128] [1,64]\n";
  const Planned p = check_plan(kBuffers + "buffer s scratch bytes=65536\n" +
      core(loop(2, kRotate + kLoadA + "vector tensor_scalar.add f32 y[t1] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64] s0=2\n" + to_scratch + again + kStore)));
  EXPECT_THAT(p.run.groups, ElementsAre(2));
  EXPECT_EQ(p.count("dma_copy"), 0) << p.text;
}

// ---- loops: what is shared out

TEST(Plan, ValuesCarriedInATileKeepTheLoopTogether) {
  const Planned p = check_plan(kBuffers + core("rotate t2 = z\nvector memset f32 z[t2] [0:128] [1,64] value=0\n" +
      loop(2, "rotate t0 = x\n" + kLoadA +
              "vector tensor_tensor.add f32 z[t2] [0:128] [1,64] <- f32 z[t2] [0:128] [1,64], f32 x[t0] [0:128] [1,64]\n" + kStore)));
  EXPECT_THAT(p.run.groups, ElementsAre(1));
}

TEST(Plan, ValuesCarriedThroughHbm) {
  // Row block i of out is made from row block i - distance (RAW), i + distance (WAR), and all iterations write some of the same rows (WAW).
  const auto chain = [](const std::string& from, const std::string& to, int rows) {
    return check_plan("buffer a input bytes=131072\nbuffer out output bytes=131072 alias=a\n" +
        core(loop(5, fmt::format("rotate t0 = x\nrotate t2 = z\n"
             "sync.q0 dma_copy f32 x[t0] [0:{0}] [1,64] <- f32 {1} [0:{0} step 64] [1,64]\n"
             "vector tensor_scalar.add f32 z[t2] [0:{0}] [1,64] <- f32 x[t0] [0:{0}] [1,64] s0=1\n"
             "sync.q0 dma_copy f32 {2} [0:{0} step 64] [1,64] <- f32 z[t2] [0:{0}] [1,64]\n", rows, from, to))));
  };
  EXPECT_THAT(chain("a+i0*8192", "out+8192+i0*8192", 32).run.groups, ElementsAre(1));
  EXPECT_THAT(chain("a+i0*8192", "out+24576+i0*8192", 32).run.groups, ElementsAre(1));
  EXPECT_THAT(chain("a+8192+i0*8192", "out+i0*8192", 32).run.groups, ElementsAre(1));
  EXPECT_THAT(chain("a+24576+i0*8192", "out+i0*8192", 32).run.groups, ElementsAre(1));
  EXPECT_THAT(chain("a+65536+i0*4096", "out+i0*4096", 32).run.groups, ElementsAre(1));
  EXPECT_THAT(chain("a+65536+i0*8192", "out+i0*8192", 32).run.groups, ElementsAre(testing::Gt(1)));
  EXPECT_THAT(chain("a+i0*8192", "out+49152+i0*8192", 32).run.groups, ElementsAre(testing::Gt(1)));
}

TEST(Plan, StraightCodeAroundLoops) {
  const std::string straight = "rotate t3 = w\nsync.q0 dma_copy f32 w[t3] [0:64] [1,64] <- f32 {0} [0:64 step 64] [1,64]\n"
                               "vector tensor_scalar.mult f32 w[t3] [0:64] [1,64] <- f32 w[t3] [0:64] [1,64] s0=2\n"
                               "sync.q0 dma_copy f32 {1} [0:64 step 64] [1,64] <- f32 w[t3] [0:64] [1,64]\n";
  std::string code;
  int reg = 0;
  for (const char* at : {"a", "a+32768", "a+16384"}) {
    const std::string from = at, to = "out" + from.substr(1);
    std::string part = fmt::format(fmt::runtime(straight), from, to) + loop(2, kRotate + kLoadA + kLoadB + kAdd + kStore);
    for (const char* name : {"t0", "t1", "t2", "t3"}) {  // a register is written once
      const std::string other = fmt::format("t{}", 10 + reg++);
      for (size_t found; (found = part.find(name + std::string(" "))) != std::string::npos;) part.replace(found, 2, other);
      for (size_t found; (found = part.find(name + std::string("]"))) != std::string::npos;) part.replace(found, 2, other);
    }
    code += part;
  }
  const Planned p = check_plan(kInPlace + core(code));
  EXPECT_GT(p.run.groups.size(), 5u) << p.text;
}

TEST(Plan, ASharedPrologueTileIsLoadedByEachUnit) {
  const std::string load = "rotate t0 = x\nsync.q0 dma_copy f32 x[t0] [0:128] [1,64] <- f32 a [0:128 step 64] [1,64]\n"
                           "vector tensor_scalar.mult f32 x[t0] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64] s0=2\n";
  const std::string two = "buffer a input bytes=65536\nbuffer b input bytes=65536\nbuffer out output bytes=65536\nbuffer two output bytes=65536\n";
  const std::string change = "vector tensor_scalar.add f32 x[t0] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64] s0=1\n";
  const std::string one = "rotate t1 = y\nrotate t2 = z\n" + kLoadB + kAdd;
  const std::string store_two = "sync.q0 dma_copy f32 two+i0*32768 [0:128 step 64] [1,64] <- f32 z[t4] [0:128] [1,64]\n";
  const std::string second = "rotate t3 = y\nrotate t4 = z\nsync.q0 dma_copy f32 y[t3] [0:128] [1,64] <- f32 b+i0*32768 [0:128 step 64] [1,64]\n"
                             "vector tensor_tensor.add f32 z[t4] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64], f32 y[t3] [0:128] [1,64]\n" + store_two;
  const Planned shared = check_plan(two + core(load + loop(2, one + kStore) + loop(2, second)));
  EXPECT_THAT(shared.run.groups, ElementsAre(4)) << shared.text;
  EXPECT_EQ(shared.count("before each group"), 2) << shared.text;
  const Planned changed = check_plan(two + core(load + loop(2, one + kStore) + change + loop(2, second)));
  EXPECT_THAT(changed.run.groups, ElementsAre(4)) << changed.text;
  EXPECT_EQ(changed.count("tensor_scalar.add"), 1) << changed.text;
}

TEST(Plan, APrologueTileBetweenStoresIsThereForTheLoop) {
  const std::string two = "buffer a input bytes=65536\nbuffer b input bytes=65536\nbuffer out output bytes=65536\nbuffer two output bytes=65536\n";
  const std::string fill = "rotate t{0} = w\nvector memset f32 w[t{0}] [0:128] [1,64] value={1}\n"
                           "sync.q0 dma_copy f32 two+{2} [0:128 step 64] [1,64] <- f32 w[t{0}] [0:128] [1,64]\n";
  const Planned p = check_plan(two + core(fmt::format(fmt::runtime(fill), 5, 1, 0) +
      "rotate t0 = x\nvector memset f32 x[t0] [0:128] [1,64] value=3\n" + fmt::format(fmt::runtime(fill), 6, 2, 32768) +
      loop(2, "rotate t1 = y\nrotate t2 = z\n" + kLoadB + kAdd + kStore)));
  EXPECT_THAT(p.run.groups, ElementsAre(testing::Ge(3))) << p.text;
}

TEST(Plan, APrologueLoadOfWhatTheFirstLoopWritesStaysInFrontOfIt) {
  const std::string second = "rotate t3 = y\nrotate t4 = z\nsync.q0 dma_copy f32 y[t3] [0:128] [1,64] <- f32 b+i0*32768 [0:128 step 64] [1,64]\n"
                             "vector tensor_tensor.add f32 z[t4] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64], f32 y[t3] [0:128] [1,64]\n"
                             "sync.q0 dma_copy f32 two+i0*32768 [0:128 step 64] [1,64] <- f32 z[t4] [0:128] [1,64]\n";
  const Planned p = check_plan(kInPlace + "buffer two output bytes=65536\n" +
      core("rotate t0 = x\nsync.q0 dma_copy f32 x[t0] [0:128] [1,64] <- f32 a [0:128 step 64] [1,64]\n" +
           loop(2, "rotate t2 = z\nvector memset f32 z[t2] [0:128] [1,64] value=3\n" + kStore) + loop(2, second)));
  EXPECT_THAT(p.run.groups, ElementsAre(1)) << p.text;
}

TEST(Plan, LoopsThatReadWhatOthersWroteComeLater) {
  const std::string first = "rotate t2 = z\nrotate t0 = x\n" + kLoadA +
                            "vector tensor_scalar.add f32 z[t2] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64] s0=1\n";
  const std::string to_scratch = "sync.q0 dma_copy f32 s+i0*32768 [0:128 step 64] [1,64] <- f32 z[t2] [0:128] [1,64]\n";
  const std::string second = "rotate t3 = y\nsync.q0 dma_copy f32 y[t3] [0:128] [1,64] <- f32 s+32768+i0*-32768 [0:128 step 64] [1,64]\n"
                             "sync.q0 dma_copy f32 out+i0*32768 [0:128 step 64] [1,64] <- f32 y[t3] [0:128] [1,64]\n";
  const Planned p = check_plan(kBuffers + "buffer s scratch bytes=65536\n" + core(loop(2, first + to_scratch) + loop(2, second)));
  EXPECT_THAT(p.run.groups, ElementsAre(2, 2)) << p.text;
  const Planned barrier = check_plan(kBuffers + "buffer s scratch bytes=65536\n" + core(loop(2, first + to_scratch) + "barrier\n" + loop(2, second)));
  EXPECT_THAT(barrier.run.groups, ElementsAre(2, 2)) << barrier.text;
}

TEST(Plan, TwoCores) {
  const std::string shared = "buffer a input bytes=65536\nbuffer b input bytes=65536\nbuffer out output bytes=65536\nbuffer two output bytes=65536\n";
  const std::string other = "rotate t0 = x\nrotate t1 = y\nsync.q0 dma_copy f32 x[t0] [0:128] [1,64] <- f32 out+32768+i0*-32768 [0:128 step 64] [1,64]\n"
                            "scalar activation.relu f32 y[t1] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64]\n"
                            "sync.q0 dma_copy f32 two+i0*32768 [0:128 step 64] [1,64] <- f32 y[t1] [0:128] [1,64]\n";
  const Planned p = check_plan(shared + core(loop(2, kRotate + kLoadA + kLoadB + kAdd + kStore) + "barrier\n") + core("barrier\n" + loop(2, other), 1));
  EXPECT_THAT(p.run.groups, ElementsAre(2, 2)) << p.text;
  EXPECT_EQ(p.run.literal, "");
}

// ---- programs that are executed as they are written

std::string literal(const std::string& buffers, const std::string& code) {
  const Planned p = check_plan(buffers + core(code));
  EXPECT_TRUE(p.text.starts_with("executed as it is written: ")) << p.text;
  return p.run.literal;
}

TEST(Plan, LiteralPrograms) {
  const std::string store = "sync.q0 dma_copy f32 out [0:128 step 64] [1,64] <- f32 x[t0] [0:128] [1,64]\n"
                            "sync.q0 dma_copy f32 out+32768 [0:128 step 64] [1,64] <- f32 x[t0] [0:128] [1,64]\n";
  const std::string load = "sync.q0 dma_copy f32 x[t0] [0:128] [1,64] <- f32 a [0:128 step 64] [1,64]\n";
  EXPECT_EQ(literal(kBuffers, "rotate t0 = x\n" + load + store + "rotate t0 = x\n" + load + store), "a slot register is written twice");
  EXPECT_EQ(literal(kBuffers, "rotate t0 = x\n" + load + "barrier\n" + store), "a tile is used on both sides of a barrier");
  EXPECT_EQ(literal(kBuffers, loop(2, "rotate t0 = x\n" + load + store + "barrier\n")), "a barrier inside a loop");
  EXPECT_EQ(literal(kBuffers, loop(2, "rotate t0 = x\n" + load) + store), "a tile is used outside the loop that takes it");
}

TEST(Plan, PlacesThatAnInstructionWritesTwice) {
  // The last element counts; a plan may go through the elements in another order.
  const std::string loads = "rotate t0 = x\nrotate t1 = y\nrotate t2 = z\nrotate t3 = acc\n"
      "sync.q0 dma_copy f32 x[t0] [0:128] [1,64] <- f32 b [0:128 step 64] [1,64]\n"
      "sync.q0 dma_copy f32 y[t1] [0:128] [1,64] <- f32 b+32768 [0:128 step 64] [1,64]\n";
  EXPECT_EQ(literal(kInPlace, loads + "tensor nc_matmul f32 acc[t3] [0:64] [1,64] <- f32 x[t0] [0:128] [1,64], f32 y[t1] [0:128] [1,64]\n"
      "scalar tensor_copy f32 z[t2] [0:64] [1,64] <- f32 acc[t3] [0:64] [1,64]\n"
      "sync.q0 dma_copy f32 out [0:64 step 5] [1,64] <- f32 z[t2] [0:64] [1,64]\n"), "an instruction writes a place twice");
  EXPECT_EQ(literal(kInPlace, "rotate t0 = x\nsync.q0 dma_copy f32 x[t0] [0:32] [1,8] <- f32 a+896 [0:32 step 1] [-32,8]\n"
      "sync.q0 dma_copy f32 out+10448 [0:32 step 1] [2,8] <- f32 x[t0] [0:32] [1,8]\n"), "an instruction writes a place twice");
  EXPECT_EQ(literal("buffer a input bytes=65536\nbuffer out output bytes=40960\n", loop(2, "rotate t0 = x\n"
      "sync.q0 dma_copy f32 x[t0] [0:128] [24,2][1,40] <- f32 a+i0*32768 [0:128 step 64] [20,2][1,40]\n"
      "sync.q0 dma_copy f32 out+i0*20480 [0:128 step 40] [1,40] <- f32 x[t0] [0:128] [1,40]\n")), "an instruction writes a place twice");
}

// Programs the verifier refuses still must not be planned as if they were sound.
std::string reason(const std::string& text) {
  auto program = std::make_shared<isa::Program>(isa::parse("program p chip=trn2\n" + text));
  put_in_order(*program);
  EXPECT_NE(findings_of(*program), "");
  return Plan(program, small_chip()).literal_reason();
}

TEST(Plan, UnsoundProgramsAreExecutedLiterally) {
  const std::string store = "sync.q0 dma_copy f32 out [0:128 step 64] [1,64] <- f32 x[t0] [0:128] [1,64]\n";
  const std::string load = "sync.q0 dma_copy f32 x[t0] [0:128] [1,64] <- f32 a [0:128 step 64] [1,64]\n";
  EXPECT_EQ(reason(kBuffers + core(store)), "a slot register is read before it is written");
  EXPECT_EQ(reason(kBuffers + core("rotate t0 = x\n" + store)), "an operand reads bytes that were not written");
  EXPECT_EQ(reason(kBuffers + core("rotate t0 = x\nsync.q0 dma_copy f32 x[t0] [0:128] [1,63] <- f32 a [0:128 step 64] [1,63]\n" + store)),
            "an operand reads bytes that were not written");
  EXPECT_EQ(reason(kBuffers + core("rotate t0 = x\nsync.q0 dma_copy f32 x[t0] [0:127] [1,64] <- f32 a [0:127 step 64] [1,64]\n" + store)),
            "an operand reads bytes that were not written");
  std::string many;
  for (int k = 1; k < 5; ++k) many += fmt::format("rotate t{} = x\n", k);
  EXPECT_EQ(reason(kBuffers + core("rotate t0 = x\n" + load + many + store)), "a slot is taken again while its tile is in use");
  EXPECT_EQ(reason(kBuffers + core("pool v sbuf offset=128 bytes=256 depth=1\nrotate t0 = x\n" + load +
                                   "rotate t1 = v\nvector memset f32 v[t1] [0:128] [1,64] value=1\n" + store)),
            "overlapping pools are in use at the same time");
  // Written in an earlier iteration only.
  EXPECT_EQ(reason(kBuffers + core("rotate t0 = x\n" + loop(2, store + load))), "an operand reads bytes that were not written");
}

TEST(Plan, PartialWrites) {
  check_plan(kBuffers + core(loop(2, kRotate + kLoadA + kLoadB +
      "vector tensor_tensor.is_gt f32 z[t2] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64], f32 y[t1] [0:128] [1,64]\n"
      "vector tensor_copy_predicated f32 y[t1] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64], f32 z[t2] [0:128] [1,64]\n"
      "sync.q0 dma_copy f32 out+i0*32768 [0:128 step 64] [1,64] <- f32 y[t1] [0:128] [1,64]\n")));
  const std::string gathered = "buffer a input bytes=65536\nbuffer index input bytes=1024\nbuffer out output bytes=65536\n";
  check_plan(gathered + core(loop(2, "rotate t0 = x\nrotate t1 = y\n"
      "sync.q0 dma_copy i32 y[t1] [0:128] [1,1] <- i32 index+i0*512 [0:128 step 1] [1,1]\n"
      "vector memset f32 x[t0] [0:128] [1,64] value=5\n"
      "gpsimd.q1 dma_gather f32 x[t0] [0:128] [1,64] <- f32 a [1,64], i32 y[t1] [0:128] [1,1] rows=5 row_bytes=256 skip_out_of_bounds\n"
      "sync.q0 dma_copy f32 out+i0*32768 [0:128 step 64] [1,64] <- f32 x[t0] [0:128] [1,64]\n")));
  const Planned accumulated = check_plan(kInPlace + core(loop(4, "rotate t1 = y\n"
      "sync.q0 dma_copy f32 y[t1] [0:128] [1,64] <- f32 b+i0*8192 [0:128 step 64] [1,64]\n"
      "sync.q0 dma_copy f32 out [0:128 step 64] [1,64] <- f32 y[t1] [0:128] [1,64] accumulate\n")));
  EXPECT_THAT(accumulated.run.groups, ElementsAre(1)) << accumulated.text;
}

// ---- strips

TEST(Plan, StripsOfAnyNumberOfPartitions) {
  for (const int rows : {128, 127, 97, 64, 33, 5, 1}) {
    const Planned p = check_plan("buffer a input bytes=4194304\nbuffer out output bytes=" + std::to_string(rows * 4000) + "\n"
        "core 0 {\npool x sbuf offset=0 bytes=4000 depth=1\npool y sbuf offset=4000 bytes=4000 depth=1\npool z sbuf offset=8000 bytes=4 depth=1\n"
        "rotate t0 = x\nrotate t1 = y\nrotate t2 = z\n" + fmt::format(
        "sync.q0 dma_copy f32 x[t0] [0:{0}] [1,1000] <- f32 a [0:{0} step 1000] [1,1000]\n"
        "vector tensor_reduce.max f32 z[t2] [0:{0}] [1,1] <- f32 x[t0] [0:{0}] [1,1000]\n"
        "vector tensor_scalar.subtract f32 y[t1] [0:{0}] [1,1000] <- f32 x[t0] [0:{0}] [1,1000] s0=f32 z[t2] [0:{0}]\n"
        "gpsimd iota i32 x[t0] [0:{0}] [1,1000] base=7 channel_multiplier=3 pattern=[2,1000]\n"
        "gpsimd tensor_tensor.add f32 y[t1] [0:{0}] [1,1000] <- f32 y[t1] [0:{0}] [1,1000], i32 x[t0] [0:{0}] [1,1000]\n"
        "gpsimd affine_select.is_ge f32 y[t1] [0:{0}] [1,1000] <- f32 y[t1] [0:{0}] [1,1000] base=-20 channel_multiplier=2 pattern=[1,1000] fill=-3\n"
        "sync.q0 dma_copy f32 out [0:{0} step 1000] [1,1000] <- f32 y[t1] [0:{0}] [1,1000]\n", rows) + "}\n");
    // A strip loop, and a rest where no divisor is near.
    EXPECT_EQ(p.has("loop i0 < "), rows > 1) << p.text;
    EXPECT_EQ(p.count("iota"), rows == 127 || rows == 97 || rows == 5 ? 2 : 1) << p.text;
  }
}

TEST(Plan, StripsOfTilesThatBeginAtAnotherPartition) {
  check_plan("buffer a input bytes=262144\nbuffer out output bytes=128000\ncore 0 {\npool x sbuf offset=0 bytes=8000 depth=1\npool y sbuf offset=8000 bytes=8000 depth=1\n"
      "rotate t0 = x\nrotate t1 = y\n"
      "sync.q0 dma_copy f32 x[t0] [96:112] [1,2000] <- f32 a [0:16 step 2000] [1,2000]\n"
      "gpsimd iota i32 y[t1] [96:112] [1,2000] channel_multiplier=5 pattern=[1,2000]\n"
      "gpsimd tensor_tensor.add f32 x[t0] [96:112] [1,2000] <- f32 x[t0] [96:112] [1,2000], i32 y[t1] [96:112] [1,2000]\n"
      "sync.q0 dma_copy f32 out [0:16 step 2000] [1,2000] <- f32 x[t0] [96:112] [1,2000]\n}\n");
}

TEST(Plan, IndicesInStrips) {
  const auto with = [](const std::string& index, const std::string& around = "") {
    return check_plan("buffer a input bytes=262144\nbuffer out output bytes=131072 alias=a\n" + kKernels +
        "core 0 {\npool x sbuf offset=0 bytes=8192 depth=1\npool y sbuf offset=8192 bytes=8192 depth=1\n" +
        (around.empty() ? loop(3, "rotate t0 = x\nrotate t1 = y\n"
        "sync.q0 dma_copy f32 x[t0] [0:13] [1,2000] <- f32 a+i0*8192 [0:13 step 2001] [1,2000]\n"
        "gpsimd gpsimd_kernel f32 y[t1] [0:13] [1,2000] <- f32 x[t0] [0:13] [1,2000] kernel=flat " + index + "\n"
        "vector tensor_scalar.add f32 y[t1] [0:13] [1,2000] <- f32 y[t1] [0:13] [1,2000] s0=1\n"
        "sync.q0 dma_copy f32 out+i0*8192 [0:13 step 2001] [1,2000] <- f32 y[t1] [0:13] [1,2000]\n") : around) + "}\n");
  };
  EXPECT_TRUE(with("").has("terms=+i1*")) << with("").text;
  with("base=-5");
  with("base=-0.5");
  with("base=9007199254740993");
  with("channel_multiplier=3");
  with("pattern=[2,2000]");
  with("pattern=[2,2000] channel_multiplier=-7");
  with("pattern=[50,40][1,50] channel_multiplier=2000 terms=+i0*100");
  with("terms=+i0*1000000");
}

TEST(Plan, IndicesFromALaunchScalar) {
  const ScalarValue start{ScalarValue::Kind::integer, 0, 12};
  check_plan("buffer a input bytes=262144\nbuffer out output bytes=104000\nscalar start i32\n" + kKernels +
      "core 0 {\npool x sbuf offset=0 bytes=8192 depth=1\npool y sbuf offset=8192 bytes=8192 depth=1\nrotate t0 = x\nrotate t1 = y\n"
      "sync.q0 dma_copy f32 x[t0] [0:13] [1,2000] <- f32 a [0:13 step 2000] [1,2000]\n"
      "gpsimd gpsimd_kernel f32 y[t1] [0:13] [1,2000] <- f32 x[t0] [0:13] [1,2000] kernel=flat base=$start\n"
      "vector tensor_scalar.add f32 y[t1] [0:13] [1,2000] <- f32 y[t1] [0:13] [1,2000] s0=$start\n"
      "sync.q0 dma_copy f32 out [0:13 step 2000] [1,2000] <- f32 y[t1] [0:13] [1,2000]\n}\n", std::span(&start, 1));
}

TEST(Plan, ScattersKeepTheirOrder) {
  // Eight row numbers for 128 values each: the last one of a row counts, sums are in order.
  for (const char* accumulate : {"", " accumulate"}) {
    const std::string scatter = "rotate t0 = x\nrotate t1 = y\n"
        "sync.q0 dma_copy i32 y[t1] [0:128] [1,2] <- i32 index+i0*1024 [0:128 step 2] [1,2]\n"
        "sync.q0 dma_copy f32 x[t0] [0:128] [1,64] <- f32 a+i0*32768 [0:128 step 64] [1,64]\n"
        "vector tensor_scalar.mult f32 x[t0] [0:128] [1,64] <- f32 x[t0] [0:128] [1,64] s0=0.3\n"
        "gpsimd.q1 dma_scatter f32 out [1,32] <- f32 x[t0] [0:128] [1,64], i32 y[t1] [0:128] [1,2] rows=8 row_bytes=128" + std::string(accumulate) + "\n";
    const Planned p = check_plan("buffer a input bytes=65536\nbuffer index input bytes=2048\nbuffer t input bytes=1024\nbuffer out output bytes=1024 alias=t\n" +
                                 core(loop(2, scatter)));
    EXPECT_THAT(p.run.groups, ElementsAre(1)) << p.text;
  }
}

TEST(Plan, RowsWiderThanAStrip) {
  check_plan("buffer a input bytes=655360\nbuffer out output bytes=655360\ncore 0 {\npool x sbuf offset=0 bytes=8192 depth=1\nloop i0 < 16 {\nrotate t0 = x\n"
      "sync.q0 dma_copy bf16 x[t0] [0:5] [1,4096] <- bf16 a+i0*8192 [0:5 step 65536] [1,4096]\n"
      "vector tensor_scalar.add bf16 x[t0] [0:5] [1,4096] <- bf16 x[t0] [0:5] [1,4096] s0=1\n"
      "sync.q0 dma_copy bf16 out+i0*8192 [0:5 step 65536] [1,4096] <- bf16 x[t0] [0:5] [1,4096]\n}\n}\n");
  check_plan("buffer a input bytes=512\nbuffer out output bytes=512\ncore 0 {\npool x sbuf offset=0 bytes=4 depth=1\nrotate t0 = x\n"
      "sync.q0 dma_copy f32 x[t0] [0:128] <- f32 a [0:128 step 1]\n"
      "vector tensor_scalar.add f32 x[t0] [0:128] <- f32 x[t0] [0:128] s0=1\n"
      "sync.q0 dma_copy f32 out [0:128 step 1] <- f32 x[t0] [0:128]\n}\n");
}

// ---- matrix multiplications

// out[M,N] = a[K,M]' b[K,N], the blocks of K in the order given.
Planned product(int k, int m, int n, const std::vector<int>& blocks, const std::string& start = "", const std::string& end = "",
                const std::string& type = "f32", const std::string& out_type = "f32") {
  const int size = type == "f32" ? 4 : 2, out_size = out_type == "f32" ? 4 : 2;
  std::string code = "rotate t9 = acc\n" + start;
  bool accumulate = !start.empty();
  int reg = 0;
  for (const int block : blocks) {
    const int rows = std::min(128, k - block * 128);
    code += fmt::format("rotate t{0} = x\nrotate t{1} = y\nsync.q0 dma_copy {2} x[t{0}] [0:{3}] [1,{4}] <- {2} b16a+{5} [0:{3} step {4}] [1,{4}]\n"
                        "sync.q0 dma_copy {2} y[t{1}] [0:{3}] [1,{6}] <- {2} b16b+{7} [0:{3} step {6}] [1,{6}]\n"
                        "tensor nc_matmul f32 acc[t9] [0:{4}] [1,{6}] <- {2} x[t{0}] [0:{3}] [1,{4}], {2} y[t{1}] [0:{3}] [1,{6}]{8}\n",
                        reg, reg + 1, type, rows, m, block * 128 * m * size, n, block * 128 * n * size, accumulate ? " accumulate" : "");
    reg += 2;
    if (reg > 6) reg = 0;
    accumulate = true;
  }
  code += "rotate t8 = z\n" + (end.empty() ? fmt::format("scalar tensor_copy {2} z[t8] [0:{0}] [1,{1}] <- f32 acc[t9] [0:{0}] [1,{1}]\n", m, n, out_type) : end);
  code += fmt::format("sync.q0 dma_copy {2} out [0:{0} step {1}] [1,{1}] <- {2} z[t8] [0:{0}] [1,{1}]\n", m, n, out_type);
  return check_plan(fmt::format("buffer b16a input bytes={}\nbuffer b16b input bytes={}\nbuffer out output bytes={}\n", k * m * size, k * n * size, m * n * out_size) +
                    "core 0 {\npool x sbuf offset=0 bytes=512 depth=2\npool y sbuf offset=1024 bytes=2048 depth=2\npool z sbuf offset=5120 bytes=2048 depth=1\n"
                    "pool acc psum offset=0 bytes=2048 depth=1\n" + code + "}\n");
}

TEST(Plan, AccumulationsAreJoined) {
  const Planned p = product(384, 128, 512, {0, 1, 2});
  EXPECT_EQ(p.text, "stage 0, core 0, 0 bytes of tiles: one group\n"
                    "  nc_matmul f32 out [0:128 step 512] [1,512] <- f32 b16a [0:384 step 128] [1,128], f32 b16b [0:384 step 512] [1,512]\n");
  EXPECT_EQ(product(300, 77, 333, {0, 1, 2}).count("nc_matmul"), 1);
  EXPECT_EQ(product(384, 128, 512, {0, 2, 1}).count("nc_matmul"), 3);
  EXPECT_EQ(product(384, 128, 512, {0, 0, 1}).count("nc_matmul"), 2);
  EXPECT_EQ(product(200, 3, 5, {0, 1}, "", "", "bf16").count("nc_matmul"), 1);
  EXPECT_EQ(product(384, 128, 512, {0, 1, 2}, "", "", "bf16", "bf16").count("nc_matmul"), 1);
}

TEST(Plan, SumsThatStartFromPsumContents) {
  product(256, 64, 128, {0, 1}, "rotate t0 = x\nrotate t1 = y\nvector memset f32 x[t0] [0:1] [1,64] value=1\nvector memset f32 y[t1] [0:1] [1,128] value=5\n"
          "tensor nc_matmul f32 acc[t9] [0:64] [1,128] <- f32 x[t0] [0:1] [1,64], f32 y[t1] [0:1] [1,128]\n");
}

TEST(Plan, EpiloguesReadPsum) {
  product(256, 64, 128, {0, 1}, "", "scalar activation.relu f32 z[t8] [0:64] [1,128] <- f32 acc[t9] [0:64] [1,128] scale=0.5 bias=-1\n");
  product(256, 64, 128, {0, 1}, "", "vector tensor_scalar.mult.add bf16 z[t8] [0:64] [1,128] <- f32 acc[t9] [0:64] [1,128] s0=0.5 s1=2\n", "f32", "bf16");
}

TEST(Plan, TwoProductsInHalvesOfATile) {
  const std::string matmul = "tensor nc_matmul f32 acc[t3]{1} [0:64] [1,32] <- f32 x[t0] [0:128] [1,64], f32 y[t1]{0} [0:128] [1,32]\n";
  check_plan(kBuffers + core(loop(2, kRotate + "rotate t3 = acc\n" + kLoadA + kLoadB + fmt::format(fmt::runtime(matmul), "", "") +
      fmt::format(fmt::runtime(matmul), "+128", "+128") +
      "scalar tensor_copy f32 z[t2] [0:64] [1,64] <- f32 acc[t3] [0:64] [1,64]\n"
      "sync.q0 dma_copy f32 out+i0*32768 [0:64 step 64] [1,64] <- f32 z[t2] [0:64] [1,64]\n"
      "sync.q0 dma_copy f32 out+16384+i0*32768 [0:64 step 64] [1,64] <- f32 z[t2] [0:64] [1,64]\n")));
}

TEST(Plan, OperandsThatTheProgramWroteItself) {
  // The second block of K is written between the two multiplications.
  const std::string code = "rotate t3 = acc\nrotate t0 = x\nrotate t1 = y\nrotate t2 = z\n"
      "sync.q0 dma_copy f32 x[t0] [0:128] [1,64] <- f32 a [0:128 step 64] [1,64]\n"
      "sync.q0 dma_copy f32 y[t1] [0:128] [1,64] <- f32 b [0:128 step 64] [1,64]\n"
      "tensor nc_matmul f32 acc[t3] [0:64] [1,64] <- f32 x[t0] [0:128] [1,64], f32 y[t1] [0:128] [1,64]\n"
      "vector tensor_scalar.add f32 z[t2] [0:128] [1,64] <- f32 y[t1] [0:128] [1,64] s0=1\n"
      "sync.q0 dma_copy f32 out+32768 [0:128 step 64] [1,64] <- f32 z[t2] [0:128] [1,64]\n"
      "rotate t4 = x\nrotate t5 = y\nrotate t6 = z\n"
      "sync.q0 dma_copy f32 x[t4] [0:128] [1,64] <- f32 a+32768 [0:128 step 64] [1,64]\n"
      "sync.q0 dma_copy f32 y[t5] [0:128] [1,64] <- f32 b+32768 [0:128 step 64] [1,64]\n"
      "tensor nc_matmul f32 acc[t3] [0:64] [1,64] <- f32 x[t4] [0:128] [1,64], f32 y[t5] [0:128] [1,64] accumulate\n"
      "scalar tensor_copy f32 z[t6] [0:64] [1,64] <- f32 acc[t3] [0:64] [1,64]\n"
      "sync.q0 dma_copy f32 out [0:64 step 64] [1,64] <- f32 z[t6] [0:64] [1,64]\n";
  EXPECT_EQ(check_plan(kInPlace + core(code)).count("nc_matmul"), 2);
}

TEST(Plan, NeighbouringRowsAreJoined) {
  std::string code;
  for (int m = 0; m < 3; ++m)
    code += fmt::format("rotate t{0} = acc\nrotate t{1} = x\nrotate t{2} = y\nrotate t{3} = z\n"
        "sync.q0 dma_copy f32 x[t{1}] [0:128] [1,64] <- f32 a+{4} [0:128 step 192] [1,64]\n"
        "sync.q0 dma_copy f32 y[t{2}] [0:128] [1,64] <- f32 b [0:128 step 64] [1,64]\n"
        "tensor nc_matmul f32 acc[t{0}] [0:64] [1,64] <- f32 x[t{1}] [0:128] [1,64], f32 y[t{2}] [0:128] [1,64]\n"
        "scalar tensor_copy f32 z[t{3}] [0:64] [1,64] <- f32 acc[t{0}] [0:64] [1,64]\n"
        "sync.q0 dma_copy f32 out+{5} [0:64 step 64] [1,64] <- f32 z[t{3}] [0:64] [1,64]\n",
        4 * m, 4 * m + 1, 4 * m + 2, 4 * m + 3, m * 256, m * 16384);
  const Planned p = check_plan("buffer a input bytes=98304\nbuffer b input bytes=32768\nbuffer out output bytes=49152\n" + core(code));
  EXPECT_EQ(p.count("nc_matmul"), 1) << p.text;
  EXPECT_TRUE(p.has("out [0:192 step 64] [1,64] <- f32 a [0:128 step 192] [1,192]")) << p.text;
}

TEST(Plan, RowsThatOverlapAreNotJoined) {
  std::string code;
  for (int m = 0; m < 2; ++m)
    code += fmt::format("rotate t{0} = acc\nrotate t{1} = x\nrotate t{2} = y\nrotate t{3} = z\n"
        "sync.q0 dma_copy f32 x[t{1}] [0:128] [1,1] <- f32 b+{4} [0:128 step 2] [1,1]\n"
        "sync.q0 dma_copy f32 y[t{2}] [0:128] [1,64] <- f32 b [0:128 step 64] [1,64]\n"
        "tensor nc_matmul f32 acc[t{0}] [0:1] [1,64] <- f32 x[t{1}] [0:128] [1,1], f32 y[t{2}] [0:128] [1,64]\n"
        "scalar tensor_copy f32 z[t{3}] [0:1] [1,64] <- f32 acc[t{0}] [0:1] [1,64]\n"
        "sync.q0 dma_copy f32 out+{5} [0:1 step 5] [1,64] <- f32 z[t{3}] [0:1] [1,64]\n",
        4 * m, 4 * m + 1, 4 * m + 2, 4 * m + 3, m * 4, m * 20);
  EXPECT_EQ(check_plan(kInPlace + core(code)).count("nc_matmul"), 2);
}

// ---- launches

TEST(Plan, ManyBuffersAndScalars) {
  std::string text, code;
  std::vector<ScalarValue> scalars;
  for (int b = 0; b < 70; ++b) text += fmt::format("buffer in{} input bytes=512\n", b);
  for (int b = 0; b < 70; ++b) text += fmt::format("buffer out{} output bytes=512\n", b);
  for (int s = 0; s < 20; ++s) {
    text += fmt::format("scalar s{} f32\n", s);
    scalars.push_back({ScalarValue::Kind::real, 0.5 * s, 0});
  }
  for (int b = 0; b < 70; ++b)
    code += fmt::format("rotate t{0} = x\nrotate t{1} = y\nsync.q0 dma_copy f32 x[t{0}] [0:4] [1,32] <- f32 in{2} [0:4 step 32] [1,32]\n"
                        "vector tensor_scalar.add f32 y[t{1}] [0:4] [1,32] <- f32 x[t{0}] [0:4] [1,32] s0=$s{3}\n"
                        "sync.q0 dma_copy f32 out{2} [0:4 step 32] [1,32] <- f32 y[t{1}] [0:4] [1,32]\n", 2 * b, 2 * b + 1, b, b % 20);
  const Planned p = check_plan(text + core(code), scalars);
  EXPECT_EQ(p.run.literal, "");
  EXPECT_EQ(p.count("dma_copy"), 0);
}

TEST(Plan, AFaultIsThatOfTheInterpreter) {
  const std::string gather = "buffer a input bytes=65536\nbuffer index input bytes=1024\nbuffer out output bytes=65536\n" +
      core(loop(2, "rotate t0 = x\nrotate t1 = y\n"
      "sync.q0 dma_copy i32 y[t1] [0:128] [1,1] <- i32 index+i0*512 [0:128 step 1] [1,1]\n"
      "gpsimd.q1 dma_gather f32 x[t0] [0:128] [1,64] <- f32 a [1,64], i32 y[t1] [0:128] [1,1] rows=8 row_bytes=256 origin=42\n"
      "sync.q0 dma_copy f32 out+i0*32768 [0:128 step 64] [1,64] <- f32 x[t0] [0:128] [1,64]\n"));
  // The result is not used.
  const std::string dead = "buffer a input bytes=65536\nbuffer index input bytes=1024\nbuffer out output bytes=4\n" +
      core("rotate t0 = x\nrotate t1 = y\nrotate t2 = z\n"
      "sync.q0 dma_copy i32 y[t1] [0:128] [1,1] <- i32 index+512 [0:128 step 1] [1,1]\n"
      "gpsimd.q1 dma_gather f32 x[t0] [0:128] [1,64] <- f32 a [1,64], i32 y[t1] [0:128] [1,1] rows=8 row_bytes=256 origin=42\n"
      "vector memset f32 z[t2] [0:1] [1,1] value=0\nsync.q0 dma_copy f32 out [0:1 step 1] [1,1] <- f32 z[t2] [0:1] [1,1]\n");
  for (const std::string& text : {gather, dead}) {
    auto program = std::make_shared<isa::Program>(isa::parse("program p chip=trn2\n" + text));
    put_in_order(*program);
    EXPECT_EQ(findings_of(*program), "");
    LaunchMemory memory(*program);
    const int32_t number = -9;
    std::memcpy(memory.buffers[1] + 512 + 4 * 77, &number, 4);
    const PlanRun run = run_plan(program, small_chip(), memory.buffers, {}, kSmallTiles);
    EXPECT_FALSE(run.ok);
    EXPECT_EQ(run.difference, "");
    EXPECT_EQ(run.fault.message, "index -9 is out of bounds for dimension with size 8");
    EXPECT_EQ(run.fault.origin, 42);
  }
}

TEST(Plan, GroupsRunOnTwoThreads) {
  const std::string first = "rotate t2 = z\nrotate t0 = x\nsync.q0 dma_copy f32 x[t0] [0:16] [1,64] <- f32 a+i0*4096 [0:16 step 64] [1,64]\n"
                            "scalar activation.exp f32 z[t2] [0:16] [1,64] <- f32 x[t0] [0:16] [1,64]\n"
                            "vector tensor_reduce.add f32 x[t0] [0:16] [1,1] <- f32 z[t2] [0:16] [1,64]\n"
                            "vector tensor_scalar.divide f32 z[t2] [0:16] [1,64] <- f32 z[t2] [0:16] [1,64] s0=f32 x[t0] [0:16]\n"
                            "sync.q0 dma_copy f32 s+i0*4096 [0:16 step 64] [1,64] <- f32 z[t2] [0:16] [1,64]\n";
  const std::string second = "rotate t1 = y\nrotate t3 = w\nsync.q0 dma_copy f32 y[t1] [0:16] [1,64] <- f32 s+61440+i0*-4096 [0:16 step 64] [1,64]\n"
                             "vector tensor_scalar.add f32 w[t3] [0:16] [1,64] <- f32 y[t1] [0:16] [1,64] s0=1\n"
                             "sync.q0 dma_copy f32 out+i0*4096 [0:16 step 64] [1,64] <- f32 w[t3] [0:16] [1,64]\n";
  auto program = std::make_shared<isa::Program>(isa::parse("program p chip=trn2\n" + kBuffers + "buffer s scratch bytes=65536\n" + core(loop(16, first) + loop(16, second))));
  put_in_order(*program);
  ASSERT_EQ(findings_of(*program), "");
  LaunchMemory memory(*program);
  const Plan plan(program, small_chip());
  ASSERT_EQ(plan.stages(), 2);
  ASSERT_GE(plan.groups(0), 2);
  const LaunchValues values(*program, {});
  for (int repeat = 0; repeat < 20; ++repeat) {
    PlanCheck check(program, small_chip(), memory.buffers, {});
    std::atomic<int> next[2] = {0, 0};
    std::atomic<bool> ok = true;
    std::barrier end_of_stage(2);
    const auto work = [&] {
      WorkerMemory mine(small_chip());
      Fault fault;
      for (int stage = 0; stage < plan.stages(); ++stage) {
        for (int g; (g = next[stage]++) < plan.groups(stage);)
          if (!plan.run(stage, g, memory.buffers, values, mine, fault)) ok = false;
        end_of_stage.arrive_and_wait();
      }
    };
    std::thread other(work);
    work();
    other.join();
    EXPECT_TRUE(ok);
    EXPECT_EQ(check.compare(true), "");
  }
}

}  // namespace
}  // namespace opentrn::exec
