// Programs written by hand, and the settings they run under.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "isa/program.h"
#include "runtime/device.h"
#include "runtime/settings.h"

namespace opentrn::runtime {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline isa::AccessPattern in_hbm(DType dtype, int buffer, int64_t offset, int partitions, int64_t columns) {
  isa::AccessPattern ap;
  ap.memory = isa::Memory::hbm;
  ap.dtype = dtype;
  ap.buffer = static_cast<int16_t>(buffer);
  ap.offset = offset;
  ap.partitions = static_cast<int16_t>(partitions);
  ap.partition_stride = columns;
  ap.dims = {{1, static_cast<int32_t>(columns)}};
  return ap;
}

inline isa::AccessPattern in_sbuf(DType dtype, int pool, int slot, int partitions, int64_t columns) {
  isa::AccessPattern ap;
  ap.memory = isa::Memory::sbuf;
  ap.dtype = dtype;
  ap.buffer = static_cast<int16_t>(pool);
  ap.slot = static_cast<int16_t>(slot);
  ap.partitions = static_cast<int16_t>(partitions);
  ap.dims = {{1, static_cast<int32_t>(columns)}};
  return ap;
}

// y = x + argument 0 over f32[cores, blocks, 128, columns]; in place when `in_place`.
inline std::shared_ptr<isa::Program> add_program(int cores, int64_t blocks, int64_t columns, bool in_place) {
  using namespace isa;
  auto program = std::make_shared<Program>();
  program->name = "add " + std::to_string(blocks) + "x" + std::to_string(columns);
  const int64_t block_bytes = 128 * columns * 4;
  const int64_t bytes = cores * blocks * block_bytes;
  program->buffers.push_back({.kind = Buffer::Kind::input, .name = "x", .bytes = bytes});
  program->buffers.push_back({.kind = Buffer::Kind::output, .name = "y", .bytes = bytes, .alias = in_place ? 0 : -1});
  program->scalars.push_back({"value", DType::f32});
  for (int core = 0; core < cores; ++core) {
    CoreProgram code;
    code.pools = {{.name = "tile", .memory = Memory::sbuf, .offset = 0, .bytes = columns * 4, .depth = 1}};
    code.semaphores = {{"loaded", 0}, {"added", 0}, {"free", 1}};
    code.loop_registers = 1;
    code.slot_registers = 1;
    Instruction loop{.opcode = Opcode::loop_begin, .reg = 0, .count = blocks};
    Instruction rotate{.opcode = Opcode::rotate, .reg = 0, .pool = 0};
    AccessPattern x = in_hbm(DType::f32, 0, core * blocks * block_bytes, 128, columns);
    x.terms = {{0, block_bytes}};
    AccessPattern y = x;
    y.buffer = 1;
    const AccessPattern tile = in_sbuf(DType::f32, 0, 0, 128, columns);
    Instruction load{.opcode = Opcode::dma_copy, .engine = Engine::sync, .queue = 0, .dst = tile, .src = {x}};
    load.waits = {{2, 1}};
    load.posts = {{0, 1}};
    Instruction add{
        .opcode = Opcode::tensor_scalar, .engine = Engine::vector, .op0 = AluOp::add, .dst = tile, .src = {tile}};
    add.s0 = Scalar::arg(0);
    add.waits = {{0, 1}};
    add.posts = {{1, 1}};
    Instruction store{.opcode = Opcode::dma_copy, .engine = Engine::scalar, .queue = 1, .dst = y, .src = {tile}};
    store.waits = {{1, 1}};
    store.posts = {{2, 1}};
    Instruction end{.opcode = Opcode::loop_end, .reg = 0};
    code.code = {loop, rotate, load, add, store, end};
    program->cores.push_back(std::move(code));
  }
  return program;
}

// y[i] = table[indices[i]] over 128 rows of 16 values; indices outside [0, rows) are faults.
inline std::shared_ptr<isa::Program> gather_program(int64_t rows) {
  using namespace isa;
  auto program = std::make_shared<Program>();
  program->name = "gather";
  program->buffers.push_back({.kind = Buffer::Kind::input, .name = "table", .bytes = rows * 64});
  program->buffers.push_back({.kind = Buffer::Kind::input, .name = "indices", .bytes = 128 * 4});
  program->buffers.push_back({.kind = Buffer::Kind::output, .name = "y", .bytes = 128 * 64});
  CoreProgram code;
  code.pools = {{.name = "index", .memory = Memory::sbuf, .offset = 0, .bytes = 64, .depth = 1},
                {.name = "rows", .memory = Memory::sbuf, .offset = 64, .bytes = 64, .depth = 1}};
  code.semaphores = {{"loaded", 0}, {"gathered", 0}};
  code.slot_registers = 2;
  Instruction rotate0{.opcode = Opcode::rotate, .reg = 0, .pool = 0};
  Instruction rotate1{.opcode = Opcode::rotate, .reg = 1, .pool = 1};
  const AccessPattern index = in_sbuf(DType::i32, 0, 0, 128, 1);
  AccessPattern gathered = in_sbuf(DType::f32, 1, 1, 128, 16);
  gathered.dims = {{16, 1}, {1, 16}};
  Instruction load{.opcode = Opcode::dma_copy,
                   .engine = Engine::sync,
                   .queue = 0,
                   .dst = index,
                   .src = {in_hbm(DType::i32, 1, 0, 128, 1)}};
  load.posts = {{0, 1}};
  Instruction gather{.opcode = Opcode::dma_gather,
                     .engine = Engine::gpsimd,
                     .queue = 1,
                     .rows = rows,
                     .row_bytes = 64,
                     .dst = gathered,
                     .src = {in_hbm(DType::f32, 0, 0, 1, 16), index}};
  gather.waits = {{0, 1}};
  gather.posts = {{1, 1}};
  Instruction store{.opcode = Opcode::dma_copy,
                    .engine = Engine::sync,
                    .queue = 0,
                    .dst = in_hbm(DType::f32, 2, 0, 128, 16),
                    .src = {in_sbuf(DType::f32, 1, 1, 128, 16)}};
  store.waits = {{1, 1}};
  code.code = {rotate0, rotate1, load, gather, store};
  program->cores.push_back(std::move(code));
  return program;
}

// Settings and an empty cache folder for one test; all devices are new. Plans are compared with the interpreter, unless
// OPENTRN_HOST_PLAN says otherwise.
class RuntimeTest : public testing::Test {
 protected:
  RuntimeTest() {
    for (const char* name : {"OPENTRN_MODE", "OPENTRN_CHIP", "NEURON_PLATFORM_TARGET_OVERRIDE", "NEURON_RT_NUM_CORES",
                             "NEURON_RT_VISIBLE_CORES", "NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_VIRTUAL_CORE_SIZE",
                             "NEURON_LAUNCH_BLOCKING", "OPENTRN_NUM_THREADS", "OPENTRN_CACHE", "OPENTRN_MAX_PROGRAMS",
                             "NEURON_COMPILATION_CACHE_MAX_SIZE_MB", "TORCH_NEURONX_NEFF_DISABLE_CACHE"})
      unsetenv(name);
    char folder[] = "/tmp/opentrn-test-XXXXXX";
    cache_folder = mkdtemp(folder);
    set("OPENTRN_CACHE_DIR", cache_folder);
    setenv("OPENTRN_HOST_PLAN", "check", 0);
    restart();
  }
  ~RuntimeTest() override {
    shut_down_devices();
    std::error_code error;
    std::filesystem::remove_all(cache_folder, error);
  }
  void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
  void restart() {
    shut_down_devices();
    reload_settings();
  }
  std::string cache_folder;
};

}  // namespace opentrn::runtime
