#include <sys/mman.h>

#include <cstring>
#include <string>

#include "base/error.h"
#include "exec/operand.h"

namespace opentrn::exec {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

int64_t padded_pitch(int64_t bytes_per_partition) {
  const int64_t lines = (bytes_per_partition + 63) / 64;
  return (lines | 1) * 64;
}

CoreMemory::CoreMemory(const spec::Chip& chip)
    : sbuf_pitch_(padded_pitch(chip.sbuf_bytes_per_partition)),
      psum_pitch_(padded_pitch(chip.psum_bytes_per_partition)) {
  // A line of slack lets vector loads at the end of the last row stay inside the mapping.
  const size_t sbuf_bytes = round_up(static_cast<size_t>(sbuf_pitch_) * chip.partitions + 64, kHugePage);
  const size_t psum_bytes = round_up(static_cast<size_t>(psum_pitch_) * chip.partitions + 64, kHugePage);
  mapped_bytes_ = sbuf_bytes + psum_bytes + kHugePage;
  void* mapping = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    throw UserError("cannot reserve " + std::to_string(mapped_bytes_ >> 20) +
                    " MiB of host memory for a NeuronCore's SBUF and PSUM; free some memory or raise `ulimit -v`");
  }
  mapping_ = mapping;
  auto address = reinterpret_cast<uintptr_t>(mapping);
  address = round_up(address, kHugePage);
  sbuf_ = reinterpret_cast<std::byte*>(address);
  psum_ = sbuf_ + sbuf_bytes;
  madvise(sbuf_, sbuf_bytes + psum_bytes, MADV_HUGEPAGE);  // only a hint: without huge pages it is slower, not wrong
}

CoreMemory::~CoreMemory() {
  if (mapping_) munmap(mapping_, mapped_bytes_);
}

void CoreMemory::poison() {
  const size_t bytes = mapped_bytes_ - kHugePage;
  std::memset(sbuf_, 0xFF, bytes);  // a NaN in every float format that has one, -1 in integers
}

}  // namespace opentrn::exec
