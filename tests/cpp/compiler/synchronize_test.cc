// Where waits and posts are put, and that what the kernel builder writes is sound.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/kernel_builder.h"
#include "isa/verify.h"

namespace opentrn::compiler {
namespace {

using isa::Dim;
using isa::Engine;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;

class Synchronize : public ::testing::Test {
 protected:
  Synchronize() {
    program_.name = "test";
    program_.chip = "trn2";
    program_.buffers.push_back({isa::Buffer::Kind::input, "x", 1 << 20});
    program_.buffers.push_back({isa::Buffer::Kind::output, "y", 1 << 20, 0});
  }
  isa::AccessPattern hbm(int buffer, const Index& offset) {
    return builder_.hbm(buffer, DType::f32, offset, 128, 64, {Dim{1, 64}});
  }
  isa::AccessPattern sbuf(const Tile& tile) { return builder_.at(tile, DType::f32, 128, {Dim{1, 64}}); }
  const std::vector<Instruction>& code() { return program_.cores.at(0).code; }
  const Instruction& first(Opcode opcode) {
    return *std::find_if(code().begin(), code().end(), [&](const Instruction& i) { return i.opcode == opcode; });
  }
  void expect_sound() {
    builder_.finish();
    for (const isa::Finding& f : isa::check(program_, chip_)) ADD_FAILURE() << f.instruction << ": " << f.message;
  }

  const spec::Chip& chip_ = spec::chip("trn2");
  isa::Program program_;
  KernelBuilder builder_{program_, 0, chip_};
};

TEST_F(Synchronize, ATileGoesFromLoadToComputationToStore) {
  const int pool = builder_.pool("t", Memory::sbuf, 256, 1);
  const Tile t = builder_.take(pool);
  builder_.dma(sbuf(t), hbm(0, 0), kLoad);
  builder_.tensor_scalar(Engine::vector, sbuf(t), sbuf(t), isa::AluOp::add, isa::Scalar::imm(1));
  builder_.dma(hbm(1, 0), sbuf(t), kStore);
  expect_sound();
  const Instruction& add = first(Opcode::tensor_scalar);
  ASSERT_EQ(add.waits.size(), 1u);
  EXPECT_EQ(first(Opcode::dma_copy).posts[0], add.waits[0]);
  EXPECT_EQ(add.posts.size(), 1u);
}

TEST_F(Synchronize, SlotsOfAPoolAreReusedWhenTheirUsersAreThrough) {
  const int pool = builder_.pool("t", Memory::sbuf, 256, 3);
  builder_.loop(32, [&](Index i) {
    const Tile t = builder_.take(pool);
    builder_.dma(sbuf(t), hbm(0, i * 8192), kLoad);
    builder_.tensor_scalar(Engine::vector, sbuf(t), sbuf(t), isa::AluOp::add, isa::Scalar::imm(1));
    builder_.dma(hbm(1, i * 8192), sbuf(t), kStore);
  });
  expect_sound();
  const Instruction& load = first(Opcode::dma_copy);
  ASSERT_FALSE(load.waits.empty());
  for (const isa::Signal& wait : load.waits) EXPECT_EQ(program_.cores[0].semaphores[wait.semaphore].initial, 3);
}

TEST_F(Synchronize, ATileOfTheLoopOutsideIsAwaitedOnce) {
  const int constants = builder_.pool("c", Memory::sbuf, 256, 1), pool = builder_.pool("t", Memory::sbuf, 256, 2);
  const Tile c = builder_.take(constants);
  builder_.dma(sbuf(c), hbm(0, 0), kLoad);
  builder_.loop(32, [&](Index i) {
    const Tile t = builder_.take(pool);
    builder_.tensor_tensor(Engine::vector, sbuf(t), sbuf(c), isa::AluOp::add, sbuf(c));
    builder_.dma(hbm(1, i * 8192), sbuf(t), kStore);
  });
  expect_sound();
  for (const Instruction& i : code()) {
    if (i.opcode == Opcode::loop_begin) break;
    if (i.engine == Engine::vector) {
      EXPECT_EQ(i.opcode, Opcode::event_semaphore);
    }
  }
}

// The second panel is needed only after the work on the first: each iteration takes one of the load's tokens.
TEST_F(Synchronize, TheTensorEngineAwaitsALoadWhereItNeedsIt) {
  const int panels = builder_.pool("p", Memory::sbuf, 256, 2), results = builder_.pool("r", Memory::psum, 2048, 2);
  const int out = builder_.pool("o", Memory::sbuf, 256, 2);
  const Tile a = builder_.take(panels);
  builder_.dma(sbuf(a), hbm(0, 0), kLoad);
  const Tile b = builder_.take(panels);
  builder_.dma(sbuf(b), hbm(0, 8192), kLoad);
  builder_.loop(16, [&](Index i) {
    const Tile r = builder_.take(results);
    const auto psum = builder_.at(r, DType::f32, 64, {Dim{1, 64}});
    builder_.matmul(psum, sbuf(a), sbuf(a), false);
    builder_.matmul(psum, sbuf(b), sbuf(b), true);
    const Tile o = builder_.take(out);
    const auto row = builder_.at(o, DType::f32, 64, {Dim{1, 64}});
    builder_.copy(Engine::vector, row, psum);
    builder_.dma(builder_.hbm(1, DType::f32, i * 4096, 64, 64, {Dim{1, 64}}), row, kStore);
  });
  expect_sound();
  std::vector<const Instruction*> matmuls, loads;
  for (const Instruction& i : code()) {
    if (i.opcode == Opcode::nc_matmul) matmuls.push_back(&i);
    if (i.opcode == Opcode::dma_copy && i.queue == kLoad.number) loads.push_back(&i);
  }
  ASSERT_EQ(matmuls[1]->waits.size(), 1u);
  EXPECT_EQ(matmuls[1]->waits[0].count, 1);
  ASSERT_EQ(loads[1]->posts.size(), 1u);
  EXPECT_EQ(loads[1]->posts[0].semaphore, matmuls[1]->waits[0].semaphore);
  EXPECT_EQ(loads[1]->posts[0].count, 16);
}

}  // namespace
}  // namespace opentrn::compiler
