// The binary form of a program, as kept in the program cache on disk.
// Starts with a magic number and Program::kVersion; ends with a checksum.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "isa/program.h"

namespace opentrn::isa {

std::vector<std::byte> serialize(const Program& program);

// Throws UserError when the bytes are torn, of another version or not a program.
Program deserialize(std::span<const std::byte> bytes);

// 128-bit hash of the serialised form as 32 hex digits; `origin` fields do not enter it.
std::string digest(const Program& program);

}  // namespace opentrn::isa
