#include "programs.h"

#include <random>
#include <string>

namespace opentrn::cost {

using isa::AccessPattern;
using isa::AluOp;
using isa::Engine;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;
using isa::Signal;
using isa::Term;

namespace {

constexpr DType bf16 = DType::bf16, f32 = DType::f32;
constexpr int64_t kSize = 4096, kTile = 128, kColumns = 512;

// Appends instructions to one core.
class Writer {
 public:
  explicit Writer(isa::CoreProgram& core) : core_(core) {}

  int pool(const char* name, Memory memory, int64_t offset, int64_t bytes, int depth) {
    core_.pools.push_back({name, memory, offset, bytes, depth});
    return static_cast<int>(core_.pools.size()) - 1;
  }
  int semaphore(const char* name, int initial = 0) {
    core_.semaphores.push_back({name, initial});
    return static_cast<int>(core_.semaphores.size()) - 1;
  }
  int slot_register() { return core_.slot_registers++; }

  int loop(int64_t count) {
    Instruction in;
    in.opcode = Opcode::loop_begin;
    in.reg = core_.loop_registers++;
    in.count = count;
    core_.code.push_back(in);
    open_.push_back(in.reg);
    return in.reg;
  }
  void end() {
    Instruction in;
    in.opcode = Opcode::loop_end;
    in.reg = static_cast<int16_t>(open_.back());
    open_.pop_back();
    core_.code.push_back(in);
  }
  void rotate(int pool, int reg) {
    Instruction in;
    in.opcode = Opcode::rotate;
    in.pool = static_cast<int16_t>(pool);
    in.reg = static_cast<int16_t>(reg);
    core_.code.push_back(in);
  }
  void barrier() {
    Instruction in;
    in.opcode = Opcode::barrier;
    core_.code.push_back(in);
  }
  Instruction& add(Opcode opcode, Engine engine, const AccessPattern& dst, std::initializer_list<AccessPattern> src,
                   std::initializer_list<Signal> waits = {}, std::initializer_list<Signal> posts = {}) {
    Instruction in;
    in.opcode = opcode;
    in.engine = engine;
    in.dst = dst;
    for (const AccessPattern& ap : src) in.src.push_back(ap);
    for (const Signal& s : waits) in.waits.push_back(s);
    for (const Signal& s : posts) in.posts.push_back(s);
    core_.code.push_back(in);
    return core_.code.back();
  }
  Instruction& dma(Engine engine, int queue, const AccessPattern& dst, const AccessPattern& src,
                   std::initializer_list<Signal> waits = {}, std::initializer_list<Signal> posts = {}) {
    Instruction& in = add(Opcode::dma_copy, engine, dst, {src}, waits, posts);
    in.queue = static_cast<int8_t>(queue);
    return in;
  }

