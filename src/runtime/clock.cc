#include "runtime/clock.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"

namespace opentrn::runtime {
namespace {

alignas(64) std::atomic<int64_t> host_hand{0};

int64_t from_us(double us) { return std::llround(us * 1e6); }
int64_t from_ns(double ns) { return std::llround(ns * 1e3); }

}  // namespace

int64_t host_now_ps() { return host_hand.load(std::memory_order_relaxed); }

void advance_host(int64_t ps) { host_hand.fetch_add(ps, std::memory_order_relaxed); }

void host_waits_until(int64_t ps) {
  int64_t now = host_hand.load(std::memory_order_relaxed);
  while (now < ps && !host_hand.compare_exchange_weak(now, ps, std::memory_order_relaxed)) {
  }
}

void reset_host_clock() { host_hand.store(0); }

Clock::Clock(const spec::Chip& chip, int lnc)
    : dispatch_eager_ps_(from_us(chip.dispatch_eager_us)),
      dispatch_compiled_ps_(from_us(chip.launch_compiled_us)),
      launch_ps_(from_us(chip.launch_us)),
      transfer_latency_ps_(from_us(chip.host_transfer_latency_us)),
      fill_latency_ps_(from_ns(chip.dma_start_ns + chip.dma_complete_ns)) {
  const double fill_bytes_per_ns = chip.dma_bytes_per_ns_per_engine * chip.dma_engines * lnc;
  transfer_ps_per_byte_ = chip.host_to_device_gb_s > 0 ? 1e3 / chip.host_to_device_gb_s : 0;
  fill_ps_per_byte_ = fill_bytes_per_ns > 0 ? 1e3 / fill_bytes_per_ns : 0;
}

StreamId Clock::new_stream() {
  streams_.push_back(0);
  return static_cast<StreamId>(streams_.size()) - 1;
}

size_t Clock::index(StreamId stream) const {
  if (stream < 0 || stream >= static_cast<StreamId>(streams_.size()))
    throw UserError(
        fmt::format("stream {} does not exist on this device; it has streams 0 to {}", stream, streams_.size() - 1));
  return static_cast<size_t>(stream);
}

void Clock::delay_stream(StreamId stream, int64_t until_ps) {
  int64_t& hand = streams_[index(stream)];
  hand = std::max(hand, until_ps);
}

int64_t Clock::last_ps() const { return *std::max_element(streams_.begin(), streams_.end()); }

Span Clock::launch(StreamId stream, int64_t program_ps, Dispatch dispatch) {
  int64_t& hand = streams_[index(stream)];
  Span span;
  if (dispatch == Dispatch::eager) span.dispatch_ps = dispatch_eager_ps_;
  if (dispatch == Dispatch::compiled) span.dispatch_ps = dispatch_compiled_ps_;
  advance_host(span.dispatch_ps);
  span.host_ps = host_now_ps();
  span.start_ps = std::max({span.host_ps, hand, core_ps_});
  span.end_ps = span.start_ps + launch_ps_ + program_ps;
  hand = core_ps_ = span.end_ps;
  return span;
}

Span Clock::occupy(StreamId stream, int64_t duration_ps) {
  int64_t& hand = streams_[index(stream)];
  Span span;
  span.host_ps = host_now_ps();
  span.start_ps = std::max(span.host_ps, hand);
  span.end_ps = hand = span.start_ps + duration_ps;
  return span;
}

Span Clock::transfer(StreamId stream, int64_t bytes) {
  return occupy(stream, transfer_latency_ps_ + std::llround(static_cast<double>(bytes) * transfer_ps_per_byte_));
}

Span Clock::fill(StreamId stream, int64_t bytes) {
  return occupy(stream, fill_latency_ps_ + std::llround(static_cast<double>(bytes) * fill_ps_per_byte_));
}

}  // namespace opentrn::runtime
