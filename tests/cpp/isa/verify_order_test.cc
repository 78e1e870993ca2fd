// The order proof: which programs have races, lose tokens or read what nobody wrote.
#include <chrono>
#include <fstream>
#include <sstream>

#include "machine.h"

namespace opentrn::isa {
namespace {

using testing::HasSubstr;

std::string file(const std::string& path) {
  std::ifstream in(std::string(OPENTRN_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

const std::string& scaled_add() {
  static const std::string text = file("tests/text/scaled_add.trn");
  return text;
}
const std::string& matmul() {
  static const std::string text = file("tests/text/matmul.trn");
  return text;
}

TEST(Race, MissingWaitForTheLoad) {
  const std::string text =
      replaced(replaced(scaled_add(), "wait a_ready>=1, b_ready>=1", "wait b_ready>=1"), "post a_ready+1", "");
  EXPECT_THAT(
      findings(text),
      HasSubstr("0:5 race: this one reads what the other writes, and neither engine order, queue order, semaphores nor "
                "barriers put it after instruction 3 of core 0: sync.q0 dma_copy f32 a_tile[t0]"));
  // With both loads in one queue, b's token says that a is there too.
  EXPECT_EQ(findings(replaced(text, "gpsimd.q2 dma_copy", "sync.q0 dma_copy")), "");
}

TEST(Race, MissingRelease) {
  const std::string text =
      replaced(replaced(scaled_add(), "wait a_free>=1 ", ""), "post a_free+1, done+1", "post done+1");
  EXPECT_THAT(findings(text), HasSubstr("0:3 race: this one writes what the other reads"));
}

TEST(Race, OneInitialCreditTooMany) {
  EXPECT_THAT(findings(replaced(scaled_add(), "a_free initial=2", "a_free initial=3")),
              HasSubstr("0:3 race: this one writes what the other reads"));
}

TEST(Race, DoubleBufferingWithOneBuffer) {
  EXPECT_THAT(findings(replaced(scaled_add(), "pool a_tile sbuf offset=0 bytes=2048 depth=2",
                                "pool a_tile sbuf offset=0 bytes=2048 depth=1")),
              HasSubstr("race"));
}

TEST(Race, EveryWaitAndPostOfTheMatmulMatters) {
  for (const char* signal :
       {"wait sums_free>=1", "wait a_ready>=1", "wait b_ready>=2", "post a_free+1", "post sums_ready+1",
        "post b_ready+1", "wait c_ready>=1 ", "post c_free+1", "wait a_free>=1 "})
    EXPECT_NE(findings(replaced(matmul(), signal, "")), "") << signal;
}

TEST(Race, PoolsThatOverlap) {
  EXPECT_THAT(findings(replaced(scaled_add(), "pool b_tile sbuf offset=4096", "pool b_tile sbuf offset=2048")),
              HasSubstr("race"));
}

TEST(Race, OneSemaphoreForTwoQueues) {
  // Two queues load the halves of a tile and post the same semaphore. With two tiles in flight, the first half of the
  // second tile can stand in for the second half of the first one; with one tile it cannot.
  const std::string text = R"(program p chip=trn2
buffer x input bytes=65536
buffer y output bytes=65536
core {
  pool t sbuf bytes=64 depth=1
  semaphore ready
  semaphore free initial=1
  semaphore done
  loop i0 < 8 {
    rotate t0 = t
    sync.q0 dma_copy f32 t[t0] [0:128] [1,8] <- f32 x+i0*8192 [0:128 step 16] [1,8] wait free>=1 post ready+1
    sync.q2 dma_copy f32 t[t0]+32 [0:128] [1,8] <- f32 x+32+i0*8192 [0:128 step 16] [1,8] post ready+1
    scalar activation.exp f32 t[t0] [0:128] [1,16] <- f32 t[t0] [0:128] [1,16] wait ready>=2 post done+1
    gpsimd.q1 dma_copy f32 y+i0*8192 [0:128 step 16] [1,16] <- f32 t[t0] [0:128] [1,16] wait done>=1 post free+1
  }
}
)";
  EXPECT_EQ(findings(text), "");
  EXPECT_THAT(
      findings(replaced(replaced(text, "depth=1", "depth=2"), "free initial=1", "free initial=2")),
      HasSubstr("0:4 the wait on 'ready' may be satisfied by other posts before instruction 2 has posted: sync.q0"));
}

TEST(Race, OneSemaphoreForTwoWaiters) {
  // Two engines take tokens of the same semaphore; the second one may take the first one's.
  const std::string text = R"(program p chip=trn2
buffer x input bytes=128
core {
  pool t sbuf bytes=64 depth=2
  semaphore ready
  rotate t0 = t
  rotate t1 = t
  sync.q0 dma_copy f32 t[t0] [0:1] [1,16] <- f32 x [1,16] post ready+1
  sync.q0 dma_copy f32 t[t1] [0:1] [1,16] <- f32 x+64 [1,16] post ready+1
  scalar tensor_copy f32 t[t0] [0:1] [1,16] <- f32 t[t0] [0:1] [1,16] wait ready>=1
  vector tensor_copy f32 t[t1] [0:1] [1,16] <- f32 t[t1] [0:1] [1,16] wait ready>=1
}
)";
  EXPECT_THAT(findings(text),
              HasSubstr("0:5 the wait on 'ready' may be satisfied by other posts before instruction 3"));
}

TEST(Race, OneQueueTriggeredByTwoEngines) {
  const std::string text = replaced(scaled_add(), "gpsimd.q2", "gpsimd.q0");
  EXPECT_THAT(findings(text), HasSubstr("0:4 queue q0 is triggered by two engines"));
}

// Two cores write one output; the barrier orders what follows it.
std::string two_cores(const char* offset, const char* between) {
  std::string text =
      "program p chip=trn2\nbuffer x input bytes=64\nbuffer s scratch bytes=128\nbuffer y output bytes=64\n";
  for (int core = 0; core < 2; ++core) {
    text += "core {\n  pool t sbuf bytes=64 depth=1\n  semaphore r\n  semaphore d\n  rotate t0 = t\n";
    text += "  sync.q0 dma_copy f32 t[t0] [0:1] [1,16] <- f32 x [1,16] post r+1\n";
    text += std::string("  sync.q0 dma_copy f32 s") + (core ? offset : "") +
            " [1,16] <- f32 t[t0] [0:1] [1,16] wait r>=1\n";
    text += std::string("  ") + between + "\n";
    if (core == 1) text += "  sync.q0 dma_copy f32 y [1,16] <- f32 s [1,16]\n";
    text += "}\n";
  }
  return replaced(replaced(text, "  semaphore d\n", ""), "  semaphore d\n", "");
}

TEST(Race, CoresMeetOnlyAtBarriers) {
  EXPECT_EQ(findings(two_cores("+64", "barrier")), "");
  EXPECT_THAT(findings(two_cores("+64", "")), HasSubstr("race: this one reads what the other writes"));
  EXPECT_THAT(findings(two_cores("+60", "barrier")), HasSubstr("race: both write"));
}

TEST(Race, BarriersMustPairUp) {
  const std::string text = two_cores("+64", "barrier");
  EXPECT_THAT(findings(replaced(text, "barrier", "")), HasSubstr("this core meets 1 barriers, core 0 meets 0"));
}

TEST(Race, InPlaceUpdateOfTheNextTilesInput) {
  // y aliases x; tile i is stored while tile i+1 is loaded. Shifting the store by one tile is a race.
  const std::string in_place = R"(program p chip=trn2
buffer x input bytes=1048576
buffer y output bytes=1048576 alias=x
core {
  pool t sbuf bytes=512 depth=3
  semaphore ready
  semaphore done
  semaphore free initial=3
  loop i0 < 16 {
    rotate t0 = t
    sync.q0 dma_copy f32 t[t0] [0:128] [1,128] <- f32 x+i0*65536 [0:128 step 128] [1,128] wait free>=1 post ready+1
    scalar activation.exp f32 t[t0] [0:128] [1,128] <- f32 t[t0] [0:128] [1,128] wait ready>=1 post done+1
    gpsimd.q1 dma_copy f32 y+i0*65536 [0:128 step 128] [1,128] <- f32 t[t0] [0:128] [1,128] wait done>=1 post free+1
  }
}
)";
  EXPECT_EQ(findings(in_place), "");
  // Tile i reads one row of tile i+7, which the proof must find although it walks only a few iterations.
  EXPECT_THAT(findings(replaced(replaced(in_place, "f32 y+i0*65536", "f32 y+458752"), "i0 < 16", "i0 < 9")),
              HasSubstr("race"));
}

TEST(NoRace, ColumnBlocksTransposesAndSteps) {
  auto stores = [](const std::string& first, const std::string& second) {
    return R"(program p chip=trn2
buffer y scratch bytes=524288
core {
  pool a sbuf bytes=4096 depth=1
  pool b sbuf offset=4096 bytes=4096 depth=1
  semaphore s
  semaphore u
  rotate t0 = a
  rotate t1 = b
  vector memset f32 a[t0] [0:128] [1,1024] value=0 post s+1
  vector memset f32 b[t1] [0:128] [1,1024] value=1 post u+1
  sync.q0 dma_copy )" +
           first + " wait s>=1\n  gpsimd.q1 dma_copy " + second + " wait u>=1\n}\n";
  };
  const std::string a = " <- f32 a[t0] [0:128] [1,512]", b = " <- f32 b[t1] [0:128] [1,512]";
  EXPECT_EQ(findings(stores("f32 y [0:128 step 1024] [1,512]" + a, "f32 y+2048 [0:128 step 1024] [1,512]" + b)), "");
  EXPECT_EQ(findings(stores("f32 y [0:128 step 1] [128,512]" + a, "f32 y+262144 [0:128 step 1] [128,512]" + b)), "");
  EXPECT_EQ(findings(stores("f32 y [0:128 step 1024] [2,512]" + a, "f32 y+4 [0:128 step 1024] [2,512]" + b)), "");
  EXPECT_EQ(findings(stores("f32 y+2044 [0:128 step 1024] [-1,512]" + a, "f32 y+2048 [0:128 step 1024] [1,512]" + b)),
            "");
  EXPECT_THAT(findings(stores("f32 y [0:128 step 1024] [1,512]" + a, "f32 y+2044 [0:128 step 1024] [1,512]" + b)),
              HasSubstr("race: both write"));
}

TEST(Tokens, AWaitThatNothingSatisfies) {
  EXPECT_THAT(
      findings(replaced(scaled_add(), "b_free initial=2", "b_free initial=0")),
      HasSubstr("0:4 waits for 1 of semaphore 'b_free', but only 0 are left when everything before it in program "
                "order has completed: this never ends"));
}

TEST(Tokens, SemaphoresEndAsTheyBegan) {
  EXPECT_THAT(findings(replaced(scaled_add(), "post a_free+1, done+1", "post a_free+2, done+1")),
              HasSubstr("semaphore 'a_free' starts at 2 and ends at 10"));
}

TEST(Tokens, ManyPostsOneWait) {
  // 100 loads, then one wait for all of them; the loop is walked only a few times.
  const std::string text = R"(program p chip=trn2
buffer x input bytes=51200
buffer y output bytes=51200
core {
  pool t sbuf bytes=51200 depth=1
  semaphore ready
  semaphore done
  rotate t0 = t
  loop i0 < 100 {
    sync.q0 dma_copy f32 t[t0]+i0*512 [0:1] [1,128] <- f32 x+i0*512 [1,128] post ready+1
  }
  scalar activation.exp f32 t[t0] [0:1] [1,12800] <- f32 t[t0] [0:1] [1,12800] wait ready>=100
  loop i0 < 100 {
    scalar tensor_copy f32 t[t0]+i0*512 [0:1] [1,128] <- f32 t[t0]+i0*512 [0:1] [1,128] post done+1
  }
  loop i0 < 100 {
    sync.q0 dma_copy f32 y+i0*512 [1,128] <- f32 t[t0]+i0*512 [0:1] [1,128] wait done>=1
  }
}
)";
  EXPECT_EQ(findings(text), "");
  EXPECT_THAT(findings(replaced(text, "wait ready>=100", "wait ready>=99")), HasSubstr("starts at 0 and ends at 1"));
  EXPECT_THAT(
      findings(replaced(text, "y+i0*512 [1,128] <- f32 t[t0]+i0*512", "y+i0*512 [1,128] <- f32 t[t0]+50688+i0*-512")),
      HasSubstr("race"));
}

TEST(Contents, ReadsOfWhatNobodyWrote) {
  EXPECT_THAT(
      findings(replaced(scaled_add(), "b_tile[t1] [0:128] [1,512] <- f32 b+", "b_tile[t1] [0:128] [1,511] <- f32 b+")),
      HasSubstr("elements"));
  const std::string text = replaced(
      scaled_add(), "gpsimd.q2 dma_copy f32 b_tile[t1] [0:128] [1,512] <- f32 b+i0*262144 [0:128 step 512] [1,512]",
      "gpsimd.q2 dma_copy f32 b_tile[t1] [0:128] [1,511] <- f32 b+i0*262144 [0:128 step 512] [1,511]");
  EXPECT_THAT(findings(text),
              HasSubstr("0:5 reads a tile of pool 'b_tile' that was not (or not completely) written since its rotate"));
}

TEST(Contents, StridedWritesCompleteATile) {
  const std::string text = R"(program p chip=trn2
buffer y output bytes=4096
core {
  pool t sbuf bytes=32 depth=1
  semaphore s
  rotate t0 = t
  vector memset f32 t[t0] [0:128] [2,4] value=0
  vector memset f32 t[t0]+4 [0:128] [2,4] value=1 post s+1
  sync.q0 dma_copy f32 y [0:128 step 8] [1,8] <- f32 t[t0] [0:128] [1,8] wait s>=1
}
)";
  EXPECT_EQ(findings(text), "");
  EXPECT_THAT(findings(replaced(text, "t[t0]+4 [0:128] [2,4]", "t[t0]+4 [0:128] [2,3]")),
              HasSubstr("0:3 reads a tile"));
  EXPECT_THAT(findings(replaced(text, "t[t0]+4 [0:128] [2,4]", "t[t0]+4 [0:64] [2,4]")), HasSubstr("0:3 reads a tile"));
}

