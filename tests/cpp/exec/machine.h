// One core, one pool over all of SBUF and one over all of PSUM, and HBM buffers: enough to run single instructions
// and to look at any element of an access pattern by a plain address calculation.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "exec/floats.h"
#include "exec/interpreter.h"
#include "isa/program.h"

namespace opentrn::exec {

using isa::AccessPattern;
using isa::ActFn;
using isa::AluOp;
using isa::Dim;
using isa::Engine;
using isa::Instruction;
using isa::KernelOp;
using isa::KernelType;
using isa::Memory;
using isa::Opcode;
using isa::Scalar;

inline spec::Chip test_chip() {
  spec::Chip chip;
  chip.name = "test";
  chip.sbuf_bytes_per_partition = 65536;
  chip.psum_bytes_per_partition = 16384;
  return chip;
}

class Machine {
 public:
  explicit Machine(int cores = 1) : chip_(test_chip()) {
    program_->cores.resize(static_cast<size_t>(cores));
    for (isa::CoreProgram& core : program_->cores) {
      core.pools = {{"sbuf", Memory::sbuf, 0, chip_.sbuf_bytes_per_partition, 1}, {"psum", Memory::psum, 0, chip_.psum_bytes_per_partition, 1}};
      memories_.push_back(std::make_unique<CoreMemory>(chip_));
      memories_.back()->poison();
    }
  }

  isa::Program& program() { return *program_; }
  CoreMemory& memory(int core = 0) { return *memories_[static_cast<size_t>(core)]; }

  static AccessPattern sbuf(DType dtype, int partitions, SmallVector<Dim, 4> dims, int64_t offset = 0, int partition = 0) {
    AccessPattern ap;
    ap.memory = Memory::sbuf;
    ap.dtype = dtype;
    ap.buffer = 0;
    ap.partition = static_cast<int16_t>(partition);
    ap.partitions = static_cast<int16_t>(partitions);
    ap.offset = offset;
    ap.dims = dims;
    return ap;
  }
  static AccessPattern psum(DType dtype, int partitions, SmallVector<Dim, 4> dims, int64_t offset = 0) {
    AccessPattern ap = sbuf(dtype, partitions, dims, offset);
    ap.memory = Memory::psum;
    ap.buffer = 1;
    return ap;
  }
  // A dense row of n elements in each partition.
  static AccessPattern row(DType dtype, int partitions, int n, int64_t offset = 0) { return sbuf(dtype, partitions, {{1, n}}, offset); }
  static AccessPattern hbm(int buffer, DType dtype, int partitions, int64_t partition_stride, SmallVector<Dim, 4> dims, int64_t offset = 0) {
    AccessPattern ap;
    ap.memory = Memory::hbm;
    ap.dtype = dtype;
    ap.buffer = static_cast<int16_t>(buffer);
    ap.partitions = static_cast<int16_t>(partitions);
    ap.partition_stride = partition_stride;
    ap.dims = dims;
    ap.offset = offset;
    return ap;
  }
  int buffer(int64_t bytes) {
    program_->buffers.push_back({isa::Buffer::Kind::output, std::to_string(data_.size()), bytes, -1, {}});
    data_.emplace_back(static_cast<size_t>(bytes), std::byte{0xFF});
    return static_cast<int>(data_.size()) - 1;
  }
  std::byte* data(int buffer) { return data_[static_cast<size_t>(buffer)].data(); }

  Instruction& emit(Opcode opcode, Engine engine, AccessPattern dst = {}, std::initializer_list<AccessPattern> src = {}, int core = 0) {
    Instruction i;
    i.opcode = opcode;
    i.engine = engine;
    i.dst = dst;
    for (const AccessPattern& s : src) i.src.push_back(s);
    auto& code = program_->cores[static_cast<size_t>(core)].code;
    code.push_back(i);
    return code.back();
  }

  // Runs the program and forgets its code, so that a test can go on with the next instruction.
  bool run(std::vector<ScalarValue> scalars = {}) {
    const Executable executable(std::make_shared<isa::Program>(*program_), chip_);
    std::vector<std::byte*> buffers;
    for (auto& d : data_) buffers.push_back(d.data());
    std::vector<CoreMemory*> memories;
    for (auto& m : memories_) memories.push_back(m.get());
    fault = {};
    const bool ok = exec::run(executable, memories, buffers, scalars, fault);
    for (isa::CoreProgram& core : program_->cores) core.code.clear();
    return ok;
  }
  Fault fault;

