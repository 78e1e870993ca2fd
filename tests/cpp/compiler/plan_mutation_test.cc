// Damaged programs: where the verifier still accepts one, the host plan and the reference interpreter must agree on it,
// whatever it now computes. OPENTRN_FUZZ=<n> tries n damages of each program from a new seed.
#include <cstdlib>

#include "check_graph.h"
#include "graph/builder.h"
#include "isa/mutate.h"
#include "isa/verify.h"
#include "matmul_case.h"
#include "random_graph.h"

namespace opentrn::compiler {
namespace {

using graph::Builder;
using graph::Op;
using graph::ValueId;

const spec::Chip& trn2() { return spec::chip("trn2"); }

std::string difference(const isa::Program& program, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Bytes> memory;
  std::vector<std::byte*> buffers;
  for (const isa::Buffer& b : program.buffers) {
    graph::Parameter p;
    p.name = b.name;
    const bool index = b.name.rfind("index", 0) == 0;
    p.type = {index ? DType::i64 : DType::f32, {b.bytes / (index ? 8 : 4)}};
    p.layout = {{1}};
    memory.push_back(random_values(p, random));
    memory.back().resize(static_cast<size_t>(std::max<int64_t>(b.bytes, 1)));
    if (b.kind == isa::Buffer::Kind::constant) memory.back() = b.data;
  }
  for (size_t b = 0; b < memory.size(); ++b) {
    const int32_t alias = program.buffers[b].alias;
    buffers.push_back(memory[alias >= 0 ? static_cast<size_t>(alias) : b].data());
  }
  const PlanRun run = run_plan(std::make_shared<isa::Program>(program), trn2(), buffers);
  // The verifier takes a write in many short runs for a write of everything in between; a program that then reads what was
  // not written is executed literally, on whatever is there.
  return run.literal.empty() ? run.difference : "";
}

struct Counts {
  int tried = 0, accepted = 0;
};

void check_mutations(const isa::Program& original, Counts& counts) {
  const char* fuzz = std::getenv("OPENTRN_FUZZ");
  const int tries = fuzz ? std::stoi(fuzz) : 12;
  std::mt19937 random(fuzz ? std::random_device()() : 1);
  const size_t count = isa::mutation_count(original);
  for (int k = 0; k < tries && count > 0; ++k) {
    isa::Program program = original;
    std::string what = isa::mutate(program, random() % count);
    if (random() % 4 == 0) what += ", " + isa::mutate(program, random() % isa::mutation_count(program));
    ++counts.tried;
    if (!isa::check(program, trn2()).empty()) continue;
    ++counts.accepted;
    ASSERT_EQ(difference(program, static_cast<uint32_t>(k)), "") << what << "\n" << isa::print(program).substr(0, 20000);
  }
}

TEST(DamagedPrograms, PlanAndInterpreterAgree) {
  Counts counts;
  std::vector<std::shared_ptr<const isa::Program>> programs;
  const auto add = [&](graph::Graph g) {
    for (const int lnc : {1, 2}) {
      Options options;
      options.lnc = lnc;
      programs.push_back(compile(g, trn2(), options));
    }
  };
  const auto input = [](Builder& b, DType dtype, graph::Shape shape, std::string name = "") {
    const graph::Layout layout{graph::row_major(shape)};
    return b.parameter({dtype, std::move(shape)}, layout, std::move(name));
  };
  const auto output = [](Builder& b, ValueId v, int alias = -1) { b.result(v, {graph::row_major(b.shape(v))}, alias); };
  {
    Builder b("softmax");
    const ValueId x = input(b, DType::f32, {300, 70});
    const auto rows = [&](Op op, ValueId v) { return b.broadcast(b.reduce(op, v, {1}, true), {300, 70}); };
    const ValueId e = b.unary(Op::exp, b.binary(Op::subtract, x, rows(Op::reduce_max, x)));
    output(b, b.binary(Op::divide, e, rows(Op::reduce_sum, e)));
    add(b.take());
  }
  {
    Builder b("update");
    const ValueId w = input(b, DType::f32, {200, 33}), g = input(b, DType::f32, {200, 33}), m = input(b, DType::f32, {200, 33});
    const ValueId next = b.binary(Op::add, b.binary(Op::multiply, m, b.constant(DType::f32, 0.5)), g);
    output(b, b.binary(Op::subtract, w, next), 0);
    output(b, next, 2);
    add(b.take());
  }
  {
    Builder b("embedding");
    output(b, b.gather(Op::gather, input(b, DType::f32, {50, 24}), input(b, DType::i64, {130}, "index50"), 0));
    add(b.take());
  }
  {
    Builder b("scatter");
    const ValueId x = input(b, DType::f32, {50, 12});
    output(b, b.scatter(Op::scatter, x, input(b, DType::i64, {200}, "index50"), input(b, DType::f32, {200, 12}), 0, graph::Combine::add));
    add(b.take());
  }
  for (uint32_t seed = 1; seed <= 25; ++seed) add(RandomGraph(seed).make());
  MatmulCase c;
  c.dtype = c.out = DType::f32;
  c.m = 200, c.n = 600, c.k = 300;
  programs.push_back(program_of(c, trn2()));
  c.lhs_transposed = true;
  c.batch = {2};
  c.m = 64, c.n = 100, c.k = 257;
  programs.push_back(program_of(c, trn2()));
  c.dtype = c.out = DType::bf16;
  c.rhs_transposed = true;
  c.lnc = 2;
  programs.push_back(program_of(c, trn2()));
  for (const auto& program : programs) {
    check_mutations(*program, counts);
    if (HasFatalFailure()) return;
  }
  if (std::getenv("OPENTRN_FUZZ")) printf("%d of %d damaged programs were accepted\n", counts.accepted, counts.tried);
  EXPECT_GT(counts.accepted, counts.tried / 20);
}

}  // namespace
}  // namespace opentrn::compiler
