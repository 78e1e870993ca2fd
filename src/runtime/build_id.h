// Identifies the build of this library, for the keys of programs that outlive the process.
#pragma once

#include <string>

namespace opentrn::runtime {

// The linker's build id of the file that holds this code, in hex; without one, its size and modification time.
const std::string& build_id();

}  // namespace opentrn::runtime