  // Address of element `index` (flattened free position) of partition p.
  std::byte* at(const AccessPattern& ap, int64_t p, int64_t index, int core = 0) {
    const int64_t size = size_of(ap.dtype);
    std::byte* base;
    if (ap.memory == Memory::hbm) base = data(ap.buffer) + ap.offset + p * ap.partition_stride * size;
    else if (ap.memory == Memory::sbuf) base = memory(core).sbuf() + (ap.partition + p) * memory(core).sbuf_pitch() + ap.offset;
    else base = memory(core).psum() + (ap.partition + p) * memory(core).psum_pitch() + ap.offset;
    for (size_t d = ap.dims.size(); d-- > 0;) {
      base += index % ap.dims[d].count * ap.dims[d].stride * size;
      index /= ap.dims[d].count;
    }
    return base;
  }

  double get(const AccessPattern& ap, int64_t p, int64_t index, int core = 0) { return read(ap.dtype, at(ap, p, index, core)); }
  void set(const AccessPattern& ap, int64_t p, int64_t index, double value, int core = 0) { write(ap.dtype, at(ap, p, index, core), value); }

  // Fills a pattern with f(p, index).
  template <typename F>
  void fill(const AccessPattern& ap, F&& f, int core = 0) {
    for (int64_t p = 0; p < ap.partitions; ++p)
      for (int64_t i = 0; i < ap.free_elements(); ++i) set(ap, p, i, f(p, i), core);
  }
  // Small integers over 8, or whole numbers for integer types: exact in every type wider than 8 bits.
  void fill_random(const AccessPattern& ap, int low = -40, int high = 40) {
    std::uniform_int_distribution<int> any(is_signed(ap.dtype) ? low : 0, high);
    const double scale = is_float(ap.dtype) ? 0.125 : 1;
    fill(ap, [&](int64_t, int64_t) { return ap.dtype == DType::boolean ? any(random) & 1 : any(random) * scale; });
  }
  std::mt19937 random{7};

  static double read(DType dtype, const std::byte* at) {
    const auto as = [at](auto v) {
      std::memcpy(&v, at, sizeof v);
      return v;
    };
    switch (dtype) {
      case DType::boolean: return as(uint8_t{}) != 0;
      case DType::u8: return as(uint8_t{});
      case DType::i8: return as(int8_t{});
      case DType::u16: return as(uint16_t{});
      case DType::i16: return as(int16_t{});
      case DType::u32: return as(uint32_t{});
      case DType::i32: return as(int32_t{});
      case DType::u64: return static_cast<double>(as(uint64_t{}));
      case DType::i64: return static_cast<double>(as(int64_t{}));
      case DType::f16: return static_cast<double>(as(_Float16{}));
      case DType::bf16: return bf16_to_f32(as(uint16_t{}));
      case DType::f32: return as(float{});
      case DType::f64: return as(double{});
      default: return f8_to_f32(dtype, as(uint8_t{}));
    }
  }
  static void write(DType dtype, std::byte* at, double value) {
    const auto as = [at](auto v) { std::memcpy(at, &v, sizeof v); };
    switch (dtype) {
      case DType::boolean: return as(static_cast<uint8_t>(value != 0));
      case DType::u8: return as(static_cast<uint8_t>(value));
      case DType::i8: return as(static_cast<int8_t>(value));
      case DType::u16: return as(static_cast<uint16_t>(value));
      case DType::i16: return as(static_cast<int16_t>(value));
      case DType::u32: return as(static_cast<uint32_t>(value));
      case DType::i32: return as(static_cast<int32_t>(value));
      case DType::u64: return as(static_cast<uint64_t>(value));
      case DType::i64: return as(static_cast<int64_t>(value));
      case DType::f16: return as(static_cast<_Float16>(static_cast<float>(value)));
      case DType::bf16: return as(f32_to_bf16(static_cast<float>(value)));
      case DType::f32: return as(static_cast<float>(value));
      case DType::f64: return as(value);
      default: return as(f32_to_f8(dtype, static_cast<float>(value)));
    }
  }

 private:
  spec::Chip chip_;
  std::shared_ptr<isa::Program> program_ = std::make_shared<isa::Program>();
  std::vector<std::unique_ptr<CoreMemory>> memories_;
  std::vector<std::vector<std::byte>> data_;
};

// What a value becomes when it is stored as `dtype`.
inline double rounded(DType dtype, double value) {
  alignas(8) std::byte bytes[8];
  Machine::write(dtype, bytes, value);
  return Machine::read(dtype, bytes);
}

inline bool same_value(double a, double b) { return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b)); }

}  // namespace opentrn::exec