TEST(Contents, ATileWhoseSlotWasTakenAgain) {
  const std::string text = replaced(scaled_add(), "    rotate t1 = b_tile\n",
                                    "    rotate t1 = b_tile\n    rotate t2 = b_tile\n    rotate t3 = b_tile\n");
  EXPECT_THAT(findings(text), HasSubstr("slot register t1 names a tile whose slot in pool 'b_tile' was taken again"));
}

TEST(Contents, ASlotRegisterThatNoRotateWrote) {
  EXPECT_THAT(findings(replaced(replaced(scaled_add(), "    rotate t0 = a_tile\n", ""), "core 0 {",
                                "core 0 {\n  registers loop=1 slot=2")),
              HasSubstr("slot register t0 is used before a rotate writes it"));
}

TEST(Contents, AccumulatingOntoWhatNoMatmulWrote) {
  EXPECT_THAT(findings(replaced(matmul(), "wait sums_free>=1", "accumulate wait sums_free>=1")),
              HasSubstr("0:11 reads a tile of pool 'sums'"));
}

TEST(Contents, OutputsAreWritten) {
  EXPECT_THAT(findings(replaced(scaled_add(), "buffer b input", "buffer spare output bytes=64\nbuffer b input")),
              HasSubstr("output 'spare' of 64 bytes is never written"));
}

TEST(Contents, ScratchIsWrittenBeforeItIsRead) {
  EXPECT_THAT(findings(replaced(scaled_add(), "buffer b input", "buffer b scratch")),
              HasSubstr("0:4 reads bytes 0 to 262143 of 'b', of which byte 0 was never written"));
}

// ---- speed
double microseconds(const Program& p) {
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(check(p, trn2()).empty());
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

TEST(Speed, SmallProgramsTakeMicroseconds) {
  const double add = microseconds(parse(scaled_add())), product = microseconds(parse(matmul()));
  RecordProperty("scaled_add_us", std::to_string(add));
  RecordProperty("matmul_us", std::to_string(product));
  printf("scaled_add %.1f us, matmul %.1f us\n", add, product);
  EXPECT_LT(add, 2000);  // far above what it takes, so that a busy machine does not matter
  EXPECT_LT(product, 20000);
}

}  // namespace
}  // namespace opentrn::isa
