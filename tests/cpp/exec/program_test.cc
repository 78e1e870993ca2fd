// Sequencing: loops, rotating slots, launch scalars, barriers, faults.
#include <thread>

#include "machine.h"

namespace opentrn::exec {
namespace {

TEST(Program, LoopsMoveAddressesAndRotateSlots) {
  Machine m;
  const int in = m.buffer(6 * 4 * 8), out = m.buffer(6 * 4 * 8);
  for (int k = 0; k < 48; ++k) Machine::write(DType::f32, m.data(in) + 4 * k, k);
  isa::CoreProgram& core = m.program().cores[0];
  core.pools.push_back({"tiles", Memory::sbuf, 4096, 64, 2});
  core.loop_registers = 2;
  core.slot_registers = 1;
  // for i in 3: for j in 2: tile = next slot; tile = in[2i + j]; tile *= 2; out[2i + j] = tile
  const auto loop = [&](Opcode opcode, int reg, int count) {
    Instruction& i = m.emit(opcode, Engine::sync);
    i.reg = static_cast<int16_t>(reg);
    i.count = count;
  };
  loop(Opcode::loop_begin, 0, 3);
  loop(Opcode::loop_begin, 1, 2);
  Instruction& rotate = m.emit(Opcode::rotate, Engine::sync);
  rotate.reg = 0;
  rotate.pool = 2;
  AccessPattern tile = Machine::row(DType::f32, 2, 4);
  tile.buffer = 2;
  tile.slot = 0;
  const auto rows = [&](int buffer) {
    AccessPattern ap = Machine::hbm(buffer, DType::f32, 2, 4, {{1, 4}});
    ap.terms = {{0, 64}, {1, 32}};
    return ap;
  };
  m.emit(Opcode::dma_copy, Engine::sync, tile, {rows(in)});
  Instruction& twice = m.emit(Opcode::tensor_scalar, Engine::vector, tile, {tile});
  twice.op0 = AluOp::mult;
  twice.s0 = Scalar::imm(2);
  m.emit(Opcode::dma_copy, Engine::sync, rows(out), {tile});
  loop(Opcode::loop_end, 1, 0);
  loop(Opcode::loop_end, 0, 0);
  ASSERT_TRUE(m.run());
  for (int k = 0; k < 48; ++k) EXPECT_EQ(Machine::read(DType::f32, m.data(out) + 4 * k), 2 * k);
  // Iteration 5 was the third use of slot 1; slot 0 still holds iteration 4's tile.
  const AccessPattern slot0 = Machine::row(DType::f32, 2, 4, 4096), slot1 = Machine::row(DType::f32, 2, 4, 4096 + 64);
  EXPECT_EQ(m.get(slot0, 0, 0), 64);
  EXPECT_EQ(m.get(slot1, 0, 0), 80);
}

TEST(Program, ScalarsTakeTheirArgumentsType) {
  Machine m;
  m.program().scalars = {{"lr", DType::f32}, {"n", DType::i64}};
  const AccessPattern x = Machine::row(DType::f64, 1, 1), n = Machine::row(DType::i64, 1, 1, 64);
  m.emit(Opcode::memset, Engine::vector, x).s0 = Scalar::arg(0);
  m.emit(Opcode::memset, Engine::vector, n).s0 = Scalar::arg(1);
  ScalarValue lr, count;
  lr.real = 0.1;
  count.kind = ScalarValue::Kind::integer;
  count.integer = (int64_t{1} << 60) + 1;
  ASSERT_TRUE(m.run({lr, count}));
  EXPECT_EQ(m.get(x, 0, 0), static_cast<double>(0.1f));
  int64_t value;
  std::memcpy(&value, m.at(n, 0, 0), 8);
  EXPECT_EQ(value, (int64_t{1} << 60) + 1);
}

// Core 0 writes, both meet, core 1 reads what core 0 wrote and answers.
void exchange(Machine& m, int buffer) {
  const AccessPattern tile = Machine::row(DType::f32, 1, 4);
  const AccessPattern message = Machine::hbm(buffer, DType::f32, 1, 4, {{1, 4}}), answer = Machine::hbm(buffer, DType::f32, 1, 4, {{1, 4}}, 16);
  m.emit(Opcode::memset, Engine::vector, tile).s0 = Scalar::imm(3);
  m.emit(Opcode::dma_copy, Engine::sync, message, {tile});
  m.emit(Opcode::barrier, Engine::sync);
  m.emit(Opcode::barrier, Engine::sync);
  m.emit(Opcode::dma_copy, Engine::sync, tile, {answer});
  m.emit(Opcode::barrier, Engine::sync, {}, {}, 1);
  m.emit(Opcode::dma_copy, Engine::sync, tile, {message}, 1);
  Instruction& square = m.emit(Opcode::activation, Engine::scalar, tile, {tile}, 1);
  square.act = ActFn::square;
  m.emit(Opcode::dma_copy, Engine::sync, answer, {tile}, 1);
  m.emit(Opcode::barrier, Engine::sync, {}, {}, 1);
}

TEST(Program, CoresAlternateAtBarriersOnOneThread) {
  Machine m(2);
  exchange(m, m.buffer(32));
  ASSERT_TRUE(m.run());
  EXPECT_EQ(m.get(Machine::row(DType::f32, 1, 4), 0, 3), 9);
}

TEST(Program, CoresMeetAtBarriersOnTwoThreads) {
  Machine m(2);
  const int buffer = m.buffer(32);
  exchange(m, buffer);
  const Executable executable(std::make_shared<isa::Program>(m.program()), test_chip());
  EXPECT_TRUE(executable.cores_communicate());
  std::byte* const buffers[] = {m.data(buffer)};
  for (int repeat = 0; repeat < 50; ++repeat) {
    Rendezvous rendezvous(2);
    Fault fault0, fault1;
    bool ok1 = false;
    std::thread other([&] { ok1 = run_core(executable, 1, m.memory(1), buffers, std::span<const ScalarValue>{}, &rendezvous, fault1); });
    EXPECT_TRUE(run_core(executable, 0, m.memory(0), buffers, std::span<const ScalarValue>{}, &rendezvous, fault0));
    other.join();
    EXPECT_TRUE(ok1);
    EXPECT_EQ(m.get(Machine::row(DType::f32, 1, 4), 0, 0), 9);
    m.memory(0).poison();
  }
}

TEST(Program, AFaultReleasesTheOtherCore) {
  Machine m(2);
  const int table = m.buffer(5 * 4);
  const AccessPattern index = Machine::row(DType::i32, 1, 1), to = Machine::row(DType::f32, 1, 1, 64);
  m.emit(Opcode::memset, Engine::gpsimd, index).s0 = Scalar::imm(7);
  Instruction& gather = m.emit(Opcode::dma_gather, Engine::gpsimd, to, {Machine::hbm(table, DType::f32, 1, 1, {{1, 1}}), index});
  gather.rows = 5;
  gather.row_bytes = 4;
  gather.origin = 42;
  m.emit(Opcode::barrier, Engine::sync);
  m.emit(Opcode::barrier, Engine::sync, {}, {}, 1);
  const Executable executable(std::make_shared<isa::Program>(m.program()), test_chip());
  std::byte* const buffers[] = {m.data(table)};
  Rendezvous rendezvous(2);
  Fault fault0, fault1;
  bool ok1 = false;
  std::thread other([&] { ok1 = run_core(executable, 1, m.memory(1), buffers, std::span<const ScalarValue>{}, &rendezvous, fault1); });
  EXPECT_FALSE(run_core(executable, 0, m.memory(0), buffers, std::span<const ScalarValue>{}, &rendezvous, fault0));
  other.join();
  EXPECT_TRUE(ok1);
  EXPECT_EQ(fault0.message, "index 7 is out of bounds for dimension with size 5");
  EXPECT_EQ(fault0.core, 0);
  EXPECT_EQ(fault0.instruction, 1);
  EXPECT_EQ(fault0.origin, 42);
}

TEST(CoreMemory, RowsLieInDifferentCacheSets) {
  CoreMemory memory(test_chip());
  EXPECT_EQ(memory.sbuf_pitch() % 64, 0);
  EXPECT_EQ(memory.sbuf_pitch() / 64 % 2, 1);
  EXPECT_GE(memory.sbuf_pitch(), 65536);
  EXPECT_EQ(memory.psum_pitch() / 64 % 2, 1);
  memory.poison();
  float value;
  std::memcpy(&value, memory.psum() + 127 * memory.psum_pitch() + 16380, 4);
  EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace opentrn::exec
