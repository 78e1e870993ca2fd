#include "cost/hazards.h"

#include <algorithm>

namespace opentrn::cost {

using isa::AccessPattern;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;

namespace {

struct Range {
  int64_t low = 0, high = 0;  // bytes from the slot's start, without the loop-dependent terms
};

Range range_of(const AccessPattern& ap) {
  int64_t low = 0, high = 0;
  for (const isa::Dim& d : ap.dims) {
    int64_t span = d.stride * (d.count - 1);
    (span < 0 ? low : high) += span;
  }
  int64_t size = size_of(ap.dtype);
  return {ap.offset + low * size, ap.offset + (high + 1) * size};
}

bool on_chip(const AccessPattern& ap) { return ap.memory == Memory::sbuf || ap.memory == Memory::psum; }

}  // namespace

Hazards::Hazards(const isa::CoreProgram& core) : core_(core) {
  size_t n = core.code.size();
  end_of_.assign(n, -1);
  parent_.assign(n, -1);
  std::vector<int> open;
  for (size_t i = 0; i < n; ++i) {
    const Instruction& in = core.code[i];
    int index = static_cast<int>(i);
    if (in.opcode == Opcode::loop_end) {
      end_of_[static_cast<size_t>(open.back())] = index;
      open.pop_back();
    }
    parent_[i] = open.empty() ? -1 : open.back();
    if (in.opcode == Opcode::loop_begin) open.push_back(index);
    if (in.opcode == Opcode::rotate) rotates_.push_back(index);
  }
}

bool Hazards::rotated(int register_, int from, int to) const {
  for (auto it = std::upper_bound(rotates_.begin(), rotates_.end(), from); it != rotates_.end() && *it < to; ++it)
    if (core_.code[static_cast<size_t>(*it)].reg == register_) return true;
  return false;
}

bool Hazards::conflicts(const AccessPattern& w, const AccessPattern& r, int writer, int reader, int loop_begin,
                        int loop_end) const {
  if (w.memory != r.memory || w.buffer != r.buffer) return false;
  if (w.partition + w.partitions <= r.partition || r.partition + r.partitions <= w.partition) return false;
  bool round = loop_begin >= 0;  // the writer ran in the previous iteration of this loop
  if (core_.pools[static_cast<size_t>(w.buffer)].depth > 1) {
    if (w.slot != r.slot) return false;  // two registers hold slots of two rotations
    bool moved = round ? rotated(w.slot, writer, loop_end) || rotated(w.slot, loop_begin, reader) : rotated(w.slot, writer, reader);
    if (moved) return false;
  }
  if (!(w.terms == r.terms)) return true;
  int64_t shift = 0;
  if (round) {
    int loop_register = core_.code[static_cast<size_t>(loop_begin)].reg;
    for (const isa::Term& t : w.terms) {
      if (t.reg == loop_register) shift += t.bytes;
      else if (t.bytes != 0) {
        // A register of a loop between this one and the operands has another value; one of an outer loop has not.
        for (int p = std::max(parent_[static_cast<size_t>(writer)], parent_[static_cast<size_t>(reader)]); p > loop_begin;
             p = parent_[static_cast<size_t>(p)])
          if (core_.code[static_cast<size_t>(p)].reg == t.reg) return true;
      }
    }
  }
  Range a = range_of(w), b = range_of(r);
  return a.low < b.high + shift && b.low + shift < a.high;
}

bool Hazards::reads_result(int writer, int reader, int loop_begin, int loop_end) const {
  const Instruction& w = core_.code[static_cast<size_t>(writer)];
  const Instruction& r = core_.code[static_cast<size_t>(reader)];
  if (isa::is_dma(w.opcode)) return false;  // its result is announced by a semaphore
  for (const AccessPattern* write : {&w.dst, &w.dst1}) {
    if (!on_chip(*write)) continue;
    auto hits = [&](const AccessPattern& read) {
      return on_chip(read) && conflicts(*write, read, writer, reader, loop_begin, loop_end);
    };
    for (const AccessPattern& read : r.src)
      if (hits(read)) return true;
    if (r.s0.kind == isa::Scalar::Kind::tile && hits(r.s0.tile)) return true;
    if (r.s1.kind == isa::Scalar::Kind::tile && hits(r.s1.tile)) return true;
    if (r.opcode == Opcode::tensor_copy_predicated && hits(r.dst)) return true;
  }
  return false;
}

std::vector<int> Hazards::writers_read_by(int reader, const std::vector<int>& engine_code, int window) const {
  std::vector<int> writers;
  auto add = [&](int writer, int loop_begin, int loop_end) {
    if (std::find(writers.begin(), writers.end(), writer) != writers.end()) return;
    if (reads_result(writer, reader, loop_begin, loop_end)) writers.push_back(writer);
  };
  auto at = std::lower_bound(engine_code.begin(), engine_code.end(), reader);
  int left = window;
  for (auto it = at; it != engine_code.begin() && left > 0; --left) add(*--it, -1, -1);
  // The ends of the enclosing loops: they ran just before when the loop comes round.
  for (int loop = parent_[static_cast<size_t>(reader)]; loop >= 0; loop = parent_[static_cast<size_t>(loop)]) {
    int end = end_of_[static_cast<size_t>(loop)];
    auto first = std::lower_bound(engine_code.begin(), engine_code.end(), loop);
    int before = static_cast<int>(at - first);  // instructions of this iteration ahead of the reader
    auto it = std::lower_bound(engine_code.begin(), engine_code.end(), end);
    for (left = window - before; it != first && *(it - 1) >= reader && left > 0; --left) add(*--it, loop, end);
  }
  return writers;
}

}  // namespace opentrn::cost
