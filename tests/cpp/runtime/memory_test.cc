#include "runtime/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "programs.h"
#include "runtime/origin.h"

namespace opentrn::runtime {
namespace {

using testing::HasSubstr;
constexpr int64_t kMiB = 1 << 20;

// Resident pages of a memory range.
int64_t resident_bytes(const void* address, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> present(static_cast<size_t>(bytes / page));
  if (mincore(const_cast<void*>(address), static_cast<size_t>(bytes), present.data()) != 0) return -1;
  int64_t count = 0;
  for (unsigned char p : present) count += p & 1;
  return count * page;
}

TEST(DeviceMemory, AddressesAreInaccessibleAndTheHostViewHoldsTheBytes) {
  DeviceMemory memory(100, 64 * kMiB, true);
  auto* address = static_cast<std::byte*>(memory.allocate(1000, -1));
  EXPECT_TRUE(memory.contains(address));
  EXPECT_EQ(memory.holder(address + 900).address, reinterpret_cast<uint64_t>(address));
  EXPECT_EQ(memory.holder(address + 1024).bytes, 0);
  EXPECT_EQ(device_of(address), 100);
  EXPECT_EQ(device_of(address + 64 * kMiB), -1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 512, 0u);
  std::memset(memory.host(address), 0x5a, 1000);
  EXPECT_EQ(memory.host(address + 999)[0], std::byte{0x5a});
  // The kernel refuses to read through the address a tensor carries.
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  EXPECT_EQ(write(pipes[1], address, 1), -1);
  EXPECT_EQ(errno, EFAULT);
  close(pipes[0]);
  close(pipes[1]);
  memory.free(address);
}

TEST(DeviceMemory, PredictModeHasAddressesOnly) {
  DeviceMemory memory(100, int64_t{24} << 30, false);
  void* address = memory.allocate(int64_t{20} << 30, -1);
  ASSERT_NE(address, nullptr);
  EXPECT_EQ(memory.host(address), nullptr);
  EXPECT_EQ(memory.stats().allocated_bytes.current, int64_t{20} << 30);
  memory.free(address);
}

TEST(DeviceMemory, NothingForZeroBytes) {
  DeviceMemory memory(100, 4 * kMiB, false);
  EXPECT_EQ(memory.allocate(0, -1), nullptr);
  memory.free(nullptr);
  EXPECT_EQ(memory.stats().allocation.current, 0);
  EXPECT_THROW(memory.free(memory.base() + 512), InternalError);
}

TEST(DeviceMemory, CountsBytesAndBlocks) {
  DeviceMemory memory(100, 64 * kMiB, false);
  void* a = memory.allocate(1000, -1);
  void* b = memory.allocate(3 * kMiB, -1);
  MemoryStats s = memory.stats();
  EXPECT_EQ(s.allocated_bytes.current, 1024 + 3 * kMiB);
  EXPECT_EQ(s.requested_bytes.current, 1000 + 3 * kMiB);
  EXPECT_EQ(s.allocation.current, 2);
  EXPECT_EQ(s.reserved_bytes.current, 6 * kMiB) << "pieces of 2 MiB that were touched";
  EXPECT_EQ(s.capacity_bytes, 64 * kMiB);
  memory.free(b);
  memory.reset_peak();
  s = memory.stats();
  EXPECT_EQ(s.allocated_bytes.peak, 1024);
  EXPECT_EQ(s.allocated_bytes.freed, 3 * kMiB);
  EXPECT_EQ(s.reserved_bytes.current, 6 * kMiB);
  memory.reset_accumulated();
  EXPECT_EQ(memory.stats().allocated_bytes.allocated, 0);
  memory.free(a);
}

TEST(DeviceMemory, EmptyCacheReturnsPagesAfterPendingWork) {
  DeviceMemory memory(100, 64 * kMiB, true);
  bool drained = false;
  void* kept = memory.allocate(4 * kMiB, -1);
  void* freed = memory.allocate(8 * kMiB, -1);
  std::memset(memory.host(kept), 1, 4 * kMiB);
  std::memset(memory.host(freed), 1, 8 * kMiB);
  memory.free(freed);
  memory.set_drain([&] {
    drained = true;
    EXPECT_EQ(resident_bytes(memory.host(memory.base()), 64 * kMiB), 12 * kMiB);
  });
  memory.empty_cache();
  EXPECT_TRUE(drained);
  EXPECT_EQ(resident_bytes(memory.host(memory.base()), 64 * kMiB), 4 * kMiB);
  EXPECT_EQ(memory.stats().reserved_bytes.current, 4 * kMiB);
  EXPECT_EQ(memory.host(kept)[4 * kMiB - 1], std::byte{1});
  EXPECT_EQ(memory.allocate(60 * kMiB, -1), freed) << "the range is whole again";
}

TEST(DeviceMemory, OutOfMemoryNamesTheLargestHolders) {
  set_origin_describer([](int32_t origin) {
    return std::string(origin == 1 ? "aten::mm at train.py:12" : "aten::relu at train.py:30");
  });
  DeviceMemory memory(100, 64 * kMiB, false);
  memory.allocate(30 * kMiB, 1);
  void* hole = memory.allocate(4 * kMiB, 2);
  memory.allocate(20 * kMiB, 1);
  memory.allocate(6 * kMiB, 2);
  memory.free(hole);
  std::string text;
  try {
    memory.allocate(8 * kMiB, 2);
  } catch (const OutOfMemory& error) {
    text = error.what();
  }
  set_origin_describer(nullptr);
  EXPECT_EQ(text,
            "Neuron out of memory. Tried to allocate 8.00 MiB on neuron:100. Capacity 64.0 MiB; allocated 56.0 MiB in 3 "
            "blocks (56.0 MiB requested); free 8.00 MiB, largest contiguous free range 4.00 MiB (fragmentation 50 %).\n"
            "Largest holders:\n"
            "  50.0 MiB in 2 tensors (largest 30.0 MiB) from aten::mm at train.py:12\n"
            "  6.00 MiB in 1 tensor (largest 6.00 MiB) from aten::relu at train.py:30\n"
            "Requested by aten::relu at train.py:30.");
  EXPECT_EQ(memory.stats().num_ooms, 1);
  EXPECT_THROW(memory.allocate(int64_t{1} << 60, -1), OutOfMemory);
  std::vector<Holder> holders = memory.holders(2);
  ASSERT_EQ(holders.size(), 2u);
  EXPECT_EQ(holders[0].bytes, 30 * kMiB);
  EXPECT_EQ(holders[1].origin, 1);
}

TEST(DeviceMemory, ThreadsAllocateWhileTheCacheIsEmptied) {
  DeviceMemory memory(100, 32 * kMiB, true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const int64_t bytes = 512 << ((i + t) % 13);
        void* address = memory.allocate(bytes, t);
        memory.host(address)[0] = std::byte(t);
        memory.host(address)[bytes - 1] = std::byte(t);
        ASSERT_EQ(memory.host(address)[0], std::byte(t));
        memory.free(address);
      }
    });
  for (int i = 0; i < 50; ++i) memory.empty_cache();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(memory.stats().allocated_bytes.current, 0);
}

TEST(DeviceMemory, AllocatingAndFreeingIsQuick) {
  if (kSanitized) GTEST_SKIP() << "times are those of the sanitizer";
  DeviceMemory memory(100, int64_t{1} << 30, false);
  for (int64_t bytes : {512, 100'000, 8 << 20}) {
    double best = 1e9;
    for (int repetition = 0; repetition < 5; ++repetition) {
      auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 10'000; ++i) memory.free(memory.allocate(bytes, -1));
      std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
      best = std::min(best, time.count() / 10'000);
    }
    std::printf("allocate and free %8lld bytes: %.0f ns\n", static_cast<long long>(bytes), best);
    EXPECT_LT(best, 1000);
  }
}

}  // namespace
}  // namespace opentrn::runtime
