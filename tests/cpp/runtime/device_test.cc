#include "runtime/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <tuple>

#include "base/error.h"
#include "programs.h"
#include "runtime/clock.h"
#include "runtime/origin.h"

namespace opentrn::runtime {
namespace {

using testing::HasSubstr;

exec::ScalarValue real(double value) { return {exec::ScalarValue::Kind::real, value, 0}; }

class DeviceTest : public RuntimeTest {
 protected:
  // x += value
  void add(Device& device, StreamId stream, const std::shared_ptr<const Kernel>& kernel, void* x, double value,
           int32_t origin = -1) {
    void* buffers[] = {x, x};
    exec::ScalarValue scalars[] = {real(value)};
    device.launch(stream, kernel, {buffers, scalars, origin, Dispatch::eager});
  }
  std::vector<float> read(Device& device, const void* x, size_t count) {
    std::vector<float> values(count);
    device.copy_to_host(0, values.data(), x, static_cast<int64_t>(count * 4), true);
    return values;
  }
};

TEST_F(DeviceTest, LaunchesRunInOrderAndValuesComeBack) {
  for (auto [threads, cores, blocks] : {std::tuple{1, 1, 5}, {1, 2, 5}, {2, 1, 1}, {2, 1, 5}, {2, 2, 1}, {2, 2, 5}}) {
    set("OPENTRN_NUM_THREADS", std::to_string(threads));
    restart();
    Device& device = Device::get(0);
    auto kernel = kernel_for(add_program(cores, blocks, 16, true));
    const size_t count = static_cast<size_t>(cores * blocks * 128 * 16);
    void* x = device.memory().allocate(static_cast<int64_t>(count * 4), -1);
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
    device.copy_to_device(0, x, values.data(), static_cast<int64_t>(count * 4), true);
    std::fill(values.begin(), values.end(), -1.f);  // the copy is done or staged
    for (int i = 0; i < 100; ++i) add(device, 0, kernel, x, i % 2 ? 1 : 2);
    values = read(device, x, count);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], static_cast<float>(i) + 150) << i;
    device.memory().free(x);
  }
  unsetenv("OPENTRN_NUM_THREADS");
}

TEST_F(DeviceTest, KernelsOutsideTheCacheStayAliveUntilTheyHaveRun) {
  Device& device = Device::get(0);
  void* x = device.memory().allocate(128 * 16 * 4, -1);
  device.fill(0, x, 0, 128 * 16 * 4);
  for (int i = 0; i < 200; ++i) {
    std::shared_ptr<const Kernel> kernel = make_kernel(add_program(1, 1, 16, true));
    add(device, 0, kernel, x, 1);
  }
  EXPECT_EQ(read(device, x, 1)[0], 200);
}

TEST_F(DeviceTest, TheClockFollowsHostStreamAndCore) {
  Device& device = Device::get(0);
  const spec::Chip& chip = device.chip();
  auto kernel = kernel_for(add_program(2, 4, 512, true));
  const int64_t dispatch = std::llround(chip.dispatch_eager_us * 1e6);
  const int64_t duration = std::llround(chip.launch_us * 1e6) + kernel->time.total_ps;
  void* x = device.memory().allocate(2 * 4 * 128 * 512 * 4, -1);
  EventId start = device.record(0);
  for (int i = 0; i < 3; ++i) add(device, 0, kernel, x, 1);
  EventId end = device.record(0);
  EXPECT_EQ(device.host_ps(), 3 * dispatch);
  int64_t core = 0;
  for (int i = 1; i <= 3; ++i) core = std::max(core, i * dispatch) + duration;
  EXPECT_NEAR(device.elapsed_ms(start, end), static_cast<double>(core) * 1e-9, 1e-12);
  Totals t = device.totals();
  EXPECT_EQ(t.launches, 3);
  EXPECT_EQ(t.device_ps, 3 * duration);
  EXPECT_EQ(t.core_ps, core);
  EXPECT_EQ(t.hbm_bytes, 3 * kernel->hbm_bytes);
  EXPECT_EQ(kernel->hbm_bytes, 2 * 2 * 4 * 128 * 512 * 4);
  device.synchronize(end);
  EXPECT_EQ(device.host_ps(), core);
  EXPECT_TRUE(device.query(end));
  EXPECT_EQ(device.host_ps(), core + kQueryPs);
  device.release(start);
  EXPECT_THROW(device.elapsed_ms(start, end), UserError);
}

