// Graph to program: simplify, split into kernels, fuse, tile, place, synchronise, verify.
#pragma once

#include <memory>
#include <string>

#include "graph/graph.h"
#include "isa/program.h"
#include "spec/chip.h"

namespace opentrn::compiler {

// Enters every program's key: raise it whenever the same graph may compile to another program.
inline constexpr int kCompilerVersion = 1;

struct Options {
  int lnc = 1;          // physical cores to use
  bool verify = true;   // prove the program sound; off only for measuring the compiler's own time
};

// The program's buffers are the graph's parameters, then its results (with `alias` set where a result overwrites
// a parameter), then scratch and constants; its scalars are the graph's scalars.
// Throws Unsupported naming the node when the graph needs something this version cannot compile.
std::shared_ptr<const isa::Program> compile(const graph::Graph& graph, const spec::Chip& chip, const Options& options);

}  // namespace opentrn::compiler
