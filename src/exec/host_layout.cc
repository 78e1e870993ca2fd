#include "exec/host_layout.h"

#include <algorithm>

namespace opentrn::exec::host {
namespace {

using isa::AccessPattern;
using isa::Memory;

struct Block {
  int tile = -1;
  int begin = 0, end = 0;  // leaves, inclusive
  int64_t bytes = 0, offset = 0;
};

// When a tile's memory is in use: from its first to its last access, the whole of loops that contain only some of them.
Block life_of(const Uses& uses, size_t tile) {
  Block block;
  block.tile = static_cast<int>(tile);
  block.begin = static_cast<int>(uses.leaves.size());
  block.end = -1;
  const std::vector<int>& all = uses.of_tile[tile];
  const Use& first = uses.all[static_cast<size_t>(all[0])];
  size_t shared = first.loops.size();
  for (const int u : all) shared = std::min(shared, common_loops(first, uses.all[static_cast<size_t>(u)]));
  for (const int u : all) {
    const Use& use = uses.all[static_cast<size_t>(u)];
    int begin = use.leaf, end = use.leaf;
    if (use.loops.size() > shared) {
      const Loop& loop = uses.loops[static_cast<size_t>(use.loops[shared])];
      begin = loop.begin;
      end = loop.end - 1;
    }
    block.begin = std::min(block.begin, begin);
    block.end = std::max(block.end, end);
  }
  return block;
}

void flatten(std::span<const Node> nodes, isa::CoreProgram& core, std::vector<int>& sources) {
  for (const Node& node : nodes) {
    core.code.push_back(node.instruction);
    sources.push_back(node.source);
    if (!node.is_loop()) continue;
    flatten(node.body, core, sources);
    core.code.emplace_back().opcode = isa::Opcode::loop_end;
    sources.push_back(node.source);
  }
}

}  // namespace

Layout lay_out(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots,
               const std::vector<Place>& places) {
  Uses uses = uses_of(nodes, program, roots, places.size());
  std::vector<Block> blocks;
  for (size_t t = 0; t < places.size(); ++t) {
    if (uses.of_tile[t].empty()) continue;
    Block block = life_of(uses, t);
    block.bytes = places[t].rows * places[t].pitch + 64;  // a line of slack for vector loads at the end
    blocks.push_back(block);
  }
  // First fit, in order of first use.
  std::ranges::sort(blocks, {}, &Block::begin);
  Layout layout;
  std::vector<const Block*> alive;
  for (Block& block : blocks) {
    alive.clear();
    for (const Block& other : blocks)
      if (&other < &block && other.end >= block.begin) alive.push_back(&other);
    std::ranges::sort(alive, {}, &Block::offset);
    for (const Block* other : alive) {
      if (block.offset + block.bytes <= other->offset) break;
      block.offset = std::max(block.offset, other->offset + other->bytes);
    }
    layout.bytes = std::max(layout.bytes, static_cast<size_t>(block.offset + block.bytes));
  }
  std::vector<int64_t> offsets(places.size(), 0);
  for (const Block& block : blocks) offsets[static_cast<size_t>(block.tile)] = block.offset;

  for (const Use& use : uses.all) {
    AccessPattern& p = *use.pattern;
    if (p.memory == Memory::hbm) continue;
    const auto tile = static_cast<size_t>(p.slot);
    const Place& place = places[tile];
    const int64_t size = size_of(p.dtype);
    p.offset += offsets[tile] + (place.strip ? 0 : p.partition - place.first) * place.pitch;
    p.partition_stride = place.pitch / size;
    p.memory = Memory::hbm;
    p.buffer = static_cast<int16_t>(program.buffers.size());
    p.partition = 0;
    p.slot = -1;
  }
  return layout;
}

void decode_nodes(std::span<const Node> nodes, const isa::Program& program, Executable::Code& code) {
  isa::CoreProgram flat;
  std::vector<int> sources;
  flatten(nodes, flat, sources);
  decode(program, flat, Context{program, flat, 0, 0}, code);
  for (Step& step : code.steps) step.instruction = sources[static_cast<size_t>(step.instruction)];
}

}  // namespace opentrn::exec::host
