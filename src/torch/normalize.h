// From a call on the dispatcher's stack to a prepared launch: schema defaults, in-place and out= mapped to the
// functional operator, result types from the Meta kernel, the lowering, the compiled kernel.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <string>
#include <vector>

#include "aten/lowering.h"
#include "torch/operands.h"
#include "torch/prepared.h"

namespace opentrn::bridge {

// One registered overload of an operator of the lowering table.
struct Operator {
  const aten::Entry* entry = nullptr;
  std::string name;                          // of this overload: "aten::add_.Tensor"
  Signature signature;                       // of this overload
  std::vector<std::string> functional_names; // arguments of the functional overload, as the lowering knows them
  std::vector<int> functional_arguments;     // position of each in this overload, -1: absent (a factory's dtype)
  OperandRules rules;
};

// Runs the overload on meta tensors (which raises PyTorch's own errors for wrong arguments), lowers and compiles.
// A call that has no program yields `Prepared::unsupported`. `specialised` receives a bit per argument whose number the
// program depends on.
std::shared_ptr<const Prepared> prepare(const Operator& op, const c10::OperatorHandle& handle,
                                        const torch::jit::Stack& stack, const Operands& operands,
                                        uint64_t& specialised);

}  // namespace opentrn::bridge
