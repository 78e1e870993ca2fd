#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "exec/executable.h"
#include "exec/plan.h"

namespace opentrn::exec {

// Buffers may overlap: what is copied are the connected ranges of bytes that they cover.
struct PlanCheck::Impl {
  struct Range {
    std::byte* begin;
    std::byte* end;
    std::vector<std::byte> copy;
  };

  std::shared_ptr<const isa::Program> program;
  Executable executable;
  LaunchValues values;
  std::vector<std::byte*> originals, copies;
  std::vector<Range> ranges;
  std::vector<std::unique_ptr<CoreMemory>> memories;

  Impl(std::shared_ptr<const isa::Program> p, const spec::Chip& chip, std::span<std::byte* const> buffers,
       std::span<const ScalarValue> scalars)
      : program(std::move(p)), executable(program, chip), values(*program, scalars), originals(buffers.begin(), buffers.end()) {
    for (size_t i = 0; i < originals.size(); ++i)
      if (originals[i] && program->buffers[i].kind != isa::Buffer::Kind::constant)
        ranges.push_back({originals[i], originals[i] + program->buffers[i].bytes, {}});
    std::ranges::sort(ranges, {}, &Range::begin);
    std::vector<Range> merged;
    for (Range& range : ranges) {
      if (!merged.empty() && range.begin < merged.back().end) merged.back().end = std::max(merged.back().end, range.end);
      else merged.push_back(std::move(range));
    }
    ranges = std::move(merged);
    for (Range& range : ranges) range.copy.assign(range.begin, range.end);
    copies = originals;
    for (size_t i = 0; i < copies.size(); ++i)
      if (program->buffers[i].kind != isa::Buffer::Kind::constant) copies[i] = copy_of(copies[i]);
    for (int core = 0; core < executable.cores(); ++core) memories.push_back(std::make_unique<CoreMemory>(chip));
  }

  std::byte* copy_of(std::byte* address) {
    for (Range& range : ranges)
      if (address >= range.begin && address < range.end)
        return range.copy.data() + (address - range.begin);
    return address;
  }

  std::string differing(const Range& range) const {
    const size_t at = static_cast<size_t>(std::ranges::mismatch(range.copy, std::span(range.begin, range.end)).in1 - range.copy.begin());
    const std::byte* address = range.begin + at;
    for (size_t i = 0; i < originals.size(); ++i) {
      const isa::Buffer& buffer = program->buffers[i];
      if (buffer.kind == isa::Buffer::Kind::input || address < originals[i] || address >= originals[i] + buffer.bytes) continue;
      return report(buffer.name, address - originals[i], range.copy.data() + at, address, std::min(range.copy.size() - at, size_t{4}));
    }
    return report("an input", static_cast<int64_t>(at), range.copy.data() + at, address, std::min(range.copy.size() - at, size_t{4}));
  }

  std::string report(std::string_view buffer, int64_t at, const std::byte* expected, const std::byte* found, size_t n) const {
    const auto hex = [n](const std::byte* bytes) {
      std::string text;
      for (size_t i = n; i-- > 0;) text += fmt::format("{:02x}", static_cast<unsigned>(bytes[i]));
      return text;
    };
    return fmt::format("the host plan of '{}' differs from the reference interpreter in buffer {} at byte {}: {}, not {}",
                       program->name, buffer, at, hex(found), hex(expected));
  }
};

PlanCheck::PlanCheck(std::shared_ptr<const isa::Program> program, const spec::Chip& chip, std::span<std::byte* const> buffers,
                     std::span<const ScalarValue> scalars)
    : impl_(std::make_unique<Impl>(std::move(program), chip, buffers, scalars)) {}
PlanCheck::~PlanCheck() = default;

std::string PlanCheck::compare(bool plan_ok) {
  std::vector<CoreMemory*> memories;
  for (const auto& memory : impl_->memories) memories.push_back(memory.get());
  Fault fault;
  const bool ok = exec::run(impl_->executable, memories, impl_->copies, impl_->values, fault);
  if (ok != plan_ok)
    return fmt::format("the host plan of '{}' {}, the reference interpreter {}", impl_->program->name,
                       plan_ok ? "succeeds" : "fails", ok ? "succeeds" : "fails: " + fault.message);
  if (!ok) return {};
  for (const Impl::Range& range : impl_->ranges)
    if (std::memcmp(range.copy.data(), range.begin, range.copy.size()) != 0) return impl_->differing(range);
  return {};
}

}  // namespace opentrn::exec
