#include "spec/chip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace opentrn::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A folder of chip files with one edited copy of trn2, chosen through OPENTRN_CHIPS.
class EditedChip : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("opentrn_chips_" + std::to_string(::getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    text_ = read(OPENTRN_SOURCE_DIR "/chips/trn2.json");
    setenv("OPENTRN_CHIPS", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("OPENTRN_CHIPS");
    std::filesystem::remove_all(folder_);
  }
  void replace(const std::string& from, const std::string& to) {
    size_t at = text_.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text_.replace(at, from.size(), to);
  }
  std::string error() {
    std::ofstream(folder_ / "trn2.json") << text_;
    try {
      chip("trn2");
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  }
  std::filesystem::path folder_;
  std::string text_;
};

TEST(Chip, NamesAreTheFilesOfTheFolder) { EXPECT_THAT(chip_names(), ElementsAre("trn1", "trn2", "trn3")); }

TEST(Chip, Trn2IsTheDocumentedMachine) {
  const Chip& c = chip("trn2");
  EXPECT_EQ(c.title, "Trainium2 (NeuronCore-v3)");
  EXPECT_EQ(c.cores_per_chip, 8);
  EXPECT_THAT(c.lnc_allowed, ElementsAre(1, 2));
  EXPECT_EQ(c.lnc_default, 2);
  EXPECT_EQ(c.hbm_bytes_per_core * c.lnc_default, int64_t{24} << 30);
  EXPECT_EQ(c.sbuf_bytes_per_partition, 212984);
  EXPECT_EQ(c.psum_banks * c.psum_bank_bytes, c.psum_bytes_per_partition);
  EXPECT_DOUBLE_EQ(c.engines[0].ghz, 2.4);
  EXPECT_DOUBLE_EQ(c.engines[1].ghz, 0.96);
  // The peak follows from the array and the clock.
  EXPECT_NEAR(c.peak_tflops.at("bf16"), 2e-3 * c.tensor_rows * c.tensor_columns * c.engines[0].ghz, 0.1);
  EXPECT_TRUE(c.vector_perf_modes);
}

TEST(Chip, Trn1HasOneCorePerDeviceAndNoPerformanceModes) {
  const Chip& c = chip("trn1");
  EXPECT_THAT(c.lnc_allowed, ElementsAre(1));
  EXPECT_FALSE(c.vector_perf_modes);
  EXPECT_FALSE(c.hardware_dge);
  EXPECT_EQ(c.throttle_ramp_ns, 0);
  EXPECT_EQ(c.hbm_bytes_per_core, int64_t{16} << 30);
}

TEST(Chip, EveryTimingOfTrn3IsGradedEstimated) {
  for (const Parameter& p : chip("trn3").parameters) {
    if (p.unit == "ns" && p.path != "dma.start_ns") {
      EXPECT_TRUE(p.grade == Grade::estimated || p.path.starts_with("tensor.throttle") || p.path == "laws.gpsimd.kernel.start.startup")
          << p.path;
    }
  }
}

TEST(Chip, ParametersCarryUnitSourceAndGrade) {
  for (const std::string& name : chip_names()) {
    const Chip& c = chip(name);
    EXPECT_GT(c.parameters.size(), 150u);
    for (const Parameter& p : c.parameters) {
      EXPECT_FALSE(p.unit.empty()) << p.path;
      EXPECT_GT(p.source.size(), 10u) << p.path;
    }
    int total = 0;
    for (auto& [grade, count] : c.grade_counts()) total += count;
    EXPECT_EQ(total, static_cast<int>(c.parameters.size()));
  }
}

TEST(Chip, HashNamesTheContents) {
  EXPECT_EQ(chip("trn2").hash.size(), 32u);
  EXPECT_NE(chip("trn2").hash, chip("trn3").hash);
}

TEST(Chip, UnknownChipNamesTheKnownOnes) {
  try {
    chip("trn9");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("unknown chip 'trn9': known are trn1, trn2, trn3"));
  }
  EXPECT_THROW(chip("../chips/trn2"), UserError);
}

TEST_F(EditedChip, ValidCopyLoadsAndHasAnotherHash) {
  std::string original = [] { unsetenv("OPENTRN_CHIPS"); return chip("trn2").hash; }();
  setenv("OPENTRN_CHIPS", folder_.c_str(), 1);
  replace("\"value\": 2.4", "\"value\": 2.5");
  ASSERT_EQ(error(), "no error");
  EXPECT_DOUBLE_EQ(chip("trn2").engines[0].ghz, 2.5);
  EXPECT_NE(chip("trn2").hash, original);
}

TEST_F(EditedChip, MissingValueNamesItsPath) {
  replace("\"ghz\": {\"value\": 2.4", "\"clock\": {\"value\": 2.4");
  EXPECT_THAT(error(), HasSubstr("tensor.ghz: missing"));
}

TEST_F(EditedChip, UnknownKeyNamesItsPath) {
  replace("\"fp32_passes\"", "\"fp33_passes\": {\"value\": 4, \"unit\": \"1\", \"source\": \"A3\", \"grade\": \"documented\"}, \"fp32_passes\"");
  EXPECT_THAT(error(), HasSubstr("tensor.fp33_passes: is not known"));
}

TEST_F(EditedChip, WrongTypeNamesItsPath) {
  replace("\"ghz\": {\"value\": 2.4", "\"ghz\": {\"value\": \"fast\"");
  EXPECT_THAT(error(), HasSubstr("tensor.ghz.value: must be a number"));
}

TEST_F(EditedChip, OutOfRangeSaysWhatIsAllowed) {
  replace("\"engines\": {\"value\": 16", "\"engines\": {\"value\": 0");
  EXPECT_THAT(error(), HasSubstr("dma.engines.value: is 0, must be between 1 and 64"));
}

TEST_F(EditedChip, GradeMustBeOneOfThree) {
  replace("\"grade\": \"measured\"", "\"grade\": \"guessed\"");
  EXPECT_THAT(error(), HasSubstr("is 'guessed', must be documented, measured or estimated"));
}

TEST_F(EditedChip, SourceMustBeListed) {
  replace("\"source\": \"VY\"", "\"source\": \"hearsay\"");
  EXPECT_THAT(error(), HasSubstr("'hearsay' is not one of the keys of `sources`"));
}

TEST_F(EditedChip, BrokenJsonIsAUserError) {
  text_.resize(text_.size() / 2);
  EXPECT_THAT(error(), HasSubstr("not valid JSON"));
}

TEST(Chips, FolderOfTheEnvironmentMustExist) {
  setenv("OPENTRN_CHIPS", "/nonexistent/folder", 1);
  EXPECT_THROW(chip_names(), UserError);
  unsetenv("OPENTRN_CHIPS");
}

}  // namespace
}  // namespace opentrn::spec
