// The three kinds of failure: the user's fault, our bug, and what this version does not do.
// A message says what was asked, what is allowed and what to do next.
#pragma once

#include <stdexcept>
#include <string>

namespace opentrn {

// Wrong input: a bad file, option, shape or program. The text is for the user.
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A broken invariant of opentrn itself. The text names the invariant and prints the object.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

// Legal input that this version does not support. The text names the feature.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace opentrn
