#include "cost/laws.h"

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/error.h"

namespace opentrn::cost {
namespace {

constexpr const char* kNames[] = {
    "vector.tensor_copy.32", "vector.tensor_copy.16", "vector.tensor_copy.16_strided", "vector.tensor_copy.16_to_32",
    "vector.tensor_copy.32_to_16", "vector.tensor_copy.psum", "vector.tensor_copy.psum_16",
    "vector.tensor_scalar.32", "vector.tensor_scalar.16", "vector.tensor_scalar.16_strided",
    "vector.tensor_scalar.16_to_32", "vector.tensor_scalar.32_to_16", "vector.tensor_scalar.psum",
    "vector.tensor_scalar.psum_16",
    "vector.tensor_tensor.32", "vector.tensor_tensor.16", "vector.tensor_tensor.psum",
    "vector.scalar_tensor_tensor.32", "vector.scalar_tensor_tensor.16", "vector.scalar_tensor_tensor.psum",
    "vector.tensor_copy_predicated.split", "vector.tensor_copy_predicated.sbuf", "vector.select",
    "vector.tensor_reduce.32", "vector.tensor_reduce.16", "vector.tensor_reduce.16_to_32", "vector.tensor_reduce.psum",
    "vector.tensor_tensor_scan", "vector.tensor_tensor_scan.seed", "vector.reciprocal", "vector.bn_stats",
    "vector.bn_aggr", "vector.max8", "vector.nc_find_index8", "vector.nc_match_replace8", "vector.memset",
    "vector.nc_transpose",
    "scalar.activation.function", "scalar.activation.function_16", "scalar.activation.function_32_to_16",
    "scalar.activation.function_psum", "scalar.activation.silu_psum", "scalar.activation.copy",
    "scalar.activation.copy_psum", "scalar.activation.tile_operand", "scalar.activation.accumulator_read",
    "scalar.tensor_copy.32", "scalar.tensor_copy.16", "scalar.tensor_copy.psum",
    "gpsimd.iota", "gpsimd.affine_select", "gpsimd.tensor_copy", "gpsimd.tensor_scalar", "gpsimd.tensor_tensor",
    "gpsimd.memset", "gpsimd.other", "gpsimd.tensor_partition_reduce",
    "gpsimd.kernel.start", "gpsimd.kernel.simple", "gpsimd.kernel.simple_64", "gpsimd.kernel.mul_64",
    "gpsimd.kernel.div", "gpsimd.kernel.div_64", "gpsimd.kernel.f64", "gpsimd.kernel.div_f64", "gpsimd.kernel.sqrt",
    "gpsimd.kernel.special_64",
    "tensor.nc_matmul.f32", "tensor.nc_transpose", "tensor.nc_transpose.f32",
};
static_assert(std::size(kNames) == static_cast<size_t>(LawKey::count_));

}  // namespace

const LawTable& laws_of(const spec::Chip& chip) {
  static std::mutex mutex;
  static std::unordered_map<std::string, std::unique_ptr<LawTable>> tables;  // by the chip file's hash
  thread_local const spec::Chip* last_chip = nullptr;
  thread_local const LawTable* last = nullptr;
  thread_local std::string last_hash;
  if (last_chip == &chip && last_hash == chip.hash) return *last;
  std::lock_guard lock(mutex);
  std::unique_ptr<LawTable>& slot = tables[chip.hash];
  if (!slot) {
    auto table = std::make_unique<LawTable>();
    for (size_t i = 0; i < table->size(); ++i) {
      auto it = chip.laws.find(kNames[i]);
      if (it == chip.laws.end())
        throw UserError(fmt::format("chip file of {}: laws.{}: missing", chip.name, kNames[i]));
      (*table)[i] = it->second;
    }
    slot = std::move(table);
  }
  last_chip = &chip;
  last_hash = chip.hash;
  last = slot.get();
  return *last;
}

}  // namespace opentrn::cost
