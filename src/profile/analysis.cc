#include "profile/analysis.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace opentrn::profile {
namespace {

// Below this busy share no unit can be called the bottleneck: waiting dominates.
constexpr double kBusyShare = 0.35;

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

struct Unit {
  Limit limit;
  const char* name;
  double share;
};

}  // namespace

int64_t union_ps(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.start_ps < b.start_ps; });
  int64_t total = 0, end = INT64_MIN;
  for (const Interval& interval : intervals) {
    const int64_t start = std::max(interval.start_ps, end);
    if (interval.end_ps <= start) continue;
    total += interval.end_ps - start;
    end = interval.end_ps;
  }
  return total;
}

DeviceUse device_use(std::span<const LaunchTime> launches) {
  std::vector<LaunchTime> sorted(launches.begin(), launches.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const LaunchTime& a, const LaunchTime& b) { return a.start_ps < b.start_ps; });
  DeviceUse use;
  if (sorted.empty()) return use;
  int64_t end = sorted.front().start_ps;
  for (const LaunchTime& launch : sorted) {
    if (launch.start_ps > end) {
      const int64_t gap = launch.start_ps - end;
      (launch.start_ps == launch.host_ps ? use.idle_host_ps : use.idle_other_ps) += gap;
      end = launch.start_ps;
    }
    if (launch.end_ps > end) {
      use.busy_ps += launch.end_ps - end;
      end = launch.end_ps;
    }
  }
  use.span_ps = end - sorted.front().start_ps;
  return use;
}

std::vector<TrackUse> track_use(const cost::Timeline& timeline) {
  std::map<std::pair<int32_t, int8_t>, std::pair<TrackUse, std::vector<Interval>>> tracks;
  for (const cost::Event& event : timeline.events) {
    auto& [use, intervals] = tracks[{event.core, event.track}];
    use.core = event.core;
    use.track = event.track;
    use.wait_ps += event.wait_ps;
    use.bytes += event.bytes;
    ++use.events;
    intervals.push_back({event.start_ps, event.end_ps});
  }
  std::vector<TrackUse> uses;
  for (auto& [key, track] : tracks) {
    track.first.busy_ps = union_ps(std::move(track.second));
    uses.push_back(track.first);
  }
  return uses;
}

std::string_view name_of(Limit limit) {
  switch (limit) {
    case Limit::host_dispatch: return "host dispatch";
    case Limit::host_transfer: return "host transfer";
    case Limit::tensor: return "tensor engine";
    case Limit::vector: return "vector engine";
    case Limit::scalar: return "scalar engine";
    case Limit::gpsimd: return "GpSimd engine";
    case Limit::sync: return "sync engine";
    case Limit::dma: return "DMA";
    case Limit::latency: return "latency";
  }
  return "?";
}

std::string format_time(int64_t ps) {
  const double value = static_cast<double>(ps);
  auto digits = [](double x, const char* unit) {
    return x < 10 ? fmt::format("{:.3f} {}", x, unit) : x < 100 ? fmt::format("{:.2f} {}", x, unit)
                                                                : fmt::format("{:.1f} {}", x, unit);
  };
  if (value < 999.95e6) return digits(value / 1e6, "us");
  if (value < 999.95e9) return digits(value / 1e9, "ms");
  return digits(value / 1e12, "s");
}

Bound bound(const StepTotals& t) {
  Bound result;
  if (t.step_ps <= 0 && t.device_ps <= 0) {
    result.sentence = "Nothing ran on the device.";
    return result;
  }
  const int64_t step_ps = std::max({t.step_ps, t.device_ps, t.dispatch_ps});
  const double device = share(t.device_ps, step_ps);
  if (t.dispatch_ps >= t.device_ps && t.dispatch_ps >= t.transfer_ps) {
    result.limit = Limit::host_dispatch;
    result.share = share(t.dispatch_ps, step_ps);
    result.sentence = fmt::format(
        "Host dispatch bounds the step: {} of {} ({}) go into dispatching {} programs, which keep the device busy for {} "
        "({}); torch.compile or larger operators would shorten it.",
        format_time(t.dispatch_ps), format_time(step_ps), percent(result.share), t.launches, format_time(t.device_ps),
        percent(device));
    return result;
  }
  if (t.transfer_ps > t.device_ps) {
    result.limit = Limit::host_transfer;
    result.share = share(t.transfer_ps, step_ps);
    result.sentence = fmt::format(
        "Copies between host and device bound the step: {} of {} ({}), while programs keep the device busy for {} ({}).",
        format_time(t.transfer_ps), format_time(step_ps), percent(result.share), format_time(t.device_ps),
        percent(device));
    return result;
  }

  const int64_t core_ps = t.device_ps * std::max(1, t.cores);
  const Unit units[] = {
      {Limit::tensor, "tensor", share(t.engine_busy_ps[0], core_ps)},
      {Limit::vector, "vector", share(t.engine_busy_ps[1], core_ps)},
      {Limit::scalar, "scalar", share(t.engine_busy_ps[2], core_ps)},
      {Limit::gpsimd, "GpSimd", share(t.engine_busy_ps[3], core_ps)},
      {Limit::sync, "sync", share(t.engine_busy_ps[4], core_ps)},
      {Limit::dma, "DMA", share(t.dma_busy_ps, core_ps)},
  };
  const Unit* busiest = std::max_element(std::begin(units), std::end(units),
                                         [](const Unit& a, const Unit& b) { return a.share < b.share; });
  std::string others;
  for (const Unit& unit : units)
    if (&unit != busiest && unit.limit != Limit::sync)
      others += fmt::format("{}{} {}", others.empty() ? "" : ", ", unit.name, percent(unit.share));
  result.share = busiest->share;
  const std::string device_text =
      fmt::format("{} of device time ({} of the step)", format_time(t.device_ps), percent(device));
  if (busiest->share >= kBusyShare) {
    result.limit = busiest->limit;
    result.sentence = fmt::format("{} bounds the step: it is busy for {} of {}; {}.",
                                  busiest->limit == Limit::dma ? std::string("DMA")
                                                               : fmt::format("The {}", name_of(busiest->limit)),
                                  percent(busiest->share), device_text, others);
  } else {
    result.limit = Limit::latency;
    result.sentence = fmt::format(
        "Latency bounds the step: no engine is busy for more than {} ({}) of {}; {} launches and the waits between "
        "engines and DMA take the rest; {}.",
        percent(busiest->share), busiest->name, device_text, t.launches, others);
  }
  return result;
}

}  // namespace opentrn::profile
