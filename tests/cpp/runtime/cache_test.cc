#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "graph/builder.h"
#include "programs.h"
#include "runtime/disk_cache.h"
#include "runtime/kernel.h"
#include "runtime/kernel_key.h"

namespace opentrn::runtime {
namespace {

namespace fs = std::filesystem;

// y = x + constant over f32[rows, columns]
graph::Graph add_graph(int64_t rows, int64_t columns, double constant, const std::string& name = "add",
                       int32_t origin = -1) {
  graph::Builder b(name);
  b.set_origin(origin);
  const graph::Shape shape{rows, columns};
  graph::ValueId x = b.parameter({DType::f32, shape}, {graph::row_major(shape), 0}, "x");
  graph::ValueId y = b.binary(graph::Op::add, x, b.broadcast(b.constant(DType::f32, constant), shape));
  b.result(y, {graph::row_major(shape), 0});
  return b.take();
}

class CacheTest : public RuntimeTest {
 protected:
  std::vector<fs::path> files() {
    std::vector<fs::path> found;
    std::error_code error;
    for (auto& entry : fs::recursive_directory_iterator(cache_folder, error))
      if (entry.is_regular_file()) found.push_back(entry.path());
    return found;
  }
};

TEST_F(CacheTest, KeysDependOnWhatDecidesTheProgram) {
  const std::string key = kernel_key(add_graph(4, 8, 1));
  EXPECT_EQ(key.size(), 32u);
  EXPECT_EQ(key, kernel_key(add_graph(4, 8, 1, "another name", 12))) << "neither name nor origin";
  EXPECT_NE(key, kernel_key(add_graph(8, 4, 1)));
  EXPECT_NE(key, kernel_key(add_graph(4, 8, 2)));
  EXPECT_NE(kernel_key(add_graph(4, 8, 0.0)), kernel_key(add_graph(4, 8, -0.0)));
  set("NEURON_LOGICAL_NC_CONFIG", "1");
  restart();
  EXPECT_NE(key, kernel_key(add_graph(4, 8, 1)));
}

TEST_F(CacheTest, KeysAreQuick) {
  if (kSanitized) GTEST_SKIP() << "times are those of the sanitizer";
  const graph::Graph graph = add_graph(4, 8, 1);
  auto start = std::chrono::steady_clock::now();
  uint64_t sum = 0;
  for (int i = 0; i < 1000; ++i) sum += key_of(graph).low;
  std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  std::printf("key of a graph of %zu nodes: %.2f us\n", graph.nodes.size(), time.count() / 1000);
  EXPECT_NE(sum, 1u);
  EXPECT_LT(time.count() / 1000, 20);
}

TEST_F(CacheTest, FromMemoryThenFromDisk) {
  const graph::Graph graph = add_graph(128, 64, 1);
  auto kernel = kernel_for(graph);
  EXPECT_EQ(kernel->source, Kernel::Source::compiled);
  EXPECT_EQ(kernel->key, kernel_key(graph));
  EXPECT_GT(kernel->compile_ms, 0);
  EXPECT_EQ(kernel_for(graph), kernel);
  CacheStats stats = cache_stats();
  EXPECT_EQ(stats.compiled, 1);
  EXPECT_EQ(stats.memory_hits, 1);
  flush_cache();
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(files()[0], DiskCache(cache_folder, 1).path(key_of(graph)));
  EXPECT_EQ(cache_stats().disk_writes, 1);

  const cost::ProgramTime time = kernel->time;
  kernel.reset();
  clear_cache(/*disk=*/false);
  auto again = kernel_for(graph);
  EXPECT_EQ(again->source, Kernel::Source::disk);
  EXPECT_EQ(again->compile_ms, 0);
  EXPECT_EQ(again->time.total_ps, time.total_ps);
  ASSERT_EQ(again->time.cores.size(), time.cores.size());
  EXPECT_EQ(again->time.cores[0].engines[1].busy_ps, time.cores[0].engines[1].busy_ps);
  EXPECT_EQ(again->time.cores[0].hbm_write_bytes, time.cores[0].hbm_write_bytes);
  EXPECT_EQ(cache_stats().disk_hits, 1);

  clear_cache(/*disk=*/true);
  EXPECT_TRUE(files().empty());
}

TEST_F(CacheTest, DamagedForeignAndOldFilesAreReplaced) {
  const graph::Graph graph = add_graph(128, 64, 1);
  kernel_for(graph);
  flush_cache();
  const fs::path path = files().at(0);
  std::ifstream in(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  std::string flipped = good, other_key = good, old_version = good;
  flipped[good.size() / 2] ^= 4;
  other_key[16] ^= 1;
  old_version[8] ^= 1;
  int64_t rejected = 0;
  for (const std::string& bad : {good.substr(0, good.size() / 2), std::string(), std::string("hello"), flipped,
                                 other_key, old_version, good + "x"}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
    clear_cache(false);
    EXPECT_EQ(kernel_for(graph)->source, Kernel::Source::compiled);
    EXPECT_EQ(cache_stats().disk_rejected, ++rejected);
    flush_cache();
    clear_cache(false);
    EXPECT_EQ(kernel_for(graph)->source, Kernel::Source::disk) << "rewritten";
  }
}

TEST_F(CacheTest, AnUnwritableFolderIsSaidOnceAndCostsNothingElse) {
  std::ofstream(cache_folder + "/file") << "in the way";
  set("OPENTRN_CACHE_DIR", cache_folder + "/file");
  restart();
  testing::internal::CaptureStderr();
  for (int i = 1; i <= 3; ++i) EXPECT_NE(kernel_for(add_graph(i, 8, 1)), nullptr);
  flush_cache();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::HasSubstr("cannot write to the program cache " + cache_folder + "/file"));
  EXPECT_THAT(text, testing::HasSubstr("OPENTRN_CACHE_DIR"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(CacheTest, CanBeSwitchedOff) {
  set("OPENTRN_CACHE", "0");
  restart();
  kernel_for(add_graph(4, 8, 1));
  flush_cache();
  EXPECT_TRUE(files().empty());
}

TEST_F(CacheTest, TheLeastRecentlyUsedFilesGoWhenTheFolderIsFull) {
  auto kernel = kernel_for(add_graph(128, 64, 1));
  flush_cache();
  const auto bytes = static_cast<int64_t>(fs::file_size(files().at(0)));
  const std::string folder = cache_folder + "/small";
  auto key = [](uint64_t i) { return Key{i << 56, i}; };
  {
    DiskCache cache(folder, bytes * 100);
    for (uint64_t i = 0; i < 20; ++i) cache.store(key(i), {kernel->program, kernel->time});
  }
  // Each file was used one minute after the one before it.
  const auto now = fs::file_time_type::clock::now();
  DiskCache cache(folder, bytes * 10);
  for (uint64_t i = 0; i < 20; ++i) fs::last_write_time(cache.path(key(i)), now - std::chrono::minutes(100 - i));
  fs::create_directories(folder + "/v0.0.0/ab");
  std::ofstream(folder + "/v0.0.0/ab/.left.tmp") << "by a killed process";
  fs::last_write_time(folder + "/v0.0.0/ab/.left.tmp", now - std::chrono::hours(2));
  std::ofstream(folder + "/notes.txt") << "the user's";
  EXPECT_TRUE(cache.load(key(0))) << "used now";
  cache.store(key(99), {kernel->program, kernel->time});
  cache.flush();
  EXPECT_EQ(cache.stats().evicted, 12);
  EXPECT_TRUE(fs::exists(cache.path(key(0))));
  EXPECT_FALSE(fs::exists(cache.path(key(1))));
  EXPECT_TRUE(fs::exists(cache.path(key(19))));
  EXPECT_TRUE(fs::exists(cache.path(key(99))));
  EXPECT_FALSE(fs::exists(folder + "/v0.0.0/ab/.left.tmp"));
  EXPECT_TRUE(fs::exists(folder + "/notes.txt"));
}

TEST_F(CacheTest, MemoryIsBoundedAndEvictedKernelsLiveUntilTheyHaveRun) {
  set("OPENTRN_MAX_PROGRAMS", "2");
  set("OPENTRN_CACHE", "0");
  restart();
  Device& device = Device::get(0);
  const int64_t bytes = 128 * 16 * 4;
  void* x = device.memory().allocate(bytes, -1);
  device.fill(0, x, 0, bytes);
  std::weak_ptr<const Kernel> first;
  for (int i = 0; i < 8; ++i) {
    std::shared_ptr<isa::Program> program = add_program(1, 1, 16, true);
    program->scalars[0].name = "value" + std::to_string(i);  // another program
    auto kernel = kernel_for(program);
    if (i == 0) first = kernel;
    void* buffers[] = {x, x};
    exec::ScalarValue scalars[] = {{exec::ScalarValue::Kind::real, 1, 0}};
    for (int k = 0; k < 100; ++k) device.launch(0, kernel, {buffers, scalars});
  }
  EXPECT_EQ(cache_stats().evicted, 6);
  EXPECT_EQ(kernel_count() - kernel_by_id(kernel_count() - 1)->id, 1);
  device.synchronize();
  clear_cache(false);  // collects what is done
  clear_cache(false);
  EXPECT_TRUE(first.expired());
  float value = 0;
  device.copy_to_host(0, &value, x, 4, true);
  EXPECT_EQ(value, 800);
}

TEST_F(CacheTest, ThreadsThatAskForOneGraphCompileItOnce) {
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<const Kernel>> kernels(4);
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 5; ++i) kernels[t] = kernel_for(add_graph(128, 32 + i, 1));
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(cache_stats().compiled, 5);
  EXPECT_EQ(cache_stats().memory_hits, 15);
  for (auto& kernel : kernels) EXPECT_EQ(kernel, kernels[0]);
}

TEST_F(CacheTest, ProcessesShareAFolder) {
  set("OPENTRN_CACHE", "0");  // no other thread when the process forks
  restart();
  auto kernel = kernel_for(add_graph(128, 64, 1));
  const DiskEntry entry{kernel->program, kernel->time};
  const std::string folder = cache_folder + "/shared";
  // Both write and read the same keys over and over; a reader never sees half a file.
  auto work = [&] {
    DiskCache cache(folder, 1 << 30);
    for (int round = 0; round < 30; ++round)
      for (uint64_t i = 0; i < 4; ++i) {
        cache.store(Key{i, i}, entry);
        cache.load(Key{i, i});
      }
    cache.flush();
    return cache.stats().rejected == 0 && cache.stats().writes == 120;
  };
  const pid_t child = fork();
  if (child == 0) _exit(work() ? 0 : 1);
  EXPECT_TRUE(work());
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace opentrn::runtime
