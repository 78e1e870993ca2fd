#include "runtime/hash.h"

#include <fmt/format.h>

namespace opentrn::runtime {

std::string Key::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

}  // namespace opentrn::runtime
