#include "runtime/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "programs.h"

namespace opentrn::runtime {
namespace {

class SettingsTest : public RuntimeTest {
 protected:
  // The message for a bad value; the variable is unset again.
  std::string error(const char* name, const std::string& value) {
    set(name, value);
    std::string text = "accepted";
    try {
      reload_settings();
    } catch (const UserError& error) {
      text = error.what();
    }
    unsetenv(name);
    reload_settings();
    return text;
  }
};

TEST_F(SettingsTest, Defaults) {
  const Settings& s = settings();
  EXPECT_EQ(s.chip, "trn2");
  EXPECT_EQ(s.lnc, 2);
  EXPECT_EQ(s.devices, 4);
  EXPECT_EQ(s.mode, Mode::simulate);
  EXPECT_FALSE(s.launch_blocking);
  EXPECT_GE(s.threads, 1);
  EXPECT_EQ(s.cache_dir, cache_folder);
}

TEST_F(SettingsTest, ReadsTheNeuronVariables) {
  set("NEURON_LOGICAL_NC_CONFIG", "1");
  reload_settings();
  EXPECT_EQ(settings().lnc, 1);
  EXPECT_EQ(settings().devices, 8);
  set("NEURON_RT_NUM_CORES", "3");
  reload_settings();
  EXPECT_EQ(settings().devices, 3);
  set("NEURON_RT_VISIBLE_CORES", "0,4-7,5");
  set("NEURON_LAUNCH_BLOCKING", "1");
  set("NEURON_COMPILATION_CACHE_MAX_SIZE_MB", "10");
  set("OPENTRN_MODE", "predict");
  reload_settings();
  EXPECT_EQ(settings().devices, 5);
  EXPECT_TRUE(settings().launch_blocking);
  EXPECT_EQ(settings().cache_max_bytes, 10 << 20);
  EXPECT_EQ(settings().mode, Mode::predict);
}

TEST_F(SettingsTest, NamesVariableValueAndWhatIsAllowed) {
  EXPECT_EQ(error("OPENTRN_CHIP", "trn9"), "OPENTRN_CHIP=trn9: unknown chip; known: trn1, trn2, trn3");
  EXPECT_EQ(error("NEURON_LOGICAL_NC_CONFIG", "3"),
            "NEURON_LOGICAL_NC_CONFIG=3: trn2 groups 1 or 2 physical cores into a logical one");
  EXPECT_EQ(error("OPENTRN_MODE", "fast"),
            "OPENTRN_MODE=fast: expected simulate (values and time) or predict (time only)");
  EXPECT_EQ(error("NEURON_RT_VISIBLE_CORES", "3-1"),
            "NEURON_RT_VISIBLE_CORES=3-1: expected core numbers as in 0-3 or 0,2,5");
  EXPECT_EQ(error("NEURON_RT_NUM_CORES", "4x"), "NEURON_RT_NUM_CORES=4x: expected an integer from 1 to 128");
  EXPECT_EQ(error("NEURON_LAUNCH_BLOCKING", "maybe"), "NEURON_LAUNCH_BLOCKING=maybe: expected 0 or 1");
  EXPECT_EQ(error("OPENTRN_HOST_PLAN", "yes"),
            "OPENTRN_HOST_PLAN=yes: expected on (host plans), off (the reference interpreter) or check (both, compared)");
}

TEST_F(SettingsTest, DeviceIndexOutOfRange) {
  try {
    Device::get(20);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("Device index 20 is out of range. Valid range is 0 to 3"));
  }
}

}  // namespace
}  // namespace opentrn::runtime
