// Cuts a core's code into units: pieces that can be executed on their own, with on-chip memory of their own.
#pragma once

#include <vector>

#include "exec/host_ir.h"

namespace opentrn::exec::host {

struct Unit {
  int core = 0;
  int phase = 0;               // barriers before it
  int stage = 0;               // within the phase: units of one stage may run at the same time, later ones need earlier ones
  std::vector<Node> nodes;     // first what the unit needs in its tiles (on-chip only, repeated for every group)
  bool parallel = false;       // the last node is a loop whose iterations may run in any order
};

// The units of a core in program order. Throws Unplannable.
std::vector<Unit> units_of(const isa::Program& program, int core, const CoreCode& code, const Uses& uses);

}  // namespace opentrn::exec::host
