// A hand-made call of an operator: tensors and attributes in, values of the lowered graph out.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "aten/lowering.h"
#include "base/error.h"
#include "graph/element.h"
#include "graph/evaluate.h"

namespace opentrn::aten {

struct Tensor {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<double> values;
};

class CallOf {
 public:
  explicit CallOf(const std::string& op) : builder_(op), call_(op, builder_) {}
  CallOf(const CallOf&) = delete;  // the call refers to the builder beside it

  CallOf& tensor(const std::string& name, const Tensor& t) { return add(name, tensor_argument(t)); }
  CallOf& tensors(const std::string& name, const std::vector<Tensor>& list) {
    Argument a{.kind = Argument::Kind::tensors};
    for (const Tensor& t : list) a.values.push_back(tensor_argument(t).value);
    return add(name, a);
  }
  CallOf& tensors_or_none(const std::string& name, const std::vector<std::optional<Tensor>>& list) {
    Argument a{.kind = Argument::Kind::tensors};
    for (const auto& t : list) a.values.push_back(t ? tensor_argument(*t).value : -1);
    return add(name, a);
  }
  CallOf& number(const std::string& name, double value) {
    return add(name, {.kind = Argument::Kind::number, .integer = static_cast<int64_t>(value), .real = value, .is_real = true});
  }
  CallOf& real(const std::string& name, double value) {
    return add(name, {.kind = Argument::Kind::real, .real = value, .is_real = true});
  }
  CallOf& integer(const std::string& name, int64_t value) { return add(name, {.kind = Argument::Kind::integer, .integer = value}); }
  CallOf& boolean(const std::string& name, bool value) { return add(name, {.kind = Argument::Kind::boolean, .integer = value}); }
  CallOf& integers(const std::string& name, std::vector<int64_t> value) {
    return add(name, {.kind = Argument::Kind::integers, .integers = std::move(value)});
  }
  CallOf& numbers(const std::string& name, std::vector<double> value) {
    return add(name, {.kind = Argument::Kind::numbers, .numbers = std::move(value)});
  }
  CallOf& text(const std::string& name, std::string value) {
    return add(name, {.kind = Argument::Kind::text, .text = std::move(value)});
  }
  CallOf& none(const std::string& name) { return add(name, {}); }
  CallOf& result(DType dtype, Shape shape) {
    if (call_.results.empty()) call_.compute = dtype;
    call_.results.push_back({dtype, std::move(shape)});
    return *this;
  }
  CallOf& compute(DType dtype) {
    call_.compute = dtype;
    return *this;
  }
  CallOf& wanted(std::vector<bool> mask) {
    call_.wanted = std::move(mask);
    return *this;
  }

  // Lowers and evaluates; a result that the lowering leaves out is empty.
  std::vector<std::vector<double>> run() {
    const Entry* entry = find(call_.op);
    if (!entry) throw UserError("no entry for " + call_.op);
    const std::vector<ValueId> values = entry->lower(call_);
    if (values.size() != call_.results.size()) throw InternalError("wrong number of results of " + call_.op);
    std::vector<std::vector<std::byte>> bytes;
    std::vector<std::byte*> addresses;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] < 0) continue;
      if (!(builder_.type(values[i]) == call_.results[i])) throw InternalError("wrong type of a result of " + call_.op);
      builder_.result(values[i], {graph::row_major(call_.results[i].shape)});
      bytes.emplace_back(graph::elements(call_.results[i].shape) * size_of(call_.results[i].dtype));
    }
    for (auto& b : bytes) addresses.push_back(b.data());
    std::vector<graph::ScalarInput> scalars;
    for (const Call::NumberUse& use : call_.number_uses()) scalars.push_back(scalar(use));
    std::vector<const std::byte*> parameters;
    for (auto& p : parameters_) parameters.push_back(p.data());
    graph_ = builder_.take();
    graph::evaluate(graph_, parameters, scalars, addresses);
    std::vector<std::vector<double>> out(values.size());
    for (size_t i = 0, k = 0; i < values.size(); ++i) {
      if (values[i] < 0) continue;
      for (int64_t j = 0; j < graph::elements(call_.results[i].shape); ++j)
        out[i].push_back(graph::load<double>(call_.results[i].dtype, addresses[k], j));
      ++k;
    }
    return out;
  }

  const Call& call() const { return call_; }
  const graph::Graph& lowered() const { return graph_; }
  int64_t seed = 0, offset = 0;

 private:
  CallOf& add(const std::string& name, Argument a) {
    call_.names.push_back(name);
    call_.args.push_back(std::move(a));
    return *this;
  }
  Argument tensor_argument(const Tensor& t) {
    parameters_.emplace_back(t.values.size() * size_of(t.dtype));
    for (size_t i = 0; i < t.values.size(); ++i)
      graph::store<double>(t.dtype, parameters_.back().data(), static_cast<int64_t>(i), t.values[i]);
    return {.kind = Argument::Kind::tensor, .value = builder_.parameter({t.dtype, t.shape}, {graph::row_major(t.shape)})};
  }
  graph::ScalarInput scalar(const Call::NumberUse& use) const {
    if (use.argument == Call::NumberUse::kSeed) return {0, seed};
    if (use.argument == Call::NumberUse::kOffset) return {0, offset + std::max(use.element, 0)};
    const Argument& a = call_.args[use.argument];
    const double value = use.element >= 0 ? a.numbers[use.element] : a.real;
    return {value, static_cast<int64_t>(value)};
  }

  Builder builder_;
  Call call_;
  std::vector<std::vector<std::byte>> parameters_;
  graph::Graph graph_;
};

}  // namespace opentrn::aten
