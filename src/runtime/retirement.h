// Lets go of kernels that left the cache, once no launch in any queue can refer to them.
//
// Launches hold plain pointers: counting references per launch would bounce a cache line between host and worker. A
// retired kernel that only this list holds cannot be launched any more; it is freed when every device has done the
// work that had been submitted when that was first seen.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace opentrn::runtime {

struct Kernel;

// Tickets of the work submitted so far, per device; and whether all of it is done. (device.cc)
std::vector<uint64_t> submitted_tickets();
bool all_done(const std::vector<uint64_t>& tickets);

// Not thread-safe: the cache calls it with its lock held.
class Retirement {
 public:
  void add(std::shared_ptr<const Kernel> kernel) { kernels_.push_back({std::move(kernel), {}, false}); }
  // Frees what can be freed.
  void collect();
  size_t size() const { return kernels_.size(); }

 private:
  struct Retired {
    std::shared_ptr<const Kernel> kernel;
    std::vector<uint64_t> tickets;
    bool unreachable = false;  // tickets are valid
  };
  std::vector<Retired> kernels_;
};

}  // namespace opentrn::runtime
