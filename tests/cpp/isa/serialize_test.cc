#include "isa/serialize.h"

#include <cstring>
#include <random>

#include "base/error.h"
#include "isa/hash.h"
#include "machine.h"

namespace opentrn::isa {
namespace {

const char* kText = R"(program p chip=trn2 model_flops=7
buffer x input bytes=4096
buffer y output bytes=4096 alias=x
buffer w constant bytes=4 data {
  0000803f
}
scalar lr f32
kernel k {
  body {
    r0 = load.f32 0
    r1 = constant.f32 2.5
    r2 = mul.f32 r0, r1
    store.f32 1, r2
  }
}
core 0 {
  pool t sbuf offset=0 bytes=64 depth=2
  semaphore ready initial=0
  loop i0 < 4 {
    rotate t0 = t
    sync.q0 dma_copy f32 t[t0] [0:16] [1,16] <- f32 x+i0*1024 [0:16 step 16] [1,16] origin=3 post ready+1
    gpsimd gpsimd_kernel f32 t[t0] [0:16] [1,16] <- f32 t[t0] [0:16] [1,16] kernel=k origin=4 wait ready>=1
  }
}
)";

std::string error_of(std::span<const std::byte> bytes) {
  try {
    deserialize(bytes);
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

void fix_checksum(std::vector<std::byte>& bytes) {
  const uint64_t sum = hash128(std::span(bytes).first(bytes.size() - 8)).low;
  std::memcpy(bytes.data() + bytes.size() - 8, &sum, 8);
}

TEST(Serialize, GivesTheProgramBack) {
  const Program p = parse(kText);
  EXPECT_EQ(print(deserialize(serialize(p))), kText);
}

TEST(Serialize, OtherVersionsAndOtherFilesAreRefused) {
  std::vector<std::byte> bytes = serialize(parse(kText));
  EXPECT_EQ(error_of({}), "these bytes are not a serialised program");
  bytes[8] = std::byte{9};
  EXPECT_EQ(error_of(bytes), "the serialised program has version 9, this opentrn reads version 1; compile it again");
  bytes[0] = std::byte{'x'};
  EXPECT_EQ(error_of(bytes), "these bytes are not a serialised program");
}

TEST(Serialize, EveryTruncationIsFound) {
  const std::vector<std::byte> bytes = serialize(parse(kText));
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_NE(error_of(std::span(bytes).first(n)), "no error") << n;
}

TEST(Serialize, EveryFlippedBitIsFound) {
  const std::vector<std::byte> bytes = serialize(parse(kText));
  for (size_t n = 0; n < bytes.size(); ++n)
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<std::byte> damaged = bytes;
      damaged[n] ^= static_cast<std::byte>(1 << bit);
      EXPECT_NE(error_of(damaged), "no error") << n;
    }
}

// Damage behind a valid checksum: reading either throws UserError or gives some program; the verifier copes with it.
TEST(Serialize, DamageBehindAValidChecksumNeverCrashes) {
  const std::vector<std::byte> bytes = serialize(parse(kText));
  std::mt19937 random(11);
  int read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> damaged = bytes;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n)
      damaged[12 + random() % (damaged.size() - 20)] = static_cast<std::byte>(random());
    if (random() % 4 == 0) damaged.resize(20 + random() % (damaged.size() - 20));
    fix_checksum(damaged);
    try {
      const Program p = deserialize(damaged);
      ++read;
      findings(p);
      print(p);
    } catch (const UserError&) {
    }
  }
  EXPECT_GT(read, 100);
}

TEST(Digest, IgnoresOriginsAndNothingElse) {
  Program p = parse(kText);
  const std::string original = digest(p);
  EXPECT_EQ(original.size(), 32u);
  p.cores[0].code[2].origin = 99;
  EXPECT_EQ(digest(p), original);
  p.cores[0].code[2].src[0].offset = 4;
  EXPECT_NE(digest(p), original);
}

TEST(Hash, SpreadsSmallDifferences) {
  std::vector<std::byte> zeros(24);
  const Hash128 a = hash128(zeros);
  for (size_t n = 0; n < zeros.size() * 8; ++n) {
    std::vector<std::byte> other = zeros;
    other[n / 8] ^= static_cast<std::byte>(1 << n % 8);
    const Hash128 b = hash128(other);
    EXPECT_GT(__builtin_popcountll(a.low ^ b.low) + __builtin_popcountll(a.high ^ b.high), 30);
  }
  EXPECT_NE(hash128(std::span(zeros).first(8)).low, hash128(std::span(zeros).first(16)).low);
}

}  // namespace
}  // namespace opentrn::isa
