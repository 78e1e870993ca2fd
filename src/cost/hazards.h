// Which instructions of an engine read what a recent instruction of the same engine wrote.
// Decided on the text of the program, by memory, slot, partitions and bytes.
#pragma once

#include <vector>

#include "isa/program.h"

namespace opentrn::cost {

class Hazards {
 public:
  explicit Hazards(const isa::CoreProgram& core);

  // Among the `window` instructions of `engine_code` (indices into the core's code, ascending) that execute before
  // `reader` (itself included when a loop comes round to it), those that write bytes which `reader` reads. Where loop
  // dependent addresses cannot be told apart they count as the same.
  std::vector<int> writers_read_by(int reader, const std::vector<int>& engine_code, int window) const;

 private:
  bool rotated(int register_, int from, int to) const;  // by a rotate in (from, to)
  bool conflicts(const isa::AccessPattern& write, const isa::AccessPattern& read, int writer, int reader,
                 int loop_begin, int loop_end) const;
  bool reads_result(int writer, int reader, int loop_begin, int loop_end) const;

  const isa::CoreProgram& core_;
  std::vector<int> end_of_;     // loop_begin -> its loop_end
  std::vector<int> parent_;     // instruction -> innermost enclosing loop_begin, -1 if none
  std::vector<int> rotates_;    // indices of rotate instructions
};

}  // namespace opentrn::cost
