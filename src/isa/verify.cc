#include "isa/verify.h"

#include <fmt/format.h>

#include "base/error.h"
#include "isa/findings.h"
#include "isa/text.h"
#include "isa/verify_operands.h"
#include "isa/verify_order.h"
#include "isa/verify_structure.h"

namespace opentrn::isa {

std::vector<Finding> check(const Program& program, const spec::Chip& chip) {
  Findings findings;
  check_structure(program, chip, findings);
  if (findings.empty()) check_operands(program, chip, findings);
  if (findings.empty()) check_order(program, chip, findings);
  return findings.take();
}

void verify(const Program& program, const spec::Chip& chip) {
  const std::vector<Finding> findings = check(program, chip);
  if (findings.empty()) return;
  constexpr size_t kShown = 5;
  std::string text = fmt::format("program '{}' is not valid for {}:", program.name, chip.name);
  for (size_t k = 0; k < findings.size() && k < kShown; ++k) {
    const Finding& f = findings[k];
    text += fmt::format("\n  core {}", f.core);
    if (f.instruction >= 0) {
      const CoreProgram& core = program.cores[f.core];
      text += fmt::format(", instruction {}: {}\n   ", f.instruction, print(core.code[f.instruction], core, program));
    } else {
      text += ':';
    }
    text += ' ' + f.message;
  }
  if (findings.size() > kShown) text += fmt::format("\n  and {} more", findings.size() - kShown);
  throw UserError(text);
}

}  // namespace opentrn::isa