TEST_F(DeviceTest, PollingEnds) {
  Device& device = Device::get(0);
  auto kernel = kernel_for(add_program(2, 64, 512, true));
  void* x = device.memory().allocate(2 * 64 * 128 * 512 * 4, -1);
  add(device, 0, kernel, x, 1);
  EventId end = device.record(0);
  int polls = 1;
  while (!device.query(end)) ++polls;
  EXPECT_GT(polls, 10);
  EXPECT_TRUE(device.query_stream(0));
}

TEST_F(DeviceTest, StreamsWaitForEachOther) {
  Device& device = Device::get(0);
  StreamId side = device.new_stream(0);
  std::vector<char> host(100'000);
  void* x = device.memory().allocate(100'000, -1);
  device.copy_to_device(side, x, host.data(), 100'000, false);
  EventId copied = device.record(side);
  EventId before = device.record(0);
  device.wait_stream(0, copied);
  EventId after = device.record(0);
  EXPECT_DOUBLE_EQ(device.elapsed_ms(copied, after), 0);
  EXPECT_GT(device.elapsed_ms(before, after), 0);
  device.synchronize();
}

TEST_F(DeviceTest, WorkOnOneDeviceWaitsForAnother) {
  Device& a = Device::get(0);
  Device& b = Device::get(1);
  auto kernel = kernel_for(add_program(2, 64, 512, true));
  const int64_t bytes = 2 * 64 * 128 * 512 * 4;
  void* x = a.memory().allocate(bytes, -1);
  std::vector<float> host(static_cast<size_t>(bytes / 4));
  a.fill(0, x, 0, bytes);
  for (int i = 0; i < 5; ++i) add(a, 0, kernel, x, 1);
  a.copy_to_host(0, host.data(), x, bytes, false);
  EventId ready = a.record(0);
  b.wait_stream(0, ready);
  void* y = b.memory().allocate(bytes, -1);
  b.copy_to_device(0, y, host.data(), bytes, false);
  add(b, 0, kernel, y, 1);
  std::vector<float> result = read(b, y, host.size());
  EXPECT_EQ(result.front(), 6);
  EXPECT_EQ(result.back(), 6);
}

TEST_F(DeviceTest, AnIndexOutOfRangeIsRaisedAtTheNextWaitOnce) {
  set_origin_describer([](int32_t origin) { return "at train.py:" + std::to_string(origin); });
  Device& device = Device::get(0);
  auto gather = kernel_for(gather_program(10));
  void* table = device.memory().allocate(640, -1);
  void* y = device.memory().allocate(128 * 64, -1);
  void* indices = device.memory().allocate(512, -1);
  std::vector<float> rows(160);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i / 16);
  std::vector<int32_t> index(128, 7);
  device.copy_to_device(0, table, rows.data(), 640, true);
  device.copy_to_device(0, indices, index.data(), 512, true);
  void* buffers[] = {table, indices, y};
  device.launch(0, gather, {buffers, {}, 41, Dispatch::eager});
  EXPECT_EQ(read(device, y, 1)[0], 7);
  EventId fine = device.record(0);
  index[5] = 12;
  device.copy_to_device(0, indices, index.data(), 512, true);
  device.launch(0, gather, {buffers, {}, 42, Dispatch::eager});
  device.launch(0, gather, {buffers, {}, 43, Dispatch::eager});
  device.synchronize(fine);  // work before the fault is not to blame
  std::string text;
  try {
    device.synchronize();
  } catch (const AsyncError& error) {
    text = error.what();
  }
  set_origin_describer(nullptr);
  EXPECT_THAT(text, HasSubstr("12"));
  EXPECT_THAT(text, HasSubstr("gather on neuron:0, at train.py:42 (1 more launches failed after it)"));
  device.synchronize();  // reported once; the device stays usable
  index[5] = 3;
  device.copy_to_device(0, indices, index.data(), 512, true);
  device.launch(0, gather, {buffers, {}, 44, Dispatch::eager});
  EXPECT_EQ(read(device, y, 128 * 16)[5 * 16], 3);
}

TEST_F(DeviceTest, ChecksArguments) {
  Device& device = Device::get(0);
  auto kernel = kernel_for(add_program(1, 1, 16, true));
  const int64_t bytes = 128 * 16 * 4;
  void* x = device.memory().allocate(bytes, -1);
  void* y = device.memory().allocate(bytes, -1);
  std::vector<float> host(128 * 16);
  exec::ScalarValue scalars[] = {real(1)};
  auto launch = [&](std::vector<void*> buffers, std::span<const exec::ScalarValue> values) -> std::string {
    try {
      device.launch(0, kernel, {buffers, values});
    } catch (const UserError& error) {
      return error.what();
    }
    return "launched";
  };
  EXPECT_THAT(launch({x}, scalars), HasSubstr("1 buffers and 1 scalars given, the program takes 2 and 1"));
  EXPECT_THAT(launch({x, y}, scalars), HasSubstr("must have its address"));
  EXPECT_THAT(launch({host.data(), host.data()}, scalars), HasSubstr("it is host memory"));
  void* end = device.memory().base() + device.memory().capacity() - 512;
  EXPECT_THAT(launch({end, end}, scalars), HasSubstr("it reaches beyond the end"));
  EXPECT_THROW(device.copy_to_device(0, host.data(), host.data(), 4, true), UserError);
  EXPECT_THROW(device.copy_to_host(9, host.data(), x, 4, true), UserError) << "no such stream";
}

TEST_F(DeviceTest, PredictTakesTheSameNanosecondsAndReadsZeros) {
  int64_t host_ps[2], core_ps[2];
  for (bool predict : {false, true}) {
    set("OPENTRN_MODE", predict ? "predict" : "simulate");
    restart();
    Device& device = Device::get(0);
    StreamId side = device.new_stream(0);
    auto kernel = kernel_for(add_program(2, 3, 256, true));
    const int64_t bytes = 2 * 3 * 128 * 256 * 4;
    void* x = device.memory().allocate(bytes, -1);
    std::vector<float> values(static_cast<size_t>(bytes / 4), 1.f);
    device.copy_to_device(side, x, values.data(), bytes, true);
    EventId copied = device.record(side);
    device.wait_stream(0, copied);
    for (int i = 0; i < 10; ++i) add(device, 0, kernel, x, 1);
    EventId done = device.record(0);
    while (!device.query(done)) {
    }
    std::vector<float> read_back = read(device, x, values.size());
    EXPECT_EQ(read_back.back(), predict ? 0.f : 11.f);
    bool called = false;
    device.call_back([](void* flag) { *static_cast<bool*>(flag) = true; }, &called);
    device.synchronize();
    EXPECT_TRUE(called);
    host_ps[predict] = device.host_ps();
    core_ps[predict] = device.totals().core_ps;
  }
  EXPECT_EQ(host_ps[0], host_ps[1]);
  EXPECT_EQ(core_ps[0], core_ps[1]);
}

TEST_F(DeviceTest, BlockingLaunchesWaitAndRaise) {
  set("NEURON_LAUNCH_BLOCKING", "1");
  restart();
  Device& device = Device::get(0);
  auto kernel = kernel_for(add_program(1, 1, 16, true));
  void* x = device.memory().allocate(128 * 16 * 4, -1);
  add(device, 0, kernel, x, 1);
  EXPECT_EQ(device.host_ps(), device.totals().core_ps);
}

TEST_F(DeviceTest, RecordsTheLaunchesOfTheLastSteps) {
  Device& device = Device::get(0);
  auto kernel = kernel_for(add_program(1, 1, 16, true));
  void* x = device.memory().allocate(128 * 16 * 4, -1);
  set_recording(Recording::last_steps, 2);
  for (int step = 0; step < 5; ++step) {
    for (int i = 0; i <= step; ++i) add(device, 0, kernel, x, 1, step);
    mark_step();
  }
  std::vector<LaunchRecord> records = launch_records();
  ASSERT_EQ(records.size(), 4u + 5u);
  EXPECT_EQ(records.front().origin, 3);
  EXPECT_EQ(records.front().kernel, kernel->id);
  EXPECT_GE(records.back().start_ps, records.front().end_ps);
  EXPECT_EQ(kernel_by_id(records.front().kernel)->name, kernel->name);
  set_recording(Recording::off);
  EXPECT_TRUE(launch_records().empty());
}

TEST_F(DeviceTest, AForkedChildIsTold) {
  Device& device = Device::get(0);
  auto kernel = kernel_for(add_program(1, 1, 16, true));
  void* x = device.memory().allocate(128 * 16 * 4, -1);
  add(device, 0, kernel, x, 1);
  pid_t child = fork();
  if (child == 0) {
    int failures = 0;
    auto refused = [&](auto call) {
      try {
        call();
        ++failures;
      } catch (const UserError& error) {
        if (!std::strstr(error.what(), "Cannot re-initialize Neuron runtime in forked subprocess")) ++failures;
      }
    };
    refused([] { Device::get(0); });
    refused([&] { device.synchronize(); });
    refused([&] { add(device, 0, kernel, x, 1); });
    refused([&] { device.memory().allocate(512, -1); });
    refused([] { kernel_for(add_program(1, 1, 16, true)); });
    device.memory().free(x);  // destructors still run
    device.release(1);
    _exit(in_forked_child() ? failures : 100);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(in_forked_child());
  device.synchronize();
}

TEST_F(DeviceTest, TheProcessExitsWithWorkInTheQueue) {
  shut_down_devices();
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Device& device = Device::get(0);
        auto kernel = kernel_for(add_program(2, 64, 512, true));
        void* x = device.memory().allocate(2 * 64 * 128 * 512 * 4, -1);
        for (int i = 0; i < 2000; ++i) add(device, 0, kernel, x, 1);
        std::exit(7);
      },
      testing::ExitedWithCode(7), "");
}

TEST_F(DeviceTest, AHostAccessToDeviceMemoryIsExplained) {
  shut_down_devices();
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        set_origin_describer([](int32_t origin) { return "aten::empty at train.py:" + std::to_string(origin); });
        Device& device = Device::get(0);
        auto* x = static_cast<volatile char*>(device.memory().allocate(5000, 17));
        x[4999] = 1;
      },
      "host code accessed the memory of neuron:0.*the tensor has 5120 bytes and comes from aten::empty at train.py:17");
}

