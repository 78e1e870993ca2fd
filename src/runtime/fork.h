// Knows whether this process is a fork of one that used the runtime.
// A fork has the parent's memory but not its threads, so nothing of the runtime works in it.
#pragma once

namespace opentrn::runtime {

// From now on a fork of this process counts as a forked child.
void watch_forks();
// Throws UserError in a forked child.
void require_not_forked();

}  // namespace opentrn::runtime
