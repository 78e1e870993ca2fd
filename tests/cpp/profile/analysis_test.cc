#include "profile/analysis.h"

#include <gtest/gtest.h>

namespace opentrn::profile {
namespace {

constexpr int64_t kUs = 1'000'000, kMs = 1'000'000'000;  // ps

TEST(Analysis, UnionCountsOverlapsOnce) {
  EXPECT_EQ(union_ps({}), 0);
  EXPECT_EQ(union_ps({{5, 9}, {0, 3}, {2, 4}}), 8);
  EXPECT_EQ(union_ps({{0, 10}, {2, 4}, {10, 12}, {7, 7}, {9, 3}}), 12);
}

TEST(Analysis, IdleTimeHasACause) {
  // busy 0..10, idle until the host dispatches at 30, then idle until 50 for another reason
  const LaunchTime launches[] = {{0, 10, 0}, {50, 60, 35}, {30, 40, 30}};
  DeviceUse use = device_use(launches);
  EXPECT_EQ(use.span_ps, 60);
  EXPECT_EQ(use.busy_ps, 30);
  EXPECT_EQ(use.idle_host_ps, 20);
  EXPECT_EQ(use.idle_other_ps, 10);
  EXPECT_EQ(device_use({}).span_ps, 0);
}

TEST(Analysis, TracksOfATimeline) {
  cost::Timeline timeline;
  timeline.events = {{.core = 1, .track = 0, .start_ps = 0, .end_ps = 10, .wait_ps = 2},
                     {.core = 0, .track = 5, .start_ps = 0, .end_ps = 10, .bytes = 64},
                     {.core = 0, .track = 5, .start_ps = 5, .end_ps = 20, .bytes = 64}};
  std::vector<TrackUse> uses = track_use(timeline);
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].track, 5);
  EXPECT_EQ(uses[0].busy_ps, 20);
  EXPECT_EQ(uses[0].bytes, 128);
  EXPECT_EQ(uses[0].events, 2);
  EXPECT_EQ(uses[1].core, 1);
  EXPECT_EQ(uses[1].wait_ps, 2);
}

TEST(Analysis, HostDispatchBoundsManySmallOperators) {
  StepTotals t{.step_ps = 55 * kMs, .device_ps = 8 * kMs, .dispatch_ps = 52 * kMs, .launches = 945, .cores = 2};
  Bound b = bound(t);
  EXPECT_EQ(b.limit, Limit::host_dispatch);
  EXPECT_EQ(b.sentence,
            "Host dispatch bounds the step: 52.00 ms of 55.00 ms (95 %) go into dispatching 945 programs, which keep the "
            "device busy for 8.000 ms (15 %); torch.compile or larger operators would shorten it.");
}

TEST(Analysis, TheBusiestEngineBoundsTheDevice) {
  StepTotals t{.step_ps = 10 * kMs, .device_ps = 9 * kMs, .dispatch_ps = kMs, .launches = 3, .cores = 2};
  t.engine_busy_ps = {14 * kMs, 4 * kMs, 2 * kMs, 0, 0};
  t.dma_busy_ps = 9 * kMs;
  EXPECT_EQ(bound(t).sentence,
            "The tensor engine bounds the step: it is busy for 78 % of 9.000 ms of device time (90 % of the step); "
            "vector 22 %, scalar 11 %, GpSimd 0 %, DMA 50 %.");
  t.dma_busy_ps = 17 * kMs;
  EXPECT_EQ(bound(t).limit, Limit::dma);
}

TEST(Analysis, LatencyBoundsWhenNothingIsBusy) {
  StepTotals t{.step_ps = 100 * kUs, .device_ps = 90 * kUs, .launches = 9};
  t.engine_busy_ps = {10 * kUs, 20 * kUs, 0, 0, 0};
  Bound b = bound(t);
  EXPECT_EQ(b.limit, Limit::latency);
  EXPECT_NEAR(b.share, 2.0 / 9, 1e-12);
  t.transfer_ps = 95 * kUs;
  EXPECT_EQ(bound(t).limit, Limit::host_transfer);
  EXPECT_EQ(bound({}).sentence, "Nothing ran on the device.");
}

TEST(Analysis, TimesHaveReadableUnits) {
  EXPECT_EQ(format_time(1'234'000), "1.234 us");
  EXPECT_EQ(format_time(56'700'000'000), "56.70 ms");
  EXPECT_EQ(format_time(999'990'000), "1.000 ms");
  EXPECT_EQ(format_time(2'100'000'000'000), "2.100 s");
}

}  // namespace
}  // namespace opentrn::profile
