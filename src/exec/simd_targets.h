// Which SIMD targets the exec layer is compiled for: the baseline, AVX2, AVX-512 and NEON. Include this before
// any Highway header; fewer targets keep the build short, and only these have been compared bit by bit.
#pragma once

// Highway's bits: 0-7 everything beyond AVX3 on x86, 11 SSE4, 12 SSSE3, 22-27 SVE and NEON_BF16.
#define OPENTRN_DISABLED_TARGETS (0xFFLL | (1LL << 11) | (1LL << 12) | (0x3FLL << 22))
#define HWY_DISABLED_TARGETS OPENTRN_DISABLED_TARGETS
