// Strip mining: a run of instructions that keep to their partitions is executed a few partitions at a time, so that what
// one leaves the next finds in the cache.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/host_ir.h"

namespace opentrn::exec::host {

// The host memory of a tile.
struct Place {
  int first = 0, rows = 0;  // partitions that have a row
  bool strip = false;       // never outlives a strip: rows are those of one strip, whichever it is
  int64_t pitch = 0;        // bytes from row to row
};

// Wraps runs in strip loops over new loop registers. Returns the tiles' places. `nodes` are rewritten: the operands of a
// run cover one strip, with terms of the strip loop.
// `keep_last`: the last node is a loop that has to stay the outermost one.
std::vector<Place> strip_mine(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots,
                              const std::vector<Tile>& tiles, int& loop_registers, bool keep_last);

}  // namespace opentrn::exec::host
