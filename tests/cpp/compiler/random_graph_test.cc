// Random graphs against the evaluator.
// A failure prints the graph's text, which is a test by itself. OPENTRN_FUZZ=<n> tries n graphs from a new seed.
#include <cstdlib>

#include "check_graph.h"
#include "random_graph.h"

namespace opentrn::compiler {
namespace {

TEST(RandomGraphs, AgreesWithTheEvaluator) {
  const char* fuzz = std::getenv("OPENTRN_FUZZ");
  const uint32_t first = fuzz ? std::random_device()() : 1, count = fuzz ? std::stoul(fuzz) : 150;
  for (uint32_t seed = first; seed != first + count; ++seed) {
    const graph::Graph g = RandomGraph(seed).make();
    // bf16: an engine keeps f32 between operations that it fuses only where the values are the same.
    check_graph(g, {}, 8, seed);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace opentrn::compiler
