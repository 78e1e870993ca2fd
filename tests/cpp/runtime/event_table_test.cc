#include "runtime/event_table.h"

#include <gtest/gtest.h>

namespace opentrn::runtime {
namespace {

TEST(EventTable, IdsOfReleasedEventsAreNeverAnothers) {
  EventTable table(3);
  EventId a = table.add({100, 1});
  EXPECT_EQ(EventTable::device_of(a), 3);
  EXPECT_EQ(table.find(a)->time_ps, 100);
  table.release(a);
  table.release(a);
  EXPECT_EQ(table.find(a), nullptr);
  EventId b = table.add({200, 2});
  EXPECT_NE(a, b);
  EXPECT_EQ(table.find(a), nullptr);
  EXPECT_EQ(table.find(b)->ticket, 2u);
  EXPECT_EQ(table.live(), 1u);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(EventTable(4).find(b), nullptr);
}

}  // namespace
}  // namespace opentrn::runtime
