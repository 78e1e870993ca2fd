// Random programs: loop nests over a few tiles and a few places in HBM that overlap more often than not. What they
// compute makes no sense; the verifier says which of them are sound.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "plan_case.h"

namespace opentrn::exec {

class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed) : random_(seed) {}

  isa::Program make() {
    program_.name = "random";
    program_.cores.resize(1);
    core_ = &program_.cores[0];
    const size_t regions = 1 + pick(3);
    for (size_t r = 0; r < regions; ++r) {
      bytes_.push_back(int64_t{2048} << pick(6));
      program_.buffers.push_back({Buffer::Kind::input, "in" + std::to_string(r), bytes_.back(), -1, {}});
    }
    program_.buffers.push_back({Buffer::Kind::input, "index", 4096, -1, {}});
    for (size_t r = 0; r < regions; ++r)
      program_.buffers.push_back({Buffer::Kind::output, "out" + std::to_string(r), bytes_[r], static_cast<int32_t>(r), {}});
    program_.scalars.push_back({"alpha", DType::f32});
    kernels();
    int64_t at = 0;
    const size_t pools = 3 + pick(6);
    for (size_t k = 0; k < pools; ++k) {
      const int64_t bytes = k < 4 ? 512 : int64_t{32} << pick(5);
      const int32_t depth = 1 + static_cast<int32_t>(pick(4));
      if (k > 0 && pick(12) == 0) at -= core_->pools.back().bytes;
      core_->pools.push_back({"p" + std::to_string(k), Memory::sbuf, at, bytes, depth});
      at += bytes * depth;
    }
    core_->pools.push_back({"psum", Memory::psum, 0, 2048, 2});
    usual_ = partitions();
    block(0, 2 + pick(4));
    core_->loop_registers = static_cast<int16_t>(registers_);
    core_->slot_registers = static_cast<int16_t>(slots_);
    put_in_order(program_);
    return std::move(program_);
  }

 private:
  using AccessPattern = isa::AccessPattern;
  using AluOp = isa::AluOp;
  using Buffer = isa::Buffer;
  using Dim = isa::Dim;
  using Engine = isa::Engine;
  using Instruction = isa::Instruction;
  using Memory = isa::Memory;
  using Opcode = isa::Opcode;
  using Scalar = isa::Scalar;

  struct Tile {
    int16_t pool, slot;
    Memory memory;
    int first, partitions, free;  // what is filled, in elements
    DType dtype;
  };
  struct LoopVar {
    int16_t reg;
    int64_t count;
  };

  size_t pick(size_t n) { return random_() % n; }
  bool once_in(size_t n) { return pick(n) == 0; }
  int partitions() {
    static constexpr int kSizes[] = {1, 2, 4, 5, 16, 32, 33, 64, 97, 127, 128};
    return kSizes[pick(std::size(kSizes))];
  }

  // Row programs: element-wise with the index, one result per row, and a second output.
  void kernels() {
    const isa::Program text = isa::parse(R"(program k chip=trn2
kernel flat {
  body {
    r0 = load.f32 0
    r1 = index.i32
    r2 = convert.f32 r1.i32
    r3 = add.f32 r0, r2
    store.f32 1, r3
  }
}
kernel rows {
  prologue {
    r0 = constant.f32 0
  }
  body {
    r2 = load.f32 0
    r0 = add.f32 r0, r2
  }
  epilogue {
    r1 = index.i32
    r3 = convert.f32 r1.i32
    r0 = add.f32 r0, r3
    store.f32 1, r0
  }
}
kernel two {
  body {
    r0 = load.f32 0
    r1 = load.f32 1
    r2 = sub.f32 r0, r1
    store.f32 2, r2
    r3 = max.f32 r0, r1
    store.f32 3, r3
  }
}
)");
    program_.kernels = text.kernels;
  }

  Instruction& emit(Opcode opcode, Engine engine, int queue = -1) {
    Instruction& i = core_->code.emplace_back();
    i.opcode = opcode;
    i.engine = engine;
    i.queue = static_cast<int8_t>(queue);
    return i;
  }
  void drop() { core_->code.pop_back(); }

  // ---- structure
  void block(int depth, size_t statements) {
    const size_t live = tiles_.size();
    for (size_t k = 0; k < statements; ++k) {
      if (depth < 3 && once_in(3)) {
        const int64_t count = 2 + static_cast<int64_t>(pick(depth == 0 ? 6 : 3));
        const auto reg = static_cast<int16_t>(depth);
        registers_ = std::max(registers_, depth + 1);
        Instruction& begin = emit(Opcode::loop_begin, Engine::sync);
        begin.reg = reg;
        begin.count = count;
        loops_.push_back({reg, count});
        block(depth + 1, 1 + pick(4));
        loops_.pop_back();
        emit(Opcode::loop_end, Engine::sync).reg = reg;
      } else if (depth == 0 && once_in(20)) {
        emit(Opcode::barrier, Engine::sync);
      } else {
        statement();
      }
    }
    if (!once_in(4)) store();
    if (!once_in(30)) tiles_.resize(live);  // else used after its loop
  }

  void statement() {
    switch (pick(20)) {
      case 0: case 1: case 2: case 3: return load();
      case 4: case 5: return store();
      case 6: return matmul();
      case 7: return indexed();
      case 8: return hbm_to_hbm();
      case 9: return transposed();
      default: return compute();
    }
  }

  // ---- operands
  // A place in HBM that the chosen shape fits into.
  std::optional<AccessPattern> hbm(DType dtype, int rows, SmallVector<Dim, 4> dims, bool write) {
    const size_t region = pick(bytes_.size());
    AccessPattern p;
    p.memory = Memory::hbm;
    p.dtype = dtype;
    p.buffer = static_cast<int16_t>(write || once_in(2) ? bytes_.size() + 1 + region : region);
    p.partitions = static_cast<int16_t>(rows);
    const int64_t size = size_of(dtype);
    int64_t stride = once_in(8) ? 2 : 1;
    if (!write && once_in(20)) stride = 0;
    if (once_in(16)) stride = -1;
    const bool rows_inside = once_in(6);  // partitions are neighbours in memory
    int64_t width = 1;
    for (size_t d = dims.size(); d-- > 0;) {
      dims[d].stride = stride * width * (rows_inside ? rows : 1);
      width *= dims[d].count;
      if (once_in(10)) width += static_cast<int64_t>(pick(3));
    }
    if (dims.size() == 2 && once_in(6)) std::swap(dims[0].stride, dims[1].stride);
    if (!write && dims.size() == 2 && once_in(6)) dims[pick(2)].stride = 0;
    p.dims = dims;
    p.partition_stride = rows_inside ? 1 : width * std::max<int64_t>(1, std::abs(stride)) * (once_in(20) ? 2 : 1);
    switch (pick(14)) {
      case 0: p.partition_stride += 1 + static_cast<int64_t>(pick(4)); break;
      case 1: p.partition_stride *= 2; break;
      case 2: if (!write || once_in(8)) p.partition_stride = 1; break;
      case 3: if (!write) p.partition_stride = 0; break;
      case 4: p.partition_stride = -p.partition_stride; break;
    }
    int64_t low = 0, high = size;
    const auto extend = [&](int64_t step, int64_t count) { (step < 0 ? low : high) += step * (count - 1); };
    extend(p.partition_stride * size, rows);
    for (const Dim& d : p.dims) extend(d.stride * size, d.count);
    int64_t block = high - low;
    for (size_t l = loops_.size(); l-- > 0;) {
      int64_t step = 0;
      switch (pick(8)) {
        case 0: case 1: case 2: case 3: step = block; break;
        case 4: step = size * (1 + static_cast<int64_t>(pick(8))); break;
        case 5: step = p.partition_stride * size; break;
        default: break;
      }
      if (step == 0) continue;
      p.terms.push_back({loops_[l].reg, step});
      extend(step, loops_[l].count);
      if (step == block) block *= loops_[l].count;
    }
    const int64_t room = bytes_[region] - (high - low);
    if (room < 0) {
      if (p.terms.empty()) return std::nullopt;
      p.terms.clear();
      low = 0, high = size;
      extend(p.partition_stride * size, rows);
      for (const Dim& d : p.dims) extend(d.stride * size, d.count);
      if (high - low > bytes_[region]) return std::nullopt;
    }
    const int64_t left = bytes_[region] - (high - low);
    p.offset = -low + (once_in(2) ? 0 : static_cast<int64_t>(pick(static_cast<size_t>(left / 4 + 1))) * 4);
    return p;
  }

  AccessPattern whole(const Tile& t) {
    AccessPattern p;
    p.memory = t.memory;
    p.dtype = t.dtype;
    p.buffer = t.pool;
    p.slot = t.slot;
    p.partition = static_cast<int16_t>(t.first);
    p.partitions = static_cast<int16_t>(t.partitions);
    p.dims.push_back({1, t.free});
    return p;
  }

  // A part of the tile with `rows` partitions and `count` elements in each.
  std::optional<AccessPattern> view(const Tile& t, int rows, int count, bool write) {
    if (rows > t.partitions) return std::nullopt;
    AccessPattern p = whole(t);
    p.partitions = static_cast<int16_t>(rows);
    const int64_t size = size_of(t.dtype);
    const int step = rows <= 32 ? 32 : rows <= 64 ? 64 : 128;
    for (int k = static_cast<int>(pick(4)); k > 0; --k)
      if (once_in(4) && p.partition + step + rows <= t.first + t.partitions && (p.partition + step) % step == 0)
        p.partition = static_cast<int16_t>(p.partition + step);
    p.dims.clear();
    if (count > t.free || (!write && once_in(20))) {
      if (write || t.free < 1) return std::nullopt;
      // Broadcasts.
      if (count % 2 == 0 && count / 2 <= t.free && once_in(2)) {
        if (once_in(2)) p.dims = {{0, 2}, {1, count / 2}};
        else p.dims = {{1, count / 2}, {0, 2}};
      } else {
        p.offset = static_cast<int64_t>(pick(static_cast<size_t>(t.free))) * size;
        p.dims.push_back({0, count});
      }
      return p;
    }
    int room = t.free - count;
    int64_t stride = 1;
    if (count > 1 && (count - 1) * 2 < t.free && once_in(6)) {
      stride = 2;
      room = t.free - ((count - 1) * 2 + 1);
    }
    for (const LoopVar& l : loops_)
      if (once_in(6)) {
        const auto by = static_cast<int>(once_in(2) ? 1 : std::max(1, count));
        if (by * (l.count - 1) > room) continue;
        p.terms.push_back({l.reg, by * size});
        room -= static_cast<int>(by * (l.count - 1));
      }
    if (room > 0 && once_in(2)) p.offset = static_cast<int64_t>(pick(static_cast<size_t>(room) + 1)) * size;
    split(p, stride, count);
    return p;
  }

  void split(AccessPattern& p, int64_t stride, int count) {
    for (const int by : {2, 3, 4})
      if (count % by == 0 && count > by && once_in(5)) {
        p.dims = {{stride * (count / by), by}, {stride, count / by}};
        if (once_in(4)) p.dims = {{stride, by}, {stride * by, count / by}};  // another order of the same elements
        if (once_in(6)) p.dims.push_back({1, 1});
        return;
      }
    p.dims.push_back({stride, count});
    if (once_in(12)) p.dims.push_back({1, 1});
    else if (once_in(12)) p.dims = {{1, 1}, {stride, count}};
  }

  Tile& take(Memory memory, DType dtype, int rows, int count) {
    std::vector<int16_t> fitting;
    for (size_t k = 0; k < core_->pools.size(); ++k)
      if (core_->pools[k].memory == memory && core_->pools[k].bytes >= count * size_of(dtype)) fitting.push_back(static_cast<int16_t>(k));
    // Each depth has pools of its own, mostly: what is taken outside a loop is then still there in its last iteration.
    if (memory == Memory::sbuf && !once_in(12)) {
      std::vector<int16_t> mine;
      for (const int16_t k : fitting)
        if (static_cast<size_t>(k) % 4 == loops_.size()) mine.push_back(k);
      if (!mine.empty()) fitting = mine;
    }
    if (fitting.empty()) {
      fitting.push_back(static_cast<int16_t>(memory == Memory::psum ? core_->pools.size() - 1 : 0));
      count = static_cast<int>(std::min<int64_t>(count, core_->pools[static_cast<size_t>(fitting[0])].bytes / size_of(dtype)));
    }
    Instruction& i = emit(Opcode::rotate, Engine::sync);
    i.pool = fitting[pick(fitting.size())];
    i.reg = static_cast<int16_t>(slots_ > 0 && once_in(60) ? static_cast<int>(pick(static_cast<size_t>(slots_))) : slots_++);
    // Tiles whose slot is taken again are gone, mostly.
    int32_t younger = 0;
    for (size_t t = tiles_.size(); t-- > 0 && !once_in(40);)
      if (tiles_[t].pool == i.pool && ++younger >= core_->pools[static_cast<size_t>(i.pool)].depth)
        tiles_.erase(tiles_.begin() + static_cast<std::ptrdiff_t>(t));
    int first = 0;
    if (rows <= 32 && once_in(4)) first = 32 * static_cast<int>(pick(4));
    else if (rows > 32 && rows <= 64 && once_in(4)) first = 64;
    tiles_.push_back({i.pool, i.reg, memory, first, rows, count, dtype});
    return tiles_.back();
  }
  Tile* any(Memory memory, DType dtype) {
    std::vector<Tile*> found;
    for (Tile& t : tiles_)
      if (t.memory == memory && t.dtype == dtype) found.push_back(&t);
    return found.empty() ? nullptr : found[once_in(3) ? pick(found.size()) : found.size() - 1];
  }
  int width(DType dtype) {
    static constexpr int kSizes[] = {1, 2, 3, 4, 8, 12, 16, 30, 64, 96, 128};
    return std::min<int>(kSizes[pick(std::size(kSizes))], static_cast<int>(512 / size_of(dtype)));
  }
  DType dtype() { return once_in(6) ? DType::bf16 : DType::f32; }

  // ---- statements
  void load() {
    const DType type = dtype();
    Tile& t = take(Memory::sbuf, type, once_in(3) ? partitions() : usual_, width(type));
    const size_t parts = t.free >= 2 && once_in(5) ? 2 : 1;
    for (size_t part = 0; part < parts; ++part) {
      AccessPattern to = whole(t);
      if (parts == 2) {
        const int half = t.free / 2;
        to.offset = part == 0 ? 0 : half * size_of(t.dtype);
        to.dims[0].count = part == 0 ? half : t.free - half;
        if (t.free % 2 == 0 && once_in(3)) to.dims[0].stride = 2, to.offset = static_cast<int64_t>(part) * size_of(t.dtype);
      } else if (once_in(4)) {
        to.dims.clear();
        split(to, 1, t.free);
      }
      SmallVector<Dim, 4> dims = to.dims;
      if (once_in(4)) {
        dims.clear();
        dims.push_back({1, to.dims.size() == 1 ? to.dims[0].count : t.free});
        if (to.dims.size() > 1) dims[0].count = static_cast<int32_t>(to.free_elements());
        if (dims[0].count % 2 == 0 && once_in(2)) dims = {{1, 2}, {1, dims[0].count / 2}};
      }
      const std::optional<AccessPattern> from = hbm(once_in(12) ? DType::f32 : t.dtype, t.partitions, dims, false);
      if (!from) {
        Instruction& i = emit(Opcode::memset, Engine::vector);
        i.s0 = Scalar::imm(static_cast<double>(pick(5)));
        i.dst = to;
        if (!engine_allows(to)) i.opcode = Opcode::event_semaphore, i.dst = {}, i.s0 = {};
        continue;
      }
      Instruction& i = emit(Opcode::dma_copy, Engine::sync, 0);
      i.dst = to;
      i.src.push_back(*from);
    }
  }
  static bool engine_allows(const AccessPattern& p) {
    const int step = p.partitions <= 32 ? 32 : p.partitions <= 64 ? 64 : 128;
    return p.partition % step == 0;
  }

  void store() {
    Tile* t = any(Memory::sbuf, once_in(6) ? DType::bf16 : DType::f32);
    if (!t) return;
    const bool all = !once_in(3);
    const int rows = all ? t->partitions : std::min(t->partitions, partitions());
    const int count = all ? t->free : 1 + static_cast<int>(pick(static_cast<size_t>(t->free)));
    const std::optional<AccessPattern> from = all ? whole(*t) : view(*t, rows, count, false);
    if (!from) return;
    SmallVector<Dim, 4> dims;
    if (count % 2 == 0 && once_in(4)) dims = {{1, 2}, {1, count / 2}};
    else dims.push_back({1, count});
    const std::optional<AccessPattern> to = hbm(once_in(12) ? DType::f32 : t->dtype, rows, dims, true);
    if (!to) return;
    Instruction& i = emit(Opcode::dma_copy, Engine::sync, 0);
    i.dst = *to;
    i.src.push_back(*from);
    i.accumulate = once_in(12);
  }

  void hbm_to_hbm() {
    const int rows = once_in(2) ? usual_ : partitions();
    SmallVector<Dim, 4> dims{{1, width(DType::f32)}};
    const std::optional<AccessPattern> from = hbm(DType::f32, rows, dims, false), to = hbm(DType::f32, rows, dims, true);
    if (!from || !to) return;
    Instruction& i = emit(Opcode::dma_copy, Engine::sync, 0);
    i.dst = *to;
    i.src.push_back(*from);
  }

  void transposed() {
    const int rows = 1 + static_cast<int>(pick(40)), columns = once_in(2) ? std::min(usual_, 64) : 1 + static_cast<int>(pick(40));
    const std::optional<AccessPattern> from = hbm(DType::f32, rows, {{1, columns}}, false);
    if (!from) return;
    Tile& t = take(Memory::sbuf, DType::f32, columns, rows);
    if (t.free != rows) return;
    Instruction& i = emit(Opcode::dma_transpose, Engine::sync, 0);
    i.dst = whole(t);
    i.src.push_back(*from);
  }

  void indexed() {
    const int rows = once_in(2) ? usual_ : partitions(), count = 1 + static_cast<int>(pick(3));
    AccessPattern numbers;
    numbers.memory = Memory::hbm;
    numbers.dtype = DType::i32;
    numbers.buffer = static_cast<int16_t>(bytes_.size());
    numbers.partitions = static_cast<int16_t>(rows);
    numbers.partition_stride = count;
    numbers.dims.push_back({1, count});
    numbers.offset = static_cast<int64_t>(pick(64)) * 4;
    const Tile index = take(Memory::sbuf, DType::i32, rows, count);
    if (index.free != count) return;
    Instruction& i = emit(Opcode::dma_copy, Engine::sync, 0);
    i.dst = whole(index);
    i.src.push_back(numbers);
    const size_t region = pick(bytes_.size());
    const int length = std::min(width(DType::f32), 32);
    AccessPattern table;
    table.memory = Memory::hbm;
    table.dtype = DType::f32;
    table.buffer = static_cast<int16_t>(bytes_.size() + 1 + region);
    table.dims.push_back({1, length});
    table.partitions = 1;
    const int64_t row_bytes = std::min<int64_t>(length * 4, (bytes_[region] - length * 4) / 8 / 4 * 4);
    if (once_in(2) || !any(Memory::sbuf, DType::f32)) {
      const Tile t = take(Memory::sbuf, DType::f32, rows, count * length);
      if (t.free != count * length) return;
      const bool skip = once_in(4);
      if (skip) {
        Instruction& set = emit(Opcode::memset, Engine::vector);
        set.dst = whole(t);
        set.s0 = Scalar::imm(1);
      }
      Instruction& g = emit(Opcode::dma_gather, Engine::gpsimd, 1);
      g.dst = whole(t);
      g.src.push_back(table);
      g.src.push_back(whole(index));
      g.dst.partition = static_cast<int16_t>(t.first);
      g.skip_out_of_bounds = skip;
      g.rows = skip ? 5 : 8;
      g.row_bytes = row_bytes;
      return;
    }
    Tile* t = any(Memory::sbuf, DType::f32);
    const std::optional<AccessPattern> from = view(*t, rows, count * length, false);
    if (!from) return;
    Instruction& s = emit(Opcode::dma_scatter, Engine::gpsimd, 1);
    s.dst = table;
    s.src.push_back(*from);
    s.src.push_back(whole(index));
    s.accumulate = once_in(3);
    s.skip_out_of_bounds = once_in(4);
    s.rows = s.skip_out_of_bounds ? 5 : 8;
    s.row_bytes = row_bytes;
  }

  void matmul() {
    const DType type = once_in(3) ? DType::bf16 : DType::f32;
    const int k = once_in(2) ? 128 : partitions(), m = std::min(partitions(), width(type)), n = width(DType::f32);
    const size_t steps = 1 + pick(3);
    const Tile out = take(Memory::psum, DType::f32, m, n);
    bool first = true;
    if (once_in(6)) {
      Instruction& i = emit(Opcode::memset, Engine::vector);
      i.dst = whole(out);
      i.s0 = Scalar::imm(2);
    }
    AccessPattern last[2];
    for (size_t s = 0; s < steps; ++s) {
      AccessPattern side[2];
      for (int x = 0; x < 2; ++x) {
        const Tile t = take(Memory::sbuf, type, k, x == 0 ? m : n);
        if (t.free != (x == 0 ? m : n)) return;
        Instruction& i = emit(Opcode::dma_copy, Engine::sync, 0);
        i.dst = whole(t);
        std::optional<AccessPattern> from;
        if (s > 0 && !once_in(3)) {  // the next block of K
          from = last[x];
          from->offset += k * from->partition_stride * size_of(type);
          const int64_t end = from->offset + (k - 1) * from->partition_stride * size_of(type) + 4096;
          if (from->offset < 0 || end > program_.buffers[static_cast<size_t>(from->buffer)].bytes) from.reset();
        }
        if (!from) from = hbm(type, k, {{1, t.free}}, false);
        if (!from) {
          i.opcode = Opcode::memset;
          i.engine = Engine::vector;
          i.queue = -1;
          i.s0 = Scalar::imm(0.5);
        } else {
          i.src.push_back(*from);
          last[x] = *from;
        }
        side[x] = whole(t);
        if (!i.src.empty()) continue;
        last[x] = {};
      }
      if (!last[0] || !last[1]) steps_end_ = true;
      Instruction& i = emit(Opcode::nc_matmul, Engine::tensor);
      i.dst = whole(out);
      i.src.push_back(side[0]);
      i.src.push_back(side[1]);
      i.accumulate = !first;
      first = false;
      if (steps_end_) {
        steps_end_ = false;
        break;
      }
    }
    const Tile evacuated = take(Memory::sbuf, once_in(3) ? DType::bf16 : DType::f32, m, n);
    if (evacuated.free != n) return;
    Instruction& i = emit(once_in(2) ? Opcode::tensor_copy : Opcode::activation, Engine::scalar);
    if (i.opcode == Opcode::activation) i.act = isa::ActFn::relu;
    i.dst = whole(evacuated);
    i.src.push_back(whole(out));
    i.dst.partition = static_cast<int16_t>(evacuated.first);
  }

  // Results do not fall on the instruction's own scalars: which of those it has read by then is not defined.
  static void keep_scalars(Instruction& i) {
    for (Scalar* s : {&i.s0, &i.s1})
      if (s->kind == Scalar::Kind::tile && s->tile.slot == i.dst.slot) *s = Scalar::imm(0.5);
  }

  // One instruction on tiles.
  void compute() {
    const Tile* model = any(Memory::sbuf, DType::f32);
    if (!model) return load();
    const Tile like = *model;
    const bool all = !once_in(3);
    int rows = all ? like.partitions : std::min(partitions(), like.partitions);
    int count = all ? like.free : 1 + static_cast<int>(pick(static_cast<size_t>(like.free)));
    const size_t kind = pick(16);
    const auto source = [&](int n) -> std::optional<AccessPattern> {
      for (int attempt = 0; attempt < 3; ++attempt) {
        const Tile* t = attempt == 2 ? nullptr : any(Memory::sbuf, DType::f32);
        if (!t) t = &like;
        if (std::optional<AccessPattern> p = view(*t, rows, n, false)) return p;
      }
      return std::nullopt;
    };
    std::optional<AccessPattern> a = source(count), b = source(count), c = source(count), one = source(1);
    if (!a || !b || !c || !one) return;
    one->dims.clear();
    // The result: a new tile, or part of one that exists.
    const auto result = [&](int n, DType type = DType::f32) -> std::optional<AccessPattern> {
      if (type == DType::f32 && once_in(3)) {
        const Tile* t = any(Memory::sbuf, DType::f32);
        if (!t) t = &like;
        if (std::optional<AccessPattern> p = view(*t, rows, n, true)) return p;
      }
      const DType stored = type == DType::f32 ? dtype() : type;
      const Tile& t = take(Memory::sbuf, stored, rows, n);
      if (t.free != n) return std::nullopt;
      AccessPattern p = whole(t);
      if (once_in(5)) {
        p.dims.clear();
        split(p, 1, n);
      }
      return p;
    };
    static constexpr AluOp kOps[] = {AluOp::add, AluOp::subtract, AluOp::max, AluOp::min, AluOp::is_gt};
    const AluOp op = kOps[pick(5)];
    const auto scalar = [&] { return once_in(2) ? Scalar::imm(0.5) : once_in(3) ? Scalar::arg(0) : Scalar::of(*one); };
    const auto make = [&](Opcode opcode, Engine engine, int n, std::initializer_list<AccessPattern> sources) -> Instruction* {
      const std::optional<AccessPattern> dst = result(n);
      if (!dst) return nullptr;
      Instruction& i = emit(opcode, engine);
      i.dst = *dst;
      for (const AccessPattern& s : sources) i.src.push_back(s);
      return &i;
    };
    switch (kind) {
      case 0: case 1: case 2:
        if (Instruction* i = make(Opcode::tensor_tensor, once_in(2) ? Engine::vector : Engine::gpsimd, count, {*a, *b})) i->op0 = op;
        return;
      case 3: case 4:
        if (Instruction* i = make(Opcode::tensor_scalar, once_in(2) ? Engine::vector : Engine::gpsimd, count, {*a})) {
          i->op0 = op;
          i->s0 = scalar();
          i->reverse0 = once_in(3);
          if (once_in(3)) i->op1 = AluOp::add, i->s1 = scalar();
          keep_scalars(*i);
        }
        return;
      case 5:
        if (Instruction* i = make(Opcode::activation, Engine::scalar, count, {*a})) {
          i->act = once_in(2) ? isa::ActFn::copy : isa::ActFn::relu;
          if (once_in(2)) i->s0 = scalar();
          if (once_in(2)) i->s1 = scalar();
          keep_scalars(*i);
        }
        return;
      case 6: {
        const Tile& row = take(Memory::sbuf, DType::f32, rows, 1);
        const AccessPattern second = whole(row);
        if (Instruction* i = make(Opcode::activation, Engine::scalar, count, {*a})) {
          i->act = isa::ActFn::relu;
          i->op0 = AluOp::add;
          i->dst1 = second;
        } else {
          tiles_.pop_back();
        }
        return;
      }
      case 7: make(Opcode::tensor_copy, once_in(2) ? Engine::vector : Engine::gpsimd, count, {*a}); return;
      case 8: make(Opcode::select, Engine::vector, count, {*a, *b, *c}); return;
      case 9:
        if (std::optional<AccessPattern> dst = view(like, rows, count, true)) {
          Instruction& i = emit(Opcode::tensor_copy_predicated, Engine::vector);
          i.dst = *dst;
          i.src.push_back(*a);
          i.src.push_back(*b);
          i.reverse0 = once_in(2);
        }
        return;
      case 10: {
        if (a->dims.empty()) return;
        int kept = 1;
        const size_t axes = 1 + pick(a->dims.size());
        for (size_t d = 0; d + axes < a->dims.size(); ++d) kept *= a->dims[d].count;
        if (Instruction* i = make(Opcode::tensor_reduce, Engine::vector, kept, {*a})) {
          i->op0 = once_in(2) ? AluOp::add : AluOp::max;
          i->axes = static_cast<int8_t>(axes);
          i->negate = once_in(4);
        }
        return;
      }
      case 11:
        if (Instruction* i = make(Opcode::tensor_tensor_scan, Engine::vector, count, {*a, *b})) {
          i->op0 = AluOp::max;
          i->op1 = AluOp::min;
          i->s0 = Scalar::imm(0);
        }
        return;
      case 12: {
        const bool numbers = once_in(2);
        if (Instruction* i = numbers ? make(Opcode::iota, Engine::gpsimd, count, {}) : make(Opcode::affine_select, Engine::gpsimd, count, {*a})) {
          i->s0 = Scalar::imm(static_cast<double>(pick(9)) - 4);
          i->channel_multiplier = static_cast<int64_t>(pick(4)) - 1;
          i->pattern = {{static_cast<int64_t>(pick(5)) - 2, count}};
          if (count % 2 == 0 && once_in(3)) i->pattern = {{7, 2}, {1, count / 2}};
          for (const LoopVar& l : loops_)
            if (once_in(3)) i->pattern_terms.push_back({l.reg, static_cast<int64_t>(pick(7))});
          if (!numbers) {
            i->op0 = AluOp::is_ge;
            i->s1 = Scalar::imm(-7);
          }
        }
        return;
      }
      case 13: {
        const size_t which = pick(3);
        std::optional<AccessPattern> dst = view(like, rows, which == 1 ? 1 : count, true);
        if (!dst || once_in(2)) dst = result(which == 1 ? 1 : count);
        if (!dst) return;
        AccessPattern from = *a, other = *b;
        const int rows_of = count % 2 == 0 && once_in(2) ? 2 : 1;  // rows in each partition
        const auto shape = [&](AccessPattern& p, int n) {
          const int64_t stride = p.dims.empty() ? 1 : p.dims.size() == 1 ? p.dims[0].stride : 1;
          p.dims.clear();
          if (rows_of > 1) p.dims.push_back({stride * (n / rows_of), rows_of});
          p.dims.push_back({stride, n / rows_of});
        };
        shape(from, count);
        shape(other, count);
        if (which != 1) shape(*dst, count);
        else if (once_in(2)) dst->dims = {{1, 1}};
        else if (rows_of > 1) return;
        Instruction& i = emit(Opcode::gpsimd_kernel, Engine::gpsimd);
        i.kernel = static_cast<int16_t>(which);
        i.dst = *dst;
        i.src.push_back(from);
        if (which == 2) {
          i.src.push_back(other);
          i.dst1 = *dst;
          const Tile& t = take(Memory::sbuf, DType::f32, rows, count);
          Instruction& last = core_->code.back();  // the rotation
          std::swap(core_->code[core_->code.size() - 2], last);
          Instruction& k = core_->code.back();
          k.dst1 = whole(t);
          if (t.free != count) {
            drop();
            return;
          }
          shape(k.dst1, count);
          return;
        }
        if (once_in(2)) i.s0 = Scalar::imm(3);
        if (once_in(3) && rows_of == 1) {
          i.pattern = {{2, count}};
          i.channel_multiplier = static_cast<int64_t>(pick(3));
        }
        for (const LoopVar& l : loops_)
          if (once_in(3)) i.pattern_terms.push_back({l.reg, 5});
        return;
      }
      case 14: {
        // On-chip transfers, transposes of small squares.
        if (once_in(2)) {
          const std::optional<AccessPattern> dst = result(count);
          if (!dst || dst->dtype != DType::f32) return;
          Instruction& i = emit(Opcode::dma_copy, Engine::sync, 0);
          i.dst = *dst;
          i.src.push_back(*a);
          return;
        }
        if (count > 32 || rows > 32) return;
        const Tile& t = take(Memory::sbuf, DType::f32, count, rows);
        if (t.free != rows) return;
        Instruction& i = emit(Opcode::nc_transpose, Engine::vector);
        i.dst = whole(t);
        i.src.push_back(*a);
        return;
      }
      default: {
        const int saved = rows;
        rows = 1;
        const std::optional<AccessPattern> dst = result(count);
        rows = saved;
        if (!dst) return;
        Instruction& i = emit(Opcode::tensor_partition_reduce, Engine::gpsimd);
        i.op0 = AluOp::add;
        i.dst = *dst;
        i.src.push_back(*a);
      }
    }
  }

  std::mt19937 random_;
  isa::Program program_;
  isa::CoreProgram* core_ = nullptr;
  std::vector<int64_t> bytes_;
  std::vector<Tile> tiles_;
  std::vector<LoopVar> loops_;
  int registers_ = 0, slots_ = 0, usual_ = 1;
  bool steps_end_ = false;
};

}  // namespace opentrn::exec
