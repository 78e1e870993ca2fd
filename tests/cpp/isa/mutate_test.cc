#include "isa/mutate.h"

#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "isa/serialize.h"
#include "machine.h"

namespace opentrn::isa {
namespace {

Program load(const std::string& path) {
  std::ifstream in(std::string(OPENTRN_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << in.rdbuf();
  return parse(text.str());
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

class Mutations : public testing::TestWithParam<const char*> {};

TEST_P(Mutations, EachChangesTheProgramInItsOwnWay) {
  const Program original = load(GetParam());
  const size_t count = mutation_count(original);
  EXPECT_GT(count, 50u);
  std::set<std::string> digests{digest(original)}, descriptions;
  for (size_t k = 0; k < count; ++k) {
    Program p = original;
    const std::string description = mutate(p, k);
    EXPECT_TRUE(descriptions.insert(description).second) << description;
    EXPECT_TRUE(digests.insert(digest(p)).second) << description;
    Program again = original;
    EXPECT_EQ(mutate(again, k), description);
    EXPECT_EQ(digest(again), digest(p));
  }
  Program p = original;
  EXPECT_THROW(mutate(p, count), InternalError);
  EXPECT_EQ(digest(p), digest(original));
}

// What concerns order alone cannot show in the outputs, so the verifier has to see all of it.
TEST_P(Mutations, OfOrderAreFoundByTheVerifier) {
  const Program original = load(GetParam());
  int of_order = 0;
  for (size_t k = 0; k < mutation_count(original); ++k) {
    Program p = original;
    const std::string description = mutate(p, k);
    const bool order = contains(description, "wait on") || contains(description, "post to") ||
                       contains(description, "token more") || contains(description, "slot less") ||
                       contains(description, "moved to") || contains(description, "rotate deleted") ||
                       contains(description, "event_semaphore deleted");
    if (!order) continue;
    ++of_order;
    EXPECT_NE(findings(p), "") << description;
  }
  EXPECT_GT(of_order, 20);
}

INSTANTIATE_TEST_SUITE_P(Programs, Mutations, testing::Values("tests/text/scaled_add.trn", "tests/text/matmul.trn"));

TEST(Mutations, OfRegisterPrograms) {
  const Program original = parse(R"(program p chip=trn2
kernel k {
  body {
    r0 = load.f32 0
    r1 = constant.f32 2
    r2 = mul.f32 r0, r1
    store.f32 1, r2
  }
}
)");
  std::vector<std::string> all;
  for (size_t k = 0; k < mutation_count(original); ++k) {
    Program p = original;
    all.push_back(mutate(p, k));
  }
  EXPECT_THAT(all, testing::ElementsAre("kernel 'k', body 0: load deleted", "kernel 'k', body 1: constant deleted",
                                        "kernel 'k', body 1: constant 2 changed", "kernel 'k', body 2: mul deleted",
                                        "kernel 'k', body 2: mul becomes add", "kernel 'k', body 3: store deleted"));
}

}  // namespace
}  // namespace opentrn::isa
