// Compiles a graph for one and two cores, runs the program and compares every result with the plain evaluator.
#pragma once

#include <cmath>
#include <cstring>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "exec/interpreter.h"
#include "graph/element.h"
#include "graph/evaluate.h"
#include "isa/text.h"
#include "run_plan.h"

namespace opentrn::compiler {

using Bytes = std::vector<std::byte>;

inline int64_t extent(const graph::Type& type, const graph::Layout& layout) {
  if (graph::elements(type.shape) == 0) return 0;
  int64_t last = layout.offset;
  for (size_t d = 0; d < type.shape.size(); ++d) last += (type.shape[d] - 1) * layout.strides[d];
  return last + 1;
}

// Values that every dtype can hold, small enough that sums stay exact in integers; parameters called "index..." hold
// 0 .. limit-1 with the limit in the name ("index7").
inline Bytes random_values(const graph::Parameter& p, std::mt19937& random) {
  const int64_t n = extent(p.type, p.layout);
  Bytes bytes(n * size_of(p.type.dtype));
  const int64_t limit = p.name.rfind("index", 0) == 0 ? std::stoll(p.name.substr(5)) : 0;
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < n; ++i) {
    double v = limit ? static_cast<double>(random() % limit)
               : is_float(p.type.dtype) ? normal(random) * 1.5
               : p.type.dtype == DType::boolean ? static_cast<double>(random() & 1)
               : is_signed(p.type.dtype) ? static_cast<double>(static_cast<int>(random() % 41) - 20)
                                         : static_cast<double>(random() % 40);
    if (p.name.rfind("positive", 0) == 0) v = std::abs(v) + 0.1;
    graph::store<double>(p.type.dtype, bytes.data(), i, v);
  }
  return bytes;
}

inline double tolerance(DType dtype) {
  switch (dtype) {
    case DType::bf16: return 1.0 / 128;
    case DType::f16: return 1.0 / 1024;
    case DType::f32: return 4e-6;
    case DType::f64: return 1e-12;
    default: return 0;
  }
}

struct Compiled {
  std::shared_ptr<const isa::Program> program;
  std::vector<Bytes> results;
  exec::Fault fault;
  bool ok = true;
  std::string literal;  // why there is no host plan
};

inline Compiled run_compiled(const graph::Graph& g, const std::vector<Bytes>& inputs, const std::vector<exec::ScalarValue>& scalars,
                             int lnc, const std::string& chip = "trn2") {
  const spec::Chip& c = spec::chip(chip);
  Compiled result;
  Options options;
  options.lnc = lnc;
  result.program = compile(g, c, options);
  std::vector<Bytes> memory;
  std::vector<std::byte*> buffers;
  for (const isa::Buffer& b : result.program->buffers) memory.emplace_back(std::max<int64_t>(b.bytes, 1), std::byte{0x5A});
  for (size_t i = 0; i < inputs.size(); ++i) memory[i] = inputs[i];
  for (size_t i = 0; i < memory.size(); ++i) {
    const int32_t alias = result.program->buffers[i].alias;
    if (result.program->buffers[i].kind == isa::Buffer::Kind::constant) memory[i] = result.program->buffers[i].data;
    buffers.push_back(alias >= 0 ? memory[alias].data() : memory[i].data());
  }
  const PlanRun run = run_plan(result.program, c, buffers, scalars);
  EXPECT_EQ(run.difference, "");
  result.ok = run.ok;
  result.fault = run.fault;
  result.literal = run.literal;
  if (getenv("SHOW_LITERAL") && !run.literal.empty()) fprintf(stderr, "LITERAL %s: %s\n", result.program->name.c_str(), run.literal.c_str());
  for (size_t r = 0; r < g.results.size(); ++r) {
    const size_t b = g.parameters.size() + r;
    result.results.push_back(g.results[r].alias >= 0 ? memory[g.results[r].alias] : memory[b]);
  }
  return result;
}

inline void check_graph(const graph::Graph& g, const std::vector<exec::ScalarValue>& scalars = {}, double factor = 1,
                        uint32_t seed = 1, const std::string& chip = "trn2") {
  std::mt19937 random(seed);
  std::vector<Bytes> inputs;
  for (const graph::Parameter& p : g.parameters) inputs.push_back(random_values(p, random));
  std::vector<Bytes> expected;
  std::vector<std::byte*> out;
  std::vector<const std::byte*> in;
  for (const Bytes& b : inputs) in.push_back(b.data());
  for (const graph::Result& r : g.results) {
    const graph::Type& type = g.type(r.value);
    expected.emplace_back(extent(type, r.layout) * size_of(type.dtype) + 1, std::byte{0x5A});
    if (r.alias >= 0) expected.back() = inputs[r.alias];
  }
  for (Bytes& b : expected) out.push_back(b.data());
  std::vector<graph::ScalarInput> scalar_inputs;
  for (const exec::ScalarValue& s : scalars)
    scalar_inputs.push_back({s.kind == exec::ScalarValue::Kind::real ? s.real : static_cast<double>(s.integer),
                             s.kind == exec::ScalarValue::Kind::real ? static_cast<int64_t>(s.real) : s.integer});
  graph::evaluate(g, in, scalar_inputs, out);
  for (int lnc : spec::chip(chip).lnc_allowed) {
    Compiled run;
    try {
      run = run_compiled(g, inputs, scalars, lnc, chip);
    } catch (const std::exception& e) {
      Options options;
      options.lnc = lnc;
      options.verify = false;
      std::string text;
      try {
        text = isa::print(*compile(g, spec::chip(chip), options));
      } catch (const std::exception&) {
      }
      FAIL() << "LNC=" << lnc << ": " << e.what() << "\n" << graph::print(g) << text.substr(0, 6000);
    }
    ASSERT_TRUE(run.ok) << run.fault.message;
    for (size_t r = 0; r < g.results.size(); ++r) {
      const DType dtype = g.type(g.results[r].value).dtype;
      const int64_t n = extent(g.type(g.results[r].value), g.results[r].layout);
      double scale = 1;
      for (int64_t i = 0; i < n; ++i) {
        const double e = graph::load<double>(dtype, expected[r].data(), i);
        if (is_float(dtype) && std::isfinite(e)) scale = std::max(scale, std::min(std::abs(e), 1e3));
      }
      for (int64_t i = 0; i < n; ++i) {
        const double e = graph::load<double>(dtype, expected[r].data(), i);
        const double a = graph::load<double>(dtype, run.results[r].data(), i);
        const bool equal = e == a || (std::isnan(e) && std::isnan(a)) ||
                           std::abs(e - a) <= factor * tolerance(dtype) * std::max(std::abs(e), scale * 0.1);
        ASSERT_TRUE(equal) << "LNC=" << lnc << " result " << r << " element " << i << ": expected " << e << ", got " << a
                           << "\n" << graph::print(g) << isa::print(*run.program).substr(0, 6000);
      }
    }
  }
}

inline void check_text(const std::string& text, const std::vector<exec::ScalarValue>& scalars = {}, double factor = 1) {
  check_graph(graph::parse(text), scalars, factor);
}

}  // namespace opentrn::compiler
