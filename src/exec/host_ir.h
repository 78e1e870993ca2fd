// What the host plan's passes work on: the code of one core, or of one unit of it, as a tree of loops.
//
// A `rotate` and everything that refers to the slot it took form a *tile*: memory of its own, whose contents are not
// defined before it is written. Operands in SBUF and PSUM name their tile in `slot`; rotations are gone. A program in which
// tiles would not behave like the slots of its pools is not planned (Unplannable).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/small_vector.h"
#include "isa/access.h"
#include "isa/program.h"

namespace opentrn::exec::host {

// The program, or the part at hand, has to be executed as it is written. `what` is for developers.
struct Unplannable {
  std::string what;
};

struct Tile {
  int pool = -1;
  int64_t bytes = 0;   // per partition
  int rotation = -1;   // position of the rotate in the core's code
};

// A loop (opcode loop_begin, with a body) or an instruction.
struct Node {
  isa::Instruction instruction;
  int source = -1;     // position in the core's code
  std::vector<Node> body;
  bool is_loop() const { return instruction.opcode == isa::Opcode::loop_begin; }
};

struct Loop {
  const Node* node = nullptr;
  int16_t reg = -1;
  int64_t count = 1;
  int begin = 0, end = 0;  // leaves inside
};

// One operand of one instruction.
struct Use {
  Node* node = nullptr;
  isa::AccessPattern* pattern = nullptr;
  int leaf = -1;                 // instructions numbered in program order
  int root = -1;                 // hbm: the buffer that its aliases lead to
  bool reads = false, writes = false, indirect = false;
  bool gone = false;             // its instruction has been removed
  SmallVector<int, 12> loops;    // enclosing loops, outermost first: indices into Uses::loops
  bool on_chip() const { return pattern->memory != isa::Memory::hbm; }
  int tile() const { return on_chip() ? pattern->slot : -1; }
};

// All operands of a forest of nodes, in program order. Invalid once the nodes move.
struct Uses {
  std::vector<Loop> loops;
  std::vector<Use> all;
  std::vector<Node*> leaves;
  std::vector<std::vector<int>> of_tile;  // indices into `all`
};

// `roots[b]`: the buffer all aliases of buffer b lead to.
std::vector<int> alias_roots(const isa::Program& program);
Uses uses_of(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots, size_t tiles);

// The core's code as a tree with tiles. Throws Unplannable.
struct CoreCode {
  std::vector<Node> nodes;
  std::vector<Tile> tiles;
  int loop_registers = 0;
};
CoreCode tree_of(const isa::Program& program, int core);
// Throws Unplannable unless tiles may have memory of their own: no slot is taken again, and no overlapping pool written,
// while a tile is in use.
void check_tiles(const CoreCode& code, const Uses& uses, const isa::CoreProgram& core);
// Whether each element of the pattern has bytes of its own; false also where its dimensions are not nested.
bool elements_apart(const isa::AccessPattern& pattern);
// True when every byte of its tile that a use reads was written before, in the same iteration of the loops around the tile.
bool reads_what_was_written(const Uses& uses, const Use& read);

// How many loops enclose both.
size_t common_loops(const Use& a, const Use& b);
// The bytes of the use over all iterations of its loops from the `from`-th on; earlier loops' terms are left out.
isa::ByteSet bytes_over(const Uses& uses, const Use& use, size_t from, const isa::Program& program);
// Bytes that the use moves per iteration of `reg`.
int64_t step_of(const Use& use, int16_t reg);
// Whether the uses may touch the same bytes of HBM: in the same iteration of their first `shared` common loops, in any
// iterations of the others.
bool may_conflict(const Uses& uses, const Use& a, const Use& b, size_t shared, const isa::Program& program);
// Whether they may touch the same bytes in *different* iterations of loop number `at` of both, the same ones of those before.
bool may_conflict_across(const Uses& uses, const Use& a, const Use& b, size_t at, const isa::Program& program);

}  // namespace opentrn::exec::host
