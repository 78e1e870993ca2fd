// Execution on several threads: who executes, in which order, and what plans may assume.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fenv.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "programs.h"
#include "runtime/kernel.h"

namespace opentrn::runtime {
namespace {

class EngineTest : public RuntimeTest {
 protected:
  void restart_with(const char* host_plan, int threads) {
    set("OPENTRN_HOST_PLAN", host_plan);
    set("OPENTRN_NUM_THREADS", std::to_string(threads));
    restart();
  }
  ~EngineTest() override {
    set("OPENTRN_HOST_PLAN", "check");
    unsetenv("OPENTRN_NUM_THREADS");
  }
  void add(Device& device, const std::shared_ptr<const Kernel>& kernel, void* x, void* y, double value) {
    void* buffers[] = {x, y};
    exec::ScalarValue scalars[] = {{exec::ScalarValue::Kind::real, value, 0}};
    device.launch(0, kernel, {buffers, scalars});
  }
};

TEST_F(EngineTest, PlansAndInterpreterGiveTheSameOnAnyNumberOfThreads) {
  constexpr int64_t kBytes = 2 * 8 * 128 * 128 * 4;
  for (const char* host_plan : {"on", "off", "check"})
    for (int threads : {1, 2, 4}) {
      restart_with(host_plan, threads);
      Device& device = Device::get(0);
      auto kernel = kernel_for(add_program(2, 8, 128, true));
      EXPECT_EQ(kernel->plan == nullptr, std::string(host_plan) == "off");
      void* x = device.memory().allocate(kBytes, -1);
      device.fill(0, x, 0, kBytes);
      for (int i = 0; i < 60; ++i) {
        add(device, kernel, x, x, 1);
        if (i % 20 == 0) device.synchronize();
      }
      std::vector<float> values(kBytes / 4);
      device.copy_to_host(0, values.data(), x, kBytes, true);
      for (float value : values) ASSERT_EQ(value, 60.f);
      const CacheStats stats = cache_stats();
      EXPECT_EQ(stats.plans, kernel->plan ? 1 : 0);
      EXPECT_EQ(stats.plans_checked, std::string(host_plan) == "check" ? 1 : 0);
      EXPECT_EQ(stats.plans_unequal, 0);
    }
}

TEST_F(EngineTest, LargeCopiesAndFillsAreWhole) {
  for (int threads : {1, 3}) {
    restart_with("on", threads);
    Device& device = Device::get(0);
    constexpr int64_t kBytes = (5 << 20) + 123;
    auto* x = static_cast<std::byte*>(device.memory().allocate(kBytes, -1));
    std::vector<unsigned char> there(kBytes), back(kBytes);
    for (size_t i = 0; i < there.size(); ++i) there[i] = static_cast<unsigned char>(i * 7 + i / 4096);
    for (bool blocking : {true, false}) {
      device.fill(0, x, 9, kBytes);
      device.copy_to_device(0, x, there.data(), kBytes - 1, blocking);
      device.copy_to_host(0, back.data(), x, kBytes, blocking);
      device.synchronize();
      EXPECT_EQ(std::memcmp(there.data(), back.data(), kBytes - 1), 0);
      EXPECT_EQ(back.back(), 9);
    }
  }
}

TEST_F(EngineTest, TheNumberOfThreadsChangesWhileWorkRuns) {
  unsetenv("OPENTRN_NUM_THREADS");
  restart();
  Device& device = Device::get(0);
  auto kernel = kernel_for(add_program(2, 8, 128, true));
  constexpr int64_t kBytes = 2 * 8 * 128 * 128 * 4;
  void* x = device.memory().allocate(kBytes, -1);
  device.fill(0, x, 0, kBytes);
  for (int i = 0; i < 40; ++i) {
    set_threads(1 + i * 3 % 5);
    add(device, kernel, x, x, 1);
    if (i % 7 == 0) device.synchronize();
  }
  float value = 0;
  device.copy_to_host(0, &value, x, 4, true);
  EXPECT_EQ(value, 40);
  set_threads(2);
}

// x[1:] + 1 -> x[:-1] and back: the plan's groups may not be used, the result is that of the program's order.
TEST_F(EngineTest, UndeclaredOverlapRunsInTheProgramsOrder) {
  std::vector<float> results[2];
  for (bool plan : {false, true}) {
    restart_with(plan ? "on" : "off", plan ? 2 : 1);
    Device& device = Device::get(0);
    auto kernel = kernel_for(add_program(2, 4, 128, false));
    constexpr int64_t kBytes = 2 * 4 * 128 * 128 * 4;
    auto* x = static_cast<std::byte*>(device.memory().allocate(kBytes + 4096, -1));
    std::vector<float> values((kBytes + 4096) / 4);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
    device.copy_to_device(0, x, values.data(), kBytes + 4096, true);
    for (int i = 0; i < 3; ++i) add(device, kernel, x, x + 4096, 1);
    results[plan].resize(values.size());
    device.copy_to_host(0, results[plan].data(), x, kBytes + 4096, true);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(EngineTest, ResultsDoNotDependOnTheHostThreadsRounding) {
  restart_with("on", 2);
  Device& device = Device::get(0);
  auto kernel = kernel_for(add_program(2, 8, 128, true));
  constexpr int64_t kBytes = 2 * 8 * 128 * 128 * 4;
  void* x = device.memory().allocate(kBytes, -1);
  std::vector<float> values(kBytes / 4, 1.f);
  device.copy_to_device(0, x, values.data(), kBytes, true);
  fesetround(FE_UPWARD);
  add(device, kernel, x, x, 1e-10);
  device.copy_to_host(0, values.data(), x, kBytes, true);
  EXPECT_EQ(fegetround(), FE_UPWARD);
  fesetround(FE_TONEAREST);
  for (float value : values) ASSERT_EQ(value, 1.f);
}

}  // namespace
}  // namespace opentrn::runtime
