#include "compiler/compile.h"

#include <stdexcept>

#include "base/error.h"
#include "compiler/kernel_builder.h"
#include "compiler/plan.h"
#include "compiler/simplify.h"
#include "isa/verify.h"

namespace opentrn::compiler {
namespace {

struct Emit {
  KernelBuilder& builder;
  int cores;
  void operator()(const Fused& t) const { emit_fused(builder, t, cores); }
  void operator()(const Matmul& t) const { emit_matmul(builder, t, cores); }
  void operator()(const Gather& t) const { emit_gather(builder, t, cores); }
  void operator()(const Scatter& t) const { emit_scatter(builder, t, cores); }
  void operator()(const Scan& t) const { emit_scan(builder, t, cores); }
  void operator()(const TopK& t) const { emit_top_k(builder, t, cores); }
};

}  // namespace

std::shared_ptr<const isa::Program> compile(const graph::Graph& graph, const spec::Chip& chip, const Options& options) {
  graph::verify(graph);
  auto program = std::make_shared<isa::Program>();
  program->name = graph.name;
  program->chip = chip.name;
  const std::vector<Task> tasks = plan(simplify(graph), *program);
  try {
    for (int core = 0; core < options.lnc; ++core) {
      KernelBuilder builder(*program, core, chip);
      for (const Task& task : tasks) {
        std::visit(Emit{builder, options.lnc}, task);
        builder.end_kernel();
      }
      builder.finish();
    }
  } catch (const std::length_error&) {
    // An access pattern has four free dimensions and an address six loop terms.
    throw Unsupported("'" + graph.name + "': an operand needs more dimensions than an access pattern has");
  }
  if (options.verify) isa::verify(*program, chip);
  return program;
}

}  // namespace opentrn::compiler
