#include "runtime/launch_log.h"

namespace opentrn::runtime {

void LaunchLog::append(const LaunchRecord& record) {
  if (blocks_.empty() || blocks_.back()->count == kBlock) {
    if (spare_.empty()) {
      blocks_.push_back(std::make_unique<Block>());
    } else {
      blocks_.push_back(std::move(spare_.back()));
      spare_.pop_back();
      blocks_.back()->count = 0;
    }
  }
  Block& block = *blocks_.back();
  block.records[block.count++] = record;
}

void LaunchLog::drop_before(int32_t step) {
  while (!blocks_.empty()) {
    const Block& block = *blocks_.front();
    if (block.count > 0 && block.records[block.count - 1].step >= step) return;
    spare_.push_back(std::move(blocks_.front()));
    blocks_.pop_front();
  }
}

void LaunchLog::clear() {
  blocks_.clear();
  spare_.clear();
}

void LaunchLog::read(int32_t first_step, std::vector<LaunchRecord>& records) const {
  for (const auto& block : blocks_)
    for (size_t i = 0; i < block->count; ++i)
      if (block->records[i].step >= first_step) records.push_back(block->records[i]);
}

}  // namespace opentrn::runtime