 private:
  isa::CoreProgram& core_;
  std::vector<int> open_;
};

AccessPattern on_chip(Memory memory, int pool, int slot, DType dtype, int64_t columns, int64_t offset = 0,
                      std::initializer_list<Term> terms = {}) {
  AccessPattern ap;
  ap.memory = memory;
  ap.dtype = dtype;
  ap.buffer = static_cast<int16_t>(pool);
  ap.slot = static_cast<int16_t>(slot);
  ap.partitions = kTile;
  ap.offset = offset;
  ap.dims = {{1, static_cast<int32_t>(columns)}};
  for (const Term& t : terms) ap.terms.push_back(t);
  return ap;
}

// 128 rows of a 4096-column bf16 matrix.
AccessPattern matrix(int buffer, int64_t columns, int64_t offset, std::initializer_list<Term> terms) {
  AccessPattern ap;
  ap.memory = Memory::hbm;
  ap.dtype = bf16;
  ap.buffer = static_cast<int16_t>(buffer);
  ap.partitions = kTile;
  ap.partition_stride = kSize;
  ap.offset = offset;
  ap.dims = {{1, static_cast<int32_t>(columns)}};
  for (const Term& t : terms)
    if (t.bytes) ap.terms.push_back(t);
  return ap;
}

constexpr int64_t kRowBytes = kSize * 2;             // of a matrix
constexpr int64_t kRowTile = kTile * kRowBytes;      // 128 rows
constexpr int64_t kColumnTile = kColumns * 2;        // 512 columns
constexpr int kA = 0, kB = 1, kC = 2;

isa::Program matmul_program(const char* name) {
  isa::Program p;
  p.name = name;
  p.chip = "trn2";
  int64_t bytes = kSize * kSize * 2;
  p.buffers = {{isa::Buffer::Kind::input, "a_transposed", bytes, -1, {}},
               {isa::Buffer::Kind::input, "b", bytes, -1, {}},
               {isa::Buffer::Kind::output, "c", bytes, -1, {}}};
  p.cores.resize(1);
  p.model_flops = 2 * kSize * kSize * kSize;
  return p;
}

Signal one(int semaphore) { return {static_cast<int16_t>(semaphore), 1}; }

}  // namespace

isa::Program matmul_tile_loads() {
  isa::Program p = matmul_program("matmul_4096_tile_loads");
  Writer w(p.cores[0]);
  constexpr int kBuffers = 8;
  const int a = w.pool("a", Memory::sbuf, 0, 32 * kColumnTile, 1);
  const int b = w.pool("b", Memory::sbuf, 32 * kColumnTile, kColumnTile, kBuffers);
  const int out = w.pool("out", Memory::sbuf, (32 + kBuffers) * kColumnTile, kColumnTile, 2);
  const int acc = w.pool("acc", Memory::psum, 0, 2048, 2);
  const int a_slot = w.slot_register(), b_slot = w.slot_register(), out_slot = w.slot_register(), acc_slot = w.slot_register();
  const int a_ready = w.semaphore("a_ready"), b_ready = w.semaphore("b_ready"), b_free = w.semaphore("b_free", kBuffers);
  const int acc_ready = w.semaphore("acc_ready"), acc_free = w.semaphore("acc_free", 2);
  const int out_ready = w.semaphore("out_ready"), out_free = w.semaphore("out_free", 2);
  w.rotate(a, a_slot);

  // One step of a tile's accumulation over k; k0: the first, which overwrites.
  auto step = [&](int group, int m, int n, bool first, bool last, bool load_a, int k) {
    Term ka{static_cast<int16_t>(k), kColumnTile}, kr{static_cast<int16_t>(k), kRowTile};
    Term g{static_cast<int16_t>(group), 4 * kTile * 2}, nt{static_cast<int16_t>(n), n >= 0 ? kColumnTile : 0};
    int64_t k_index = first ? 0 : last ? 31 : 1;  // the loop over k covers 1 .. 30
    bool looped = !first && !last;
    if (!looped) ka.bytes = kr.bytes = 0;
    AccessPattern a_tile = on_chip(Memory::sbuf, a, a_slot, bf16, kColumns, k_index * kColumnTile);
    AccessPattern stationary = on_chip(Memory::sbuf, a, a_slot, bf16, kTile, k_index * kColumnTile + m * kTile * 2);
    if (looped) a_tile.terms.push_back(ka), stationary.terms.push_back(ka);
    if (load_a) w.dma(Engine::sync, 0, a_tile, matrix(kA, kColumns, k_index * kRowTile, {kr, g}), {}, {one(a_ready)});
    w.rotate(b, b_slot);
    w.dma(Engine::sync, 0, on_chip(Memory::sbuf, b, b_slot, bf16, kColumns), matrix(kB, kColumns, k_index * kRowTile, {kr, nt}),
          {one(b_free)}, {one(b_ready)});
    Instruction& mm = w.add(Opcode::nc_matmul, Engine::tensor, on_chip(Memory::psum, acc, acc_slot, f32, kColumns),
                            {stationary, on_chip(Memory::sbuf, b, b_slot, bf16, kColumns)}, {one(b_ready)}, {one(b_free)});
    mm.accumulate = !first;
    if (load_a) mm.waits.push_back(one(a_ready));
    if (first) mm.waits.push_back(one(acc_free));
    if (last) mm.posts.push_back(one(acc_ready));
  };
  // One 128 x 512 tile of C. `n`: loop register of the column tile, -1: the first column tile.
  auto tile = [&](int group, int m, int n, bool load_a) {
    w.rotate(acc, acc_slot);
    step(group, m, n, true, false, load_a, -1);
    int k = w.loop(30);
    step(group, m, n, false, false, load_a, k);
    w.end();
    step(group, m, n, false, true, load_a, -1);
    w.rotate(out, out_slot);
    w.add(Opcode::tensor_copy, Engine::vector, on_chip(Memory::sbuf, out, out_slot, bf16, kColumns),
          {on_chip(Memory::psum, acc, acc_slot, f32, kColumns)}, {one(acc_ready), one(out_free)}, {one(acc_free), one(out_ready)});
    Term g{static_cast<int16_t>(group), 4 * kRowTile}, nt{static_cast<int16_t>(n), n >= 0 ? kColumnTile : 0};
    w.dma(Engine::sync, 0, matrix(kC, kColumns, m * kRowTile, {g, nt}), on_chip(Memory::sbuf, out, out_slot, bf16, kColumns),
          {one(out_ready)}, {one(out_free)});
  };
  // The remaining seven column tiles start one tile further.
  auto columns_from_one = [&](int group, int m) {
    size_t begin = p.cores[0].code.size();
    int n = w.loop(7);
    tile(group, m, n, false);
    w.end();
    for (size_t i = begin; i < p.cores[0].code.size(); ++i) {
      Instruction& in = p.cores[0].code[i];
      for (AccessPattern* ap : {&in.dst, in.src.empty() ? nullptr : &in.src[0]})
        if (ap && ap->memory == Memory::hbm && ap->buffer != kA) ap->offset += kColumnTile;
    }
  };
  int group = w.loop(8);  // of four M tiles
  for (int m = 0; m < 4; ++m) {
    tile(group, m, -1, m < 3);
    columns_from_one(group, m);
  }
  w.end();
  return p;
}

isa::Program matmul_row_loads() {
  isa::Program p = matmul_program("matmul_4096_row_loads");
  Writer w(p.cores[0]);
  constexpr int kSteps = 32, kADepth = 44, kBDepth = 56, kOut = 4;
  constexpr int64_t kRow = 2048;  // 1024 columns
  const int a = w.pool("a", Memory::sbuf, 0, kRow, kADepth);
  const int b = w.pool("b", Memory::sbuf, kADepth * kRow, kRow, kBDepth);
  const int out = w.pool("out", Memory::sbuf, (kADepth + kBDepth) * kRow, kColumnTile, kOut);
  const int acc = w.pool("acc", Memory::psum, 0, 2048, 8);
  int a_slot[kSteps], b_slot[kSteps];
  for (int k = 0; k < kSteps; ++k) a_slot[k] = w.slot_register();
  for (int k = 0; k < kSteps; ++k) b_slot[k] = w.slot_register();
  const int out_slot = w.slot_register(), acc_slot = w.slot_register();
  const int a_ready = w.semaphore("a_ready"), a_free = w.semaphore("a_free", kADepth);
  const int b_ready = w.semaphore("b_ready"), b_free = w.semaphore("b_free", kBDepth);
  const int acc_ready = w.semaphore("acc_ready"), acc_free = w.semaphore("acc_free", 8);
  const int out_ready = w.semaphore("out_ready"), out_free = w.semaphore("out_free", kOut);

  struct Block {
    int m_register, n_register;  // block loops; n_register -1: n_block is a constant
    int64_t n_block;
    bool loads_a, last_use_of_a;
  };
  auto loads = [&](const Block& block) {
    Term mr{static_cast<int16_t>(block.m_register), kRow};
    for (int k = 0; k < kSteps; ++k) {
      if (block.loads_a) {
        w.rotate(a, a_slot[k]);
        w.dma(Engine::sync, 0, on_chip(Memory::sbuf, a, a_slot[k], bf16, 1024), matrix(kA, 1024, k * kRowTile, {mr}), {one(a_free)},
              {one(a_ready)});
      }
      w.rotate(b, b_slot[k]);
      Term nr{static_cast<int16_t>(block.n_register), block.n_register >= 0 ? kRow : 0};
      w.dma(Engine::sync, 0, on_chip(Memory::sbuf, b, b_slot[k], bf16, 1024),
            matrix(kB, 1024, k * kRowTile + block.n_block * kRow, {nr}), {one(b_free)}, {one(b_ready)});
    }
  };
  // One 128 x 512 tile of C. m: constant, plus the loop register's value when it is not -1.
  auto tile = [&](const Block& block, int64_t m, int m_loop, int64_t n, bool first, bool last) {
    w.rotate(acc, acc_slot);
    for (int k = 0; k < kSteps; ++k) {
      AccessPattern stationary = on_chip(Memory::sbuf, a, a_slot[k], bf16, kTile, m * kTile * 2);
      if (m_loop >= 0) stationary.terms.push_back({static_cast<int16_t>(m_loop), kTile * 2});
      Instruction& mm = w.add(Opcode::nc_matmul, Engine::tensor, on_chip(Memory::psum, acc, acc_slot, f32, kColumns),
                              {stationary, on_chip(Memory::sbuf, b, b_slot[k], bf16, kColumns, n * kColumnTile)});
      mm.accumulate = k > 0;
      if (k == 0) mm.waits.push_back(one(acc_free));
      if (first) mm.waits.push_back(one(b_ready));
      if (first && block.loads_a) mm.waits.push_back(one(a_ready));
      if (last) mm.posts.push_back(one(b_free));
      if (last && block.last_use_of_a) mm.posts.push_back(one(a_free));
      if (k == kSteps - 1) mm.posts.push_back(one(acc_ready));
    }
    w.rotate(out, out_slot);
    w.add(Opcode::tensor_copy, Engine::vector, on_chip(Memory::sbuf, out, out_slot, bf16, kColumns),
          {on_chip(Memory::psum, acc, acc_slot, f32, kColumns)}, {one(acc_ready), one(out_free)}, {one(acc_free), one(out_ready)});
    Term mr{static_cast<int16_t>(block.m_register), 8 * kRowTile}, ml{static_cast<int16_t>(m_loop), m_loop >= 0 ? kRowTile : 0};
    Term nr{static_cast<int16_t>(block.n_register), block.n_register >= 0 ? kRow : 0};
    w.dma(Engine::scalar, 1, matrix(kC, kColumns, m * kRowTile + block.n_block * kRow + n * kColumnTile, {mr, ml, nr}),
          on_chip(Memory::sbuf, out, out_slot, bf16, kColumns), {one(out_ready)}, {one(out_free)});
  };
  auto compute = [&](const Block& block) {
    tile(block, 0, -1, 0, true, false);
    tile(block, 0, -1, 1, false, false);
    int m_loop = w.loop(6);
    tile(block, 1, m_loop, 0, false, false);
    tile(block, 1, m_loop, 1, false, false);
    w.end();
    tile(block, 7, -1, 0, false, false);
    tile(block, 7, -1, 1, false, true);
  };
  int m = w.loop(4);
  Block first{m, -1, 0, true, false};
  loads(first);
  compute(first);
  int n = w.loop(2);
  Block middle{m, n, 1, false, false};
  loads(middle);
  compute(middle);
  w.end();
  Block last{m, -1, 3, false, true};
  loads(last);
  compute(last);
  w.end();
  return p;
}

isa::Program random_pipeline(uint64_t seed) {
  std::mt19937_64 random(seed);
  auto draw = [&](int64_t low, int64_t high) { return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1)); };
  isa::Program p;
  p.name = "pipeline_" + std::to_string(seed);
  const int64_t columns = draw(1, 600), depth_in = draw(1, 5), depth_mid = draw(1, 3), depth_out = draw(1, 4);
  p.buffers = {{isa::Buffer::Kind::input, "x", int64_t{1} << 30, -1, {}}, {isa::Buffer::Kind::output, "y", int64_t{1} << 30, -1, {}}};
  p.cores.resize(draw(0, 4) == 0 ? 2 : 1);
  const bool with_barrier = draw(0, 5) == 0;
  uint64_t core_seed = random();
  for (isa::CoreProgram& core : p.cores) {
    random.seed(core_seed);  // the cores run the same code
    Writer w(core);
    int in = w.pool("in", Memory::sbuf, 0, columns * 4, static_cast<int>(depth_in));
    int mid = w.pool("mid", Memory::sbuf, depth_in * columns * 4, columns * 4, static_cast<int>(depth_mid));
    int out = w.pool("out", Memory::sbuf, (depth_in + depth_mid) * columns * 4, columns * 4, static_cast<int>(depth_out));
    int acc = w.pool("acc", Memory::psum, 0, 2048, 2);
    int slots[] = {w.slot_register(), w.slot_register(), w.slot_register(), w.slot_register()};
    int in_ready = w.semaphore("in_ready"), in_free = w.semaphore("in_free", static_cast<int>(depth_in));
    int mid_ready = w.semaphore("mid_ready"), mid_free = w.semaphore("mid_free", static_cast<int>(depth_mid));
    int out_ready = w.semaphore("out_ready"), out_free = w.semaphore("out_free", static_cast<int>(depth_out));
    int sum_ready = w.semaphore("sum_ready");
    const bool matmul = draw(0, 1), gpsimd = draw(0, 3) == 0;
    const int64_t outer = draw(1, 40), inner = draw(1, 120), extra = draw(0, 3);
    const DType dtype = draw(0, 1) ? f32 : bf16;
    const Engine store_engine = draw(0, 1) ? Engine::sync : Engine::scalar;  // one: a semaphore has one waiting engine
    auto hbm = [&](int buffer, std::initializer_list<Term> terms) {
      AccessPattern ap = matrix(buffer, columns, 0, terms);
      ap.dtype = dtype;
      return ap;
    };
    auto body = [&](int i, int j) {
      Term ti{static_cast<int16_t>(i), 65536}, tj{static_cast<int16_t>(j), j >= 0 ? 1024 : 0};
      w.rotate(in, slots[0]);
      AccessPattern in_tile = on_chip(Memory::sbuf, in, slots[0], dtype, columns);
      w.dma(Engine::sync, 0, in_tile, hbm(0, {ti, tj}), {one(in_free)}, {one(in_ready)});
      w.rotate(mid, slots[1]);
      AccessPattern mid_tile = on_chip(Memory::sbuf, mid, slots[1], dtype, columns);
      if (matmul) {
        w.rotate(acc, slots[3]);
        AccessPattern stationary = in_tile, moving = in_tile;
        stationary.dims = {{1, static_cast<int32_t>(std::min<int64_t>(columns, 128))}};
        moving.dims = {{1, static_cast<int32_t>(std::min<int64_t>(columns, 512))}};
        AccessPattern bank = on_chip(Memory::psum, acc, slots[3], f32, moving.dims[0].count);
        w.add(Opcode::nc_matmul, Engine::tensor, bank, {stationary, moving}, {one(in_ready), one(mid_free)}, {one(in_free), one(sum_ready)});
        AccessPattern copied = mid_tile;
        copied.dims = moving.dims;
        w.add(Opcode::tensor_copy, Engine::vector, copied, {bank}, {one(sum_ready)}, {one(mid_ready)});
      } else {
        w.add(Opcode::tensor_tensor, Engine::vector, mid_tile, {in_tile, in_tile}, {one(in_ready), one(mid_free)}, {}).op0 = AluOp::add;
        for (int64_t x = 0; x < extra; ++x) w.add(Opcode::tensor_copy, Engine::vector, mid_tile, {mid_tile});
        w.add(Opcode::tensor_scalar, Engine::vector, mid_tile, {mid_tile}, {}, {one(in_free), one(mid_ready)}).op0 = AluOp::mult;
      }
      w.rotate(out, slots[2]);
      AccessPattern out_tile = on_chip(Memory::sbuf, out, slots[2], dtype, columns);
      if (gpsimd) {
        w.add(Opcode::affine_select, Engine::gpsimd, out_tile, {mid_tile}, {one(mid_ready), one(out_free)}, {one(mid_free), one(out_ready)});
      } else {
        w.add(Opcode::activation, Engine::scalar, out_tile, {mid_tile}, {one(mid_ready), one(out_free)}, {one(mid_free), one(out_ready)}).act =
            isa::ActFn::exp;
      }
      w.dma(store_engine, 1, hbm(1, {ti, tj}), out_tile, {one(out_ready)}, {one(out_free)});
    };
    int i = w.loop(outer);
    if (draw(0, 1)) body(i, -1);
    int j = w.loop(inner);
    body(i, j);
    w.end();
    if (draw(0, 2) == 0) body(i, -1);
    if (with_barrier) w.barrier();
    w.end();
  }
  return p;
}

}  // namespace opentrn::cost
