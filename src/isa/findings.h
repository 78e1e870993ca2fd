// Collects what the verifier's parts find, up to a limit.
#pragma once

#include <string>
#include <vector>

#include "isa/verify.h"

namespace opentrn::isa {

class Findings {
 public:
  static constexpr size_t kLimit = 64;

  void add(int core, int instruction, std::string message) {
    if (items_.size() < kLimit) items_.push_back({core, instruction, std::move(message)});
  }
  void add(std::vector<Finding> findings) {
    for (Finding& f : findings) add(f.core, f.instruction, std::move(f.message));
  }
  bool full() const { return items_.size() >= kLimit; }
  bool empty() const { return items_.empty(); }
  size_t size() const { return items_.size(); }
  std::vector<Finding> take() { return std::move(items_); }

 private:
  std::vector<Finding> items_;
};

}  // namespace opentrn::isa
