#include "cost/timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "isa/text.h"
#include "isa/verify.h"
#include "programs.h"

namespace opentrn::cost {
namespace {

using isa::AccessPattern;
using isa::Engine;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;

const spec::Chip& trn2() { return spec::chip("trn2"); }

constexpr size_t kTensor = 0, kVector = 1, kScalar = 2, kGpsimd = 3, kSync = 4;

AccessPattern tile(Memory memory, DType dtype, int64_t columns, int pool = 0, int64_t offset = 0) {
  AccessPattern ap;
  ap.memory = memory;
  ap.dtype = dtype;
  ap.buffer = static_cast<int16_t>(pool);
  ap.partitions = 128;
  ap.offset = offset;
  ap.dims = {{1, static_cast<int32_t>(columns)}};
  if (memory == Memory::hbm) ap.partition_stride = columns;
  return ap;
}

// One core with a large SBUF pool, a PSUM pool and ten semaphores.
isa::Program one_core() {
  isa::Program p;
  p.name = "test";
  p.buffers = {{isa::Buffer::Kind::input, "x", 1 << 30, -1, {}}};
  p.cores.resize(1);
  p.cores[0].pools = {{"sbuf", Memory::sbuf, 0, 200'000, 1}, {"psum", Memory::psum, 0, 16384, 1}};
  p.cores[0].semaphores.resize(10);
  p.cores[0].loop_registers = 4;
  return p;
}

Instruction make(Opcode opcode, Engine engine, AccessPattern dst, std::initializer_list<AccessPattern> src) {
  Instruction in;
  in.opcode = opcode;
  in.engine = engine;
  in.dst = dst;
  for (const AccessPattern& ap : src) in.src.push_back(ap);
  return in;
}

// A vector instruction of one cycle per element.
Instruction reduce(int64_t columns, int64_t from, int64_t to) {
  Instruction in = make(Opcode::tensor_reduce, Engine::vector, tile(Memory::sbuf, DType::f32, 1, 0, to),
                        {tile(Memory::sbuf, DType::f32, columns, 0, from)});
  in.op0 = isa::AluOp::add;
  return in;
}

Instruction matmul(int64_t moving) {
  return make(Opcode::nc_matmul, Engine::tensor, tile(Memory::psum, DType::f32, moving, 1),
              {tile(Memory::sbuf, DType::bf16, 128), tile(Memory::sbuf, DType::bf16, moving, 0, 4096)});
}

Instruction loop(Opcode opcode, int64_t count = 0) {
  Instruction in;
  in.opcode = opcode;
  in.reg = 0;
  in.count = count;
  return in;
}

Instruction load(int64_t columns, int queue = 0) {
  Instruction in = make(Opcode::dma_copy, Engine::sync, tile(Memory::sbuf, DType::u8, columns), {tile(Memory::hbm, DType::u8, columns)});
  in.queue = static_cast<int8_t>(queue);
  return in;
}

int64_t total_ps(const isa::Program& p) { return time_program(p, trn2()).total_ps; }

TEST(Timing, AnEmptyProgramTakesNoTime) {
  isa::Program p = one_core();
  ProgramTime t = time_program(p, trn2());
  EXPECT_EQ(t.total_ps, 0);
  EXPECT_EQ(t.events, 0);
}

TEST(Timing, OneInstructionTakesItsCompletionAndTheSemaphore) {
  isa::Program p = one_core();
  p.cores[0].code = {reduce(960, 0, 8000)};
  EXPECT_EQ(total_ps(p), 152'500 + 1'000'000 + 35'000);  // startup, 960 elements at 0.96 GHz, semaphore
}

TEST(Timing, IndependentInstructionsFollowAtTheIssueInterval) {
  isa::Program p = one_core();
  p.cores[0].code = {reduce(960, 0, 8000), reduce(960, 0, 8004)};
  EXPECT_EQ(total_ps(p), 2'000'000 + 152'500 + 35'000);
}

TEST(Timing, ADependentInstructionWaitsForTheResult) {
  isa::Program p = one_core();
  p.cores[0].code = {reduce(960, 0, 8000), reduce(960, 7000, 9000)};  // reads 7000 .. 10840
  EXPECT_EQ(total_ps(p), 2 * (1'000'000 + 152'500) + 35'000);
}

TEST(Timing, ADependencyAcrossALoopsIterationsCounts) {
  isa::Program p = one_core();
  p.cores[0].code = {loop(Opcode::loop_begin, 10), reduce(960, 0, 0), loop(Opcode::loop_end)};
  EXPECT_EQ(total_ps(p), 10 * (1'000'000 + 152'500) + 35'000);
}

TEST(Timing, ASemaphoreJoinsTwoEngines) {
  isa::Program p = one_core();
  Instruction producer = reduce(960, 0, 8000), consumer = producer;
  producer.posts.push_back({3, 1});
  consumer = make(Opcode::tensor_copy, Engine::scalar, tile(Memory::sbuf, DType::f32, 120, 0, 9000), {tile(Memory::sbuf, DType::f32, 120)});
  consumer.waits.push_back({3, 1});
  p.cores[0].code = {producer, consumer};
  ProgramTime t = time_program(p, trn2());
  EXPECT_EQ(t.cores[0].engines[kScalar].wait_ps, 1'000'000 + 152'500 + 35'000);
  EXPECT_EQ(t.total_ps, 1'187'500 + 191'000 + 100'200 + 35'000);
}

TEST(Timing, AWaitTakesWhatItCountsFromTheSemaphore) {
  isa::Program p = one_core();
  p.cores[0].semaphores[2].initial = 1;
  Instruction wait = make(Opcode::event_semaphore, Engine::scalar, {}, {});
  wait.waits.push_back({2, 1});
  Instruction post = make(Opcode::event_semaphore, Engine::vector, {}, {});
  post.posts.push_back({2, 1});
  p.cores[0].code = {wait, wait};
  EXPECT_THROW(time_program(p, trn2()), InternalError);  // the second finds nothing
  p.cores[0].code = {post, wait, wait};
  EXPECT_EQ(total_ps(p), 10'500 + 35'000 + 10'500 + 35'000);
}

TEST(Timing, ADeadlockNamesTheBlockedInstruction) {
  isa::Program p = one_core();
  p.cores[0].code = {reduce(10, 0, 100)};
  p.cores[0].code[0].waits.push_back({7, 2});
  try {
    time_program(p, trn2());
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("vector: tensor_reduce at instruction 0, waiting for s7>=2"));
  }
}

TEST(Timing, OneTransferIsIssueStartPayloadAndNotification) {
  isa::Program p = one_core();
  p.cores[0].code = {load(1024)};
  ProgramTime t = time_program(p, trn2());
  EXPECT_EQ(t.total_ps, 50'000 + 1'300'000 + 860'000 + 300'000);
  EXPECT_EQ(t.cores[0].dma_active_ps, 860'000);
  EXPECT_EQ(t.cores[0].dma_bytes, 128 * 1024);
  EXPECT_EQ(t.cores[0].dma_transfers, 1);
  EXPECT_EQ(t.events, 2);
}

TEST(Timing, TransfersOfAllQueuesShareTheEngines) {
  isa::Program p = one_core();
  p.cores[0].code = {load(1024, 0), load(1024, 1), load(1024, 2)};
  EXPECT_EQ(total_ps(p), 50'000 + 1'300'000 + 3 * 860'000 + 300'000);
}

TEST(Timing, SmallTransfersUseDifferentEnginesAtOnce) {
  isa::Program p = one_core();
  Instruction small = load(64);
  small.dst.partitions = small.src[0].partitions = 1;
  for (int i = 0; i < 16; ++i) {
    p.cores[0].code.push_back(small);
    p.cores[0].code.back().queue = static_cast<int8_t>(i % 8);
  }
  // Triggered 50 ns apart, 107.5 ns each on an engine of its own.
  EXPECT_EQ(total_ps(p), 16 * 50'000 + 1'300'000 + 107'500 + 300'000);
}

TEST(Timing, CopiesWithinHbmAreBoundByItsBandwidth) {
  isa::Program p = one_core();
  Instruction copy = load(32768);
  copy.dst = copy.src[0];
  copy.dst.offset = 1 << 24;
  p.cores[0].code = {copy};
  double bytes = 2.0 * 128 * 32768;
  EXPECT_NEAR(static_cast<double>(time_program(p, trn2()).cores[0].dma_active_ps), bytes / 362.5 * 1000, 2);
}

TEST(Timing, StationaryLoadsHideBehindTheStreamWhenOperandsAreReady) {
  isa::Program p = one_core();
  p.cores[0].code = {loop(Opcode::loop_begin, 1000), matmul(512), loop(Opcode::loop_end)};
  ProgramTime t = time_program(p, trn2());
  // Cold for the first 3 us of streaming, then 512 columns at 2.4 GHz each.
  int64_t cold = 8, full_ps = 213'333, cold_ps = 426'666;
  EXPECT_EQ(t.cores[0].throttled_ps, cold * cold_ps);
  EXPECT_NEAR(static_cast<double>(t.total_ps), static_cast<double>(160'333 + cold * cold_ps + (1000 - cold) * full_ps + 203'000 + 35'000), 10);
  EXPECT_EQ(t.cores[0].matmul_flops, int64_t{2} * 1000 * 128 * 128 * 512);
}

TEST(Timing, TheTensorEngineStaysColdBelowHalfUtilisation) {
  isa::Program p = one_core();
  Instruction wait = matmul(512), work = reduce(864, 0, 8000);  // 900 ns
  work.posts.push_back({1, 1});
  wait.waits.push_back({1, 1});
  p.cores[0].code = {loop(Opcode::loop_begin, 1000), work, wait, loop(Opcode::loop_end)};
  ProgramTime t = time_program(p, trn2());
  EXPECT_EQ(t.cores[0].throttled_ps, 1000 * 426'666);
  // Each matmul shows its load: 160 ns and the stream at half rate.
  EXPECT_EQ(t.cores[0].engines[kTensor].busy_ps, 1000 * (160'333 + 426'666));
}

TEST(Timing, ActivationTablesAreLoadedOnChange) {
  isa::Program p = one_core();
  auto act = [&](isa::ActFn fn) {
    Instruction in = make(Opcode::activation, Engine::scalar, tile(Memory::sbuf, DType::f32, 120, 0, 9000), {tile(Memory::sbuf, DType::f32, 120)});
    in.act = fn;
    return in;
  };
  p.cores[0].code = {act(isa::ActFn::exp), act(isa::ActFn::exp)};
  int64_t same = time_program(p, trn2()).cores[0].engines[kScalar].busy_ps;
  p.cores[0].code = {act(isa::ActFn::exp), act(isa::ActFn::silu)};
  int64_t different = time_program(p, trn2()).cores[0].engines[kScalar].busy_ps;
  EXPECT_NEAR(static_cast<double>(different - same), 1'283'000, 300'000);
  EXPECT_GT(same, 1'283'000);
}

TEST(Timing, GpsimdWaitsWhileTheVectorEngineIsInAPerformanceMode) {
  isa::Program p = one_core();
  Instruction fast = make(Opcode::tensor_copy, Engine::vector, tile(Memory::sbuf, DType::bf16, 20'000, 0, 0), {tile(Memory::sbuf, DType::bf16, 20'000, 0, 50'000)});
  Instruction slow = reduce(5000, 0, 60'000);
  Instruction select = make(Opcode::affine_select, Engine::gpsimd, tile(Memory::sbuf, DType::f32, 100, 0, 190'000), {tile(Memory::sbuf, DType::f32, 100, 0, 191'000)});
  p.cores[0].code = {fast, select};
  EXPECT_GT(time_program(p, trn2()).cores[0].engines[kGpsimd].wait_ps, 5'000'000);
  p.cores[0].code = {slow, select};
  EXPECT_EQ(time_program(p, trn2()).cores[0].engines[kGpsimd].wait_ps, 0);
}

TEST(Timing, ABarrierJoinsEverythingOfAllCores) {
  isa::Program p = one_core();
  Instruction barrier = make(Opcode::barrier, Engine::sync, {}, {});
  p.cores[0].code = {reduce(960, 0, 8000), barrier, reduce(960, 0, 8000)};
  int64_t alone = total_ps(p);
  EXPECT_EQ(alone, 2 * (1'152'500 + 35'000) + 100'000);
  p.cores.push_back(p.cores[0]);
  p.cores[1].code = {reduce(9600, 0, 48'000), barrier};
  ProgramTime t = time_program(p, trn2());
  EXPECT_EQ(t.total_ps, 10'000'000 + 187'500 + 500'000 + 1'187'500);
}

TEST(Timing, TotalsOfLoopsCountEveryIteration) {
  isa::Program p = one_core();
  p.cores[0].code = {loop(Opcode::loop_begin, 100'000), load(1024), loop(Opcode::loop_end)};
  ProgramTime t = time_program(p, trn2());
  EXPECT_EQ(t.cores[0].engines[kSync].instructions, 100'000);
  EXPECT_EQ(t.cores[0].dma_active_ps, 100'000 * int64_t{860'000});
  EXPECT_EQ(t.events + t.skipped_events, 200'000);
}

// ---- Skipping ahead is exact ------------------------------------------------------------------

void expect_equal(const isa::Program& p, const spec::Chip& chip, int64_t& skipped) {
  ProgramTime fast = time_program(p, chip), slow = time_program_event_by_event(p, chip);
  EXPECT_EQ(fast.total_ps, slow.total_ps) << p.name;
  EXPECT_EQ(fast.cores, slow.cores) << p.name;
  EXPECT_EQ(fast.events + fast.skipped_events, slow.events) << p.name;
  EXPECT_EQ(slow.skipped_events, 0);
  skipped += fast.skipped_events;
}

TEST(SkipAhead, GivesTheSameTotalsOnRandomPipelines) {
  int64_t skipped = 0, skipping = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    int64_t before = skipped;
    expect_equal(random_pipeline(seed), spec::chip(seed % 3 == 0 ? "trn1" : seed % 3 == 1 ? "trn2" : "trn3"), skipped);
    skipping += skipped > before;
    if (HasFailure()) break;
  }
  EXPECT_GT(skipping, 150);  // the test is about something
}

TEST(SkipAhead, GivesTheSameTotalsOnTheMatmulKernels) {
  int64_t skipped = 0;
  expect_equal(matmul_tile_loads(), trn2(), skipped);
  EXPECT_GT(skipped, 10'000);
  expect_equal(matmul_row_loads(), trn2(), skipped);
}

TEST(SkipAhead, AMillionIterationsAreTimedInAFewEvents) {
  isa::Program p = one_core();
  p.cores[0].code = {loop(Opcode::loop_begin, 1'000'000), reduce(100, 0, 8000), loop(Opcode::loop_end)};
  ProgramTime t = time_program(p, trn2());
  EXPECT_LT(t.events, 100);
  EXPECT_EQ(t.events + t.skipped_events, 1'000'000);
}

// ---- Timelines --------------------------------------------------------------------------------

TEST(Timeline, HasEveryEventAndTheSameTimes) {
  isa::Program p = random_pipeline(11);
  Timeline timeline;
  ProgramTime recorded = record_timeline(p, trn2(), timeline);
  EXPECT_EQ(recorded.total_ps, time_program(p, trn2()).total_ps);
  EXPECT_EQ(static_cast<int64_t>(timeline.events.size()), recorded.events);
  EXPECT_EQ(timeline.dropped, 0);
  for (size_t i = 1; i < timeline.events.size(); ++i) EXPECT_LE(timeline.events[i - 1].start_ps, timeline.events[i].start_ps);
}

TEST(Timeline, EdgesLeadToTheEventThatWasWaitedFor) {
  isa::Program p = one_core();
  Instruction first = load(1024), second = reduce(256, 0, 8000), third = second;
  first.posts.push_back({0, 1});
  second.waits.push_back({0, 1});
  second.posts.push_back({1, 1});
  third = make(Opcode::tensor_copy, Engine::scalar, tile(Memory::sbuf, DType::f32, 1, 0, 9000), {tile(Memory::sbuf, DType::f32, 1, 0, 8000)});
  third.waits.push_back({1, 1});
  p.cores[0].code = {first, second, third};
  Timeline timeline;
  record_timeline(p, trn2(), timeline);
  ASSERT_EQ(timeline.events.size(), 4u);
  const std::vector<Event>& e = timeline.events;
  EXPECT_EQ(e[0].track, 4);  // the trigger on the sync engine
  EXPECT_EQ(e[1].track, 5);  // the transfer on queue 0
  EXPECT_EQ(e[1].bytes, 128 * 1024);
  EXPECT_EQ(e[2].track, 1);
  EXPECT_EQ(e[3].track, 2);
  EXPECT_EQ(e[0].blocked_by, -1);
  EXPECT_EQ(e[1].blocked_by, 0);
  EXPECT_EQ(e[2].blocked_by, 1);
  EXPECT_EQ(e[3].blocked_by, 2);
  EXPECT_EQ(e[2].wait_ps, e[1].visible_ps);
  EXPECT_EQ(e[3].start_ps, e[2].visible_ps);
}

TEST(Timeline, KeepsToItsLimit) {
  isa::Program p = random_pipeline(11);
  Timeline timeline;
  ProgramTime t = record_timeline(p, trn2(), timeline, 100);
  EXPECT_EQ(timeline.events.size(), 100u);
  EXPECT_EQ(timeline.dropped, t.events - 100);
}

// ---- Published kernels ------------------------------------------------------------------------

struct Published {
  const char* name;
  isa::Program program;
  double total_us, dma_us, tensor_us, vector_us;
  int64_t bytes;
};

std::vector<Published> published() {
  return {{"tile_loads", matmul_tile_loads(), 8602, 7906, 4806, 176, 1'207'697'408},
          {"row_loads", matmul_row_loads(), 1801, 819, 1781, 172, 201'326'592}};
}

TEST(PublishedKernel, TimesAreWithinTenPercent) {
  for (const Published& kernel : published()) {
    ProgramTime t = time_program(kernel.program, trn2());
    const CoreTime& c = t.cores[0];
    EXPECT_NEAR(static_cast<double>(t.total_ps) / 1e6 / kernel.total_us, 1, 0.1) << kernel.name;
    EXPECT_NEAR(static_cast<double>(c.dma_active_ps) / 1e6 / kernel.dma_us, 1, 0.1) << kernel.name;
    EXPECT_NEAR(static_cast<double>(c.engines[kTensor].busy_ps) / 1e6 / kernel.tensor_us, 1, 0.1) << kernel.name;
    EXPECT_NEAR(static_cast<double>(c.engines[kVector].busy_ps) / 1e6 / kernel.vector_us, 1, 0.1) << kernel.name;
    EXPECT_NEAR(static_cast<double>(c.dma_bytes) / static_cast<double>(kernel.bytes), 1, 0.01) << kernel.name;
    EXPECT_EQ(c.matmul_flops, kernel.program.model_flops);
  }
}

TEST(PublishedKernel, ProgramsAreSound) {
  for (const Published& kernel : published()) {
    std::vector<isa::Finding> findings = isa::check(kernel.program, trn2());
    for (size_t i = 0; i < std::min<size_t>(findings.size(), 5); ++i)
      ADD_FAILURE() << kernel.name << " " << findings[i].instruction << ": " << findings[i].message;
  }
}

// The text files are these programs; OPENTRN_REGENERATE=1 writes them.
TEST(PublishedKernel, TextProgramsAreUpToDate) {
  for (const Published& kernel : published()) {
    std::string path = std::string(OPENTRN_SOURCE_DIR "/tests/text/programs/") + kernel.program.name + ".trn";
    if (std::getenv("OPENTRN_REGENERATE")) std::ofstream(path) << isa::print(kernel.program);
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    ASSERT_FALSE(text.str().empty()) << path;
    EXPECT_EQ(time_program(isa::parse(text.str()), trn2()).total_ps, time_program(kernel.program, trn2()).total_ps);
    EXPECT_EQ(isa::print(isa::parse(text.str())), isa::print(kernel.program));
  }
}

}  // namespace
}  // namespace opentrn::cost
