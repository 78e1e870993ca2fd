#include "isa/order_history.h"

#include <cstdlib>
#include <numeric>

namespace opentrn::isa {

PartitionMask partition_mask(int first, int count) {
  const PartitionMask ones = count >= 128 ? ~PartitionMask{0} : (PartitionMask{1} << count) - 1;
  return ones << first;
}

int64_t divisor_of(const Record& record) {
  int64_t divisor = 0;
  for (const Step& step : record.access->set.steps) divisor = std::gcd(divisor, step.bytes);
  for (const Range& range : record.ranges)
    if (range.count > 1) divisor = std::gcd(divisor, std::abs(range.bytes));
  return divisor;
}

bool overlap(const Record& a, const Record& b) {
  if (a.high <= b.low || b.high <= a.low) return false;
  const Access& x = *a.access;
  const Access& y = *b.access;
  // Column blocks of the same rows: they stay apart whatever multiple of the common divisor lies between them.
  const int64_t divisor = a.divisor == b.divisor ? a.divisor : std::gcd(a.divisor, b.divisor);
  if (divisor > 0) {
    int64_t apart = (b.base - a.base) % divisor;
    if (apart < 0) apart += divisor;
    if (apart >= x.set.run && apart + y.set.run <= divisor) return false;
  }
  if (x.memory != Memory::hbm &&
      (x.partition + x.partitions <= y.partition || y.partition + y.partitions <= x.partition))
    return false;
  Step steps[kMaxTerms];
  int n = 0;
  for (const Step& step : x.set.steps) steps[n++] = {-step.bytes, step.count};
  for (const Step& step : y.set.steps) steps[n++] = step;
  int64_t distance = b.base - a.base;
  for (const Range& range : a.ranges) {
    const Range* other = nullptr;
    for (const Range& r : b.ranges)
      if (r.entry == range.entry) other = &r;
    if (other == nullptr) {
      steps[n++] = {-range.bytes, range.count};
    } else if (other->instance == range.instance) {
      // One value: only the difference of the coefficients moves the two apart.
      steps[n++] = {other->bytes - range.bytes, range.count};
    } else if (other->bytes == range.bytes && range.count > 1) {
      // Only the distance between the iterations counts, and the walk has seen it with an earlier iteration.
      return false;
    } else if (other->bytes == range.bytes && range.value > 0) {
      // The same: larger distances were compared with iteration 0; this is the next larger one.
    } else if (range.count > 1) {
      // Iterations i and i + d, d at least 1.
      distance += other->bytes;
      steps[n++] = {other->bytes - range.bytes, range.count - 1};
      steps[n++] = {other->bytes, range.count - 1};
    } else {
      steps[n++] = {other->bytes, other->count};
    }
  }
  for (const Range& range : b.ranges) {
    bool shared = false;
    for (const Range& other : a.ranges) shared |= other.entry == range.entry;
    if (!shared) steps[n++] = {range.bytes, range.count};
  }
  return sum_in_interval(steps, n, -y.set.run + 1 - distance, x.set.run - 1 - distance);
}

ByteSet all_bytes(const Record& record) {
  ByteSet set = record.access->set;
  set.base = record.base;
  for (const Range& range : record.ranges) set.add({range.bytes, range.count});
  return set;
}

void Written::split_at(int64_t at) {
  for (size_t i = 0; i < segments_.size(); ++i)
    if (segments_[i].low < at && at < segments_[i].high) {
      Segment right = segments_[i];
      right.low = at;
      segments_[i].high = at;
      segments_.insert(segments_.begin() + i + 1, right);
      return;
    }
}

void Written::write(int64_t low, int64_t high, PartitionMask partitions, bool matmul) {
  if (segments_.size() == 1 && segments_[0].low == low && segments_[0].high == high) {
    segments_[0].written |= partitions;
    segments_[0].matmul = matmul ? segments_[0].matmul | partitions : segments_[0].matmul & ~partitions;
    return;
  }
  split_at(low);
  split_at(high);
  int64_t at = low;
  size_t i = 0;
  while (i < segments_.size() && segments_[i].high <= low) ++i;
  while (at < high) {
    if (i == segments_.size() || segments_[i].low > at) {
      const int64_t end = i == segments_.size() ? high : std::min(high, segments_[i].low);
      segments_.insert(segments_.begin() + i, {at, end, 0, 0});
    }
    Segment& s = segments_[i];
    s.written |= partitions;
    s.matmul = matmul ? s.matmul | partitions : s.matmul & ~partitions;
    at = s.high;
    ++i;
  }
  // Neighbours that agree become one again, so that a tile written in pieces stays one segment.
  size_t kept = 0;
  for (size_t k = 1; k < segments_.size(); ++k) {
    Segment& last = segments_[kept];
    const Segment& next = segments_[k];
    if (last.high == next.low && last.written == next.written && last.matmul == next.matmul)
      last.high = next.high;
    else
      segments_[++kept] = next;
  }
  segments_.resize(segments_.empty() ? 0 : kept + 1);
}

void Written::forget(int64_t low, int64_t high, PartitionMask partitions) {
  split_at(low);
  split_at(high);
  for (Segment& s : segments_)
    if (s.low >= low && s.high <= high) {
      s.written &= ~partitions;
      s.matmul &= ~partitions;
    }
  std::erase_if(segments_, [](const Segment& s) { return s.written == 0; });
}

bool Written::covers(int64_t low, int64_t high, PartitionMask partitions, bool matmul) const {
  int64_t at = low;
  for (const Segment& s : segments_) {
    if (s.high <= at) continue;
    if (s.low > at) return false;
    if (((matmul ? s.matmul : s.written) & partitions) != partitions) return false;
    at = s.high;
    if (at >= high) return true;
  }
  return false;
}

void Intervals::add(int64_t low, int64_t high) {
  if (low >= high) return;
  auto first = std::lower_bound(items_.begin(), items_.end(), low,
                                [](const auto& item, int64_t value) { return item.second < value; });
  auto last = first;
  while (last != items_.end() && last->first <= high) {
    low = std::min(low, last->first);
    high = std::max(high, last->second);
    ++last;
  }
  if (first == last) {
    items_.insert(first, {low, high});
  } else {
    *first = {low, high};
    items_.erase(first + 1, last);
  }
}

int64_t Intervals::first_missing(int64_t low, int64_t high) const {
  if (low >= high) return -1;
  for (const auto& [from, to] : items_) {
    if (to <= low) continue;
    if (from > low) return low;
    if (to >= high) return -1;
    low = to;
  }
  return low;
}

bool Intervals::covers(int64_t low, int64_t high) const { return first_missing(low, high) < 0; }

}  // namespace opentrn::isa
