// Where in the user's script an operator was called: the innermost Python frame outside torch itself.
//
// Capturing reads the interpreter's frames of the calling thread without the GIL and costs tens of nanoseconds; names
// are looked up later. In a backward pass the origin is that of the forward operator, through autograd's sequence
// numbers.
#pragma once

#include <cstdint>
#include <string>

namespace opentrn::bridge {

// Id of the calling Python line, -1 without one. Call it on the thread that dispatches the operator.
int32_t capture_origin();
// The same, and remembers it for the backward of the autograd node that was created last.
int32_t capture_origin_for_autograd();

struct Origin {
  std::string file;
  int line = 0;
  std::string function;
  bool backward = false;
};
// An empty file for an unknown id. Needs no GIL.
Origin origin(int32_t id);
// "train.py:42 in step", with " (backward)"; "unknown" for -1.
std::string describe_origin(int32_t id);
int32_t origin_count();

// Files below this folder are not the user's: called once with torch's and our own package folders.
void add_library_folder(const std::string& folder);

}  // namespace opentrn::bridge
