// Turns origin ids into text: "aten::mm at train.py:31". The bridge keeps the table and installs the function.
#pragma once

#include <cstdint>
#include <string>

namespace opentrn::runtime {

// `describe_origin` is called on threads that wait or allocate, never on a device's worker; nullptr removes it.
void set_origin_describer(std::string (*describe_origin)(int32_t));
// Empty for -1 and when nobody can tell.
std::string describe_origin(int32_t origin);

}  // namespace opentrn::runtime