TEST_F(DeviceTest, FourThreadsSubmitRecordAndFree) {
  Device& device = Device::get(0);
  auto small = kernel_for(add_program(1, 1, 16, true));
  auto large = kernel_for(add_program(2, 2, 128, true));
  std::vector<std::thread> threads;
  std::atomic<int> callbacks{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      StreamId stream = device.new_stream(0);
      for (int round = 0; round < 12; ++round) {
        const auto& kernel = (round + t) % 3 ? small : large;
        const int64_t bytes = kernel->arguments[0].bytes;
        void* x = device.memory().allocate(bytes, t);
        std::vector<float> values(static_cast<size_t>(bytes / 4), static_cast<float>(t));
        device.copy_to_device(stream, x, values.data(), bytes, true);
        for (int i = 0; i < 20; ++i) {
          // Memory that is freed with work in flight, taken by other threads at once.
          void* temporary = device.memory().allocate(bytes, t);
          device.fill(stream, temporary, 0, bytes);
          add(device, stream, kernel, temporary, 1);
          add(device, stream, kernel, x, 1);
          device.memory().free(temporary);
        }
        EventId event = device.record(stream);
        device.wait_stream(0, event);
        device.call_back([](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &callbacks);
        if (round % 2) device.synchronize(event);
        std::vector<float> result(values.size());
        device.copy_to_host(stream, result.data(), x, bytes, round % 3 != 0);
        if (round % 3 == 0) device.synchronize_stream(stream);
        ASSERT_EQ(result.front(), static_cast<float>(t + 20));
        ASSERT_EQ(result.back(), static_cast<float>(t + 20));
        device.release(event);
        device.memory().free(x);
        if (round == 5 && t == 0) device.memory().empty_cache();
      }
    });
  for (auto& thread : threads) thread.join();
  device.synchronize();
  EXPECT_EQ(callbacks.load(), 48);
  EXPECT_EQ(device.memory().stats().allocation.current, 0);
}

TEST_F(DeviceTest, LaunchingIsQuick) {
  if (kSanitized) GTEST_SKIP() << "times are those of the sanitizer";
  set("OPENTRN_HOST_PLAN", "on");
  restart();
  set("OPENTRN_HOST_PLAN", "check");
  Device& device = Device::get(0);
  auto kernel = kernel_for(add_program(1, 1, 16, true));
  void* x = device.memory().allocate(128 * 16 * 4, -1);
  auto time = [&](int launches) {
    device.synchronize();
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; ++i) add(device, 0, kernel, x, 1);
    std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    return spent.count() / launches;
  };
  double submit = 1e9;
  for (int i = 0; i < 20; ++i) submit = std::min(submit, time(500));  // fits into the queue: the host's time alone
  auto start = std::chrono::steady_clock::now();
  time(20'000);
  device.synchronize();
  std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  std::printf("launch: %.0f ns on the host; %.2f us per launch of 8 KiB with execution\n", submit,
              spent.count() / 20'000);
  EXPECT_LT(submit, 3'000);
}

}  // namespace
}  // namespace opentrn::runtime
