// The launch path of every operator of the lowering table: one boxed kernel per overload.
#pragma once

#include <ATen/core/stack.h>

#include <string>
#include <vector>

namespace opentrn::bridge {

// Registers each entry of the table with its in-place and out= siblings for PrivateUse1. Called once, at load.
void register_operators();

struct OperatorUse {
  std::string name;
  int64_t calls = 0;
  int64_t prepared = 0;   // different programs
};
std::vector<OperatorUse> operator_uses();   // called at least once
void clear_operator_uses();
std::vector<std::string> registered_operators();
// Table entries that are no operator of this PyTorch, or have an argument type the path does not know: empty.
std::vector<std::string> registration_problems();
// Forgets all prepared calls (settings have changed).
void clear_prepared();

}  // namespace opentrn::bridge
