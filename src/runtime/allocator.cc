#include "runtime/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "base/error.h"

namespace opentrn::runtime {
namespace {

// Size class of a block: level 0 holds sizes below 32 units exactly, level l > 0 those from 32 << (l - 1).
struct Class {
  int level = 0, step = 0;
};

Class class_of(int64_t units) {
  if (units < 32) return {0, static_cast<int>(units)};
  int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(units))) - 1;
  return {bits - 4, static_cast<int>((units >> (bits - 5)) & 31)};
}

// How many blocks of a class are compared: classes are at most 3 % wide, so a long search gains nothing.
constexpr int kSearch = 16;

}  // namespace

Allocator::FreeLists::FreeLists() {
  for (auto& level : heads) level.fill(-1);
}

Allocator::Allocator(int64_t capacity_bytes) : units_(capacity_bytes / kUnit) {
  index_bytes_ = static_cast<size_t>(std::max<int64_t>(units_, 1)) * sizeof(uint32_t);
  void* index = mmap(nullptr, index_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (index == MAP_FAILED)
    throw UserError(fmt::format("cannot reserve {} MiB of address space for the allocator's index: raise `ulimit -v`",
                                index_bytes_ >> 20));
  index_ = static_cast<uint32_t*>(index);
  blocks_.reserve(1024);
  if (units_ > 0) {
    int32_t id = new_block();
    blocks_[id].units = units_;
    insert(range_, id);
  }
}

Allocator::~Allocator() { munmap(index_, index_bytes_); }

int32_t Allocator::new_block() {
  if (unused_.empty()) {
    blocks_.emplace_back();
    return static_cast<int32_t>(blocks_.size()) - 1;
  }
  int32_t id = unused_.back();
  unused_.pop_back();
  blocks_[id] = Block();
  return id;
}

void Allocator::drop_block(int32_t id) { unused_.push_back(id); }

void Allocator::insert(FreeLists& lists, int32_t id) {
  Block& block = blocks_[id];
  const Class c = class_of(block.units);
  int32_t& head = lists.heads[c.level][c.step];
  block.is_free = true;
  block.free_previous = -1;
  block.free_next = head;
  if (head >= 0) blocks_[head].free_previous = id;
  head = id;
  lists.steps[c.level] |= 1u << c.step;
  lists.levels |= uint64_t{1} << c.level;
}

void Allocator::remove(FreeLists& lists, int32_t id) {
  Block& block = blocks_[id];
  const Class c = class_of(block.units);
  block.is_free = false;
  if (block.free_next >= 0) blocks_[block.free_next].free_previous = block.free_previous;
  if (block.free_previous >= 0) {
    blocks_[block.free_previous].free_next = block.free_next;
    return;
  }
  lists.heads[c.level][c.step] = block.free_next;
  if (block.free_next >= 0) return;
  lists.steps[c.level] &= ~(1u << c.step);
  if (!lists.steps[c.level]) lists.levels &= ~(uint64_t{1} << c.level);
}

int32_t Allocator::best(const FreeLists& lists, int64_t units) const {
  const Class c = class_of(units);
  auto search = [&](int32_t head, int most) {
    int32_t found = -1;
    for (int32_t id = head; id >= 0 && most > 0; id = blocks_[id].free_next, --most) {
      if (blocks_[id].units < units || (found >= 0 && blocks_[id].units >= blocks_[found].units)) continue;
      found = id;
      if (blocks_[id].units == units) break;
    }
    return found;
  };
  if (int32_t id = search(lists.heads[c.level][c.step], kSearch); id >= 0) return id;
  // The next class with a block: every block in it is large enough.
  uint32_t steps = lists.steps[c.level] & static_cast<uint32_t>(~uint64_t{0} << (c.step + 1));
  int level = c.level;
  if (!steps) {
    uint64_t levels = lists.levels & (~uint64_t{0} << (c.level + 1));
    if (levels) {
      level = std::countr_zero(levels);
      steps = lists.steps[level];
    }
  }
  if (steps) return search(lists.heads[level][std::countr_zero(steps)], kSearch);
  return search(lists.heads[c.level][c.step], INT32_MAX);
}

void Allocator::take(FreeLists& lists, int32_t id, int64_t units) {
  remove(lists, id);
  const int64_t rest = blocks_[id].units - units;
  if (rest == 0) return;
  const int32_t tail = new_block();  // may move blocks_
  Block& block = blocks_[id];
  Block& after = blocks_[tail];
  after.start = block.start + units;
  after.units = rest;
  after.segment = block.segment;
  after.previous = id;
  after.next = block.next;
  if (after.next >= 0) blocks_[after.next].previous = tail;
  block.next = tail;
  block.units = units;
  insert(lists, tail);
}

int32_t Allocator::give_back(FreeLists& lists, int32_t id) {
  const int32_t before = blocks_[id].previous, after = blocks_[id].next;
  auto join = [&](int32_t first, int32_t second) {
    Block& a = blocks_[first];
    Block& b = blocks_[second];
    a.units += b.units;
    a.next = b.next;
    if (a.next >= 0) blocks_[a.next].previous = first;
    drop_block(second);
  };
  if (after >= 0 && blocks_[after].is_free) {
    remove(lists, after);
    join(id, after);
  }
  if (before >= 0 && blocks_[before].is_free) {
    remove(lists, before);
    join(before, id);
    id = before;
  }
  insert(lists, id);
  return id;
}

int32_t Allocator::take_from_range(int64_t units) {
  int32_t id = best(range_, units);
  if (id >= 0) take(range_, id, units);
  return id;
}

int32_t Allocator::take_from_segments(int64_t units) {
  int32_t id = best(segments_, units);
  if (id < 0) {
    const int32_t segment = take_from_range(kSegment / kUnit);
    if (segment < 0) return -1;
    blocks_[segment].is_segment = true;
    id = new_block();
    blocks_[id].start = blocks_[segment].start;
    blocks_[id].units = blocks_[segment].units;
    blocks_[id].segment = segment;
    insert(segments_, id);
  }
  if (id == empty_segment_) empty_segment_ = -1;
  take(segments_, id, units);
  return id;
}

void Allocator::return_segment(int32_t id) {
  const int32_t segment = blocks_[id].segment;
  remove(segments_, id);
  drop_block(id);
  blocks_[segment].is_segment = false;
  give_back(range_, segment);
}

void Allocator::release_segments() {
  if (empty_segment_ < 0) return;
  return_segment(empty_segment_);
  empty_segment_ = -1;
}

int64_t Allocator::allocate(int64_t bytes, int32_t origin) {
  const int64_t units = (bytes - 1) / kUnit + 1;
  int32_t id = -1;
  if (bytes < kSmall) id = take_from_segments(units);
  if (id < 0) id = take_from_range(units);
  if (id < 0) {
    release_segments();
    id = take_from_range(units);
    if (id < 0) return -1;
  }
  Block& block = blocks_[id];
  block.requested = bytes;
  block.origin = origin;
  index_[block.start] = static_cast<uint32_t>(id) + 1;
  return block.start * kUnit;
}

int32_t Allocator::block_at(int64_t offset) const {
  if (offset < 0 || offset % kUnit != 0 || offset / kUnit >= units_) return -1;
  return static_cast<int32_t>(index_[offset / kUnit]) - 1;
}

Allocator::Extent Allocator::find(int64_t offset) const {
  const int32_t id = block_at(offset);
  if (id < 0) return {};
  const Block& block = blocks_[id];
  return {block.start * kUnit, block.units * kUnit, block.requested, block.origin};
}

Allocator::Extent Allocator::containing(int64_t offset) const {
  if (offset < 0 || offset / kUnit >= units_) return {};
  for (int64_t unit = offset / kUnit; unit >= 0; --unit) {
    if (!index_[unit]) continue;
    const Extent extent = find(unit * kUnit);
    return offset < extent.offset + extent.bytes ? extent : Extent{};
  }
  return {};
}

Allocator::Extent Allocator::free(int64_t offset) {
  const int32_t id = block_at(offset);
  if (id < 0) return {};
  const Extent extent = find(offset);
  index_[blocks_[id].start] = 0;
  const int32_t segment = blocks_[id].segment;
  if (segment < 0) {
    give_back(range_, id);
    return extent;
  }
  const int32_t merged = give_back(segments_, id);
  if (blocks_[merged].previous < 0 && blocks_[merged].next < 0) {
    if (empty_segment_ >= 0) return_segment(empty_segment_);
    empty_segment_ = merged;
  }
  return extent;
}

int64_t Allocator::largest_free() const {
  if (!range_.levels) return 0;
  const int level = 63 - std::countl_zero(range_.levels);
  const int step = 31 - std::countl_zero(range_.steps[level]);
  int64_t units = 0;
  for (int32_t id = range_.heads[level][step]; id >= 0; id = blocks_[id].free_next)
    units = std::max(units, blocks_[id].units);
  return units * kUnit;
}

std::vector<Allocator::Extent> Allocator::live() const {
  std::vector<Extent> extents;
  std::vector<char> unused(blocks_.size());
  for (int32_t id : unused_) unused[id] = 1;
  for (size_t id = 0; id < blocks_.size(); ++id) {
    const Block& block = blocks_[id];
    if (!unused[id] && !block.is_free && !block.is_segment)
      extents.push_back({block.start * kUnit, block.units * kUnit, block.requested, block.origin});
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  return extents;
}

std::vector<Allocator::Extent> Allocator::free_ranges() const {
  std::vector<Extent> extents;
  for (const auto& level : range_.heads)
    for (int32_t head : level)
      for (int32_t id = head; id >= 0; id = blocks_[id].free_next)
        extents.push_back({blocks_[id].start * kUnit, blocks_[id].units * kUnit});
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  return extents;
}

void Allocator::check() const {
  auto require = [](bool holds, const char* what, int64_t block) {
    if (!holds) throw InternalError(fmt::format("allocator: {} (block {})", what, block));
  };
  std::vector<char> unused(blocks_.size());
  for (int32_t id : unused_) unused[id] = 1;
  int64_t range_units = 0;
  std::vector<int64_t> segment_units(blocks_.size());
  for (size_t id = 0; id < blocks_.size(); ++id) {
    if (unused[id]) continue;
    const Block& block = blocks_[id];
    require(block.units > 0, "empty block", static_cast<int64_t>(id));
    (block.segment < 0 ? range_units : segment_units[block.segment]) += block.units;
    if (block.next >= 0) {
      const Block& next = blocks_[block.next];
      require(!unused[block.next] && next.previous == static_cast<int32_t>(id), "neighbours disagree", id);
      require(next.start == block.start + block.units, "gap or overlap", id);
      require(next.segment == block.segment, "neighbours in different segments", id);
      require(!(next.is_free && block.is_free), "free neighbours not merged", id);
    }
    const bool indexed = index_[block.start] == id + 1;
    require(indexed == (!block.is_free && !block.is_segment), "index does not name exactly the live blocks", id);
  }
  require(range_units == units_, "blocks do not cover the range", -1);
  for (size_t id = 0; id < blocks_.size(); ++id)
    if (!unused[id] && blocks_[id].is_segment)
      require(segment_units[id] == blocks_[id].units, "blocks do not cover their segment", id);
}

}  // namespace opentrn::runtime
