// The limits of a Trainium2 core as tests of the ISA need them, and short-hands to make programs from text.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "isa/program.h"
#include "isa/text.h"
#include "isa/verify.h"
#include "spec/chip.h"

namespace opentrn::isa {

inline const spec::Chip& trn2() {
  static const spec::Chip chip = [] {
    spec::Chip c;
    c.name = "trn2";
    c.sbuf_bytes_per_partition = 212984;
    c.psum_bytes_per_partition = 16384;
    return c;
  }();
  return chip;
}

// All findings as lines "core:instruction message".
inline std::string findings(const Program& program, const spec::Chip& chip = trn2()) {
  std::string text;
  for (const Finding& f : check(program, chip))
    text += std::to_string(f.core) + ":" + std::to_string(f.instruction) + " " + f.message + "\n";
  return text;
}
inline std::string findings(const std::string& text) { return findings(parse(text)); }

}  // namespace opentrn::isa
