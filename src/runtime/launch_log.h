// Keeps the launches of one device for the profile: all of them, or those of the last steps.
// Records lie in blocks that are reused, so that logging allocates nothing once a few steps have passed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/device.h"

namespace opentrn::runtime {

// Not thread-safe: the device calls it with its lock held.
class LaunchLog {
 public:
  void append(const LaunchRecord& record);
  // Lets go of the records of steps before `step`.
  void drop_before(int32_t step);
  void clear();
  // Appends the records of steps from `first_step` on to `records`.
  void read(int32_t first_step, std::vector<LaunchRecord>& records) const;

 private:
  static constexpr size_t kBlock = 2048;
  struct Block {
    size_t count = 0;
    LaunchRecord records[kBlock];
  };
  std::deque<std::unique_ptr<Block>> blocks_;
  std::vector<std::unique_ptr<Block>> spare_;
};

}  // namespace opentrn::runtime
