#include "runtime/clock.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace opentrn::runtime {
namespace {

constexpr int64_t kUs = 1'000'000;  // ps

class ClockTest : public testing::Test {
 protected:
  ClockTest() {
    chip.dispatch_eager_us = 50;
    chip.launch_compiled_us = 100;
    chip.launch_us = 2;
    chip.host_to_device_gb_s = 10;
    chip.host_transfer_latency_us = 3;
    chip.dma_start_ns = 1000;
    chip.dma_complete_ns = 500;
    chip.dma_engines = 16;
    chip.dma_bytes_per_ns_per_engine = 10;
    reset_host_clock();
  }
  spec::Chip chip;
};

TEST_F(ClockTest, HostDispatchHidesShortPrograms) {
  Clock clock(chip, 1);
  Span first = clock.launch(0, 10 * kUs, Dispatch::eager);
  EXPECT_EQ(first.start_ps, 50 * kUs);
  EXPECT_EQ(first.end_ps, 62 * kUs);
  Span second = clock.launch(0, 10 * kUs, Dispatch::eager);
  EXPECT_EQ(second.start_ps, 100 * kUs) << "the host is the later hand";
  EXPECT_EQ(host_now_ps(), 100 * kUs);
}

TEST_F(ClockTest, LongProgramsQueueOnTheCoreWhateverTheStream) {
  Clock clock(chip, 1);
  StreamId other = clock.new_stream();
  Span first = clock.launch(0, 500 * kUs, Dispatch::compiled);
  Span second = clock.launch(other, 10 * kUs, Dispatch::none);
  EXPECT_EQ(first.end_ps, 602 * kUs);
  EXPECT_EQ(second.host_ps, 100 * kUs);
  EXPECT_EQ(second.start_ps, 602 * kUs);
  EXPECT_EQ(clock.core_ps(), 614 * kUs);
}

TEST_F(ClockTest, TransfersRunBesideTheCore) {
  Clock clock(chip, 1);
  StreamId copies = clock.new_stream();
  clock.launch(0, 500 * kUs, Dispatch::none);
  Span copy = clock.transfer(copies, 100'000);
  EXPECT_EQ(copy.start_ps, 0);
  EXPECT_EQ(copy.end_ps, 13 * kUs) << "3 us latency, 100 kB at 10 GB/s";
  Span behind = clock.transfer(0, 0);
  EXPECT_EQ(behind.start_ps, 502 * kUs) << "in order on its own stream";
  Span fill = clock.fill(copies, 160'000);
  EXPECT_EQ(fill.end_ps - fill.start_ps, 1'500'000 + 1'000'000);
  EXPECT_EQ(clock.last_ps(), behind.end_ps);
}

TEST_F(ClockTest, StreamsWaitForEventsAndHostsForWork) {
  Clock clock(chip, 1);
  StreamId other = clock.new_stream();
  clock.delay_stream(other, 40 * kUs);
  clock.delay_stream(other, 30 * kUs);
  EXPECT_EQ(clock.stream_ps(other), 40 * kUs);
  host_waits_until(70 * kUs);
  host_waits_until(60 * kUs);
  EXPECT_EQ(host_now_ps(), 70 * kUs);
  EXPECT_THROW(clock.stream_ps(2), UserError);
  EXPECT_THROW(clock.launch(-1, 0, Dispatch::none), UserError);
}

}  // namespace
}  // namespace opentrn::runtime
