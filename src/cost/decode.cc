#include "cost/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cost/cost.h"
#include "cost/hazards.h"

namespace opentrn::cost {

using isa::Engine;
using isa::Instruction;
using isa::Opcode;

namespace {

int64_t ps(double ns) { return std::llround(ns * 1000.0); }

constexpr int kMaxUses = 8;

int table_of(isa::ActFn act, const spec::Chip& chip) {
  std::string_view name = isa::name_of(act);
  for (size_t i = 0; i < chip.act_table_sets.size(); ++i)
    for (const std::string& function : chip.act_table_sets[i])
      if (function == name) return static_cast<int>(i);
  return static_cast<int>(chip.act_table_sets.size()) + static_cast<int>(act);  // a set of its own
}

class Decoder {
 public:
  Decoder(const isa::Program& program, int core, const spec::Chip& chip)
      : program_(program), code_(program.cores[static_cast<size_t>(core)]), chip_(chip) {}

  DecodedCore run() {
    out_.several_cores = program_.cores.size() > 1;
    for (const isa::Semaphore& s : code_.semaphores) out_.initial.push_back(s.initial);
    out_.waiters.assign(code_.semaphores.size(), 0);
    find_loops();
    for (int e = 0; e < isa::kEngines; ++e) split(e);
    return std::move(out_);
  }

 private:
  static bool is_everywhere(Opcode opcode) { return opcode == Opcode::barrier; }

  void find_loops() {
    std::vector<int> open;
    loop_of_.assign(code_.code.size(), -1);
    uses_.clear();
    for (size_t i = 0; i < code_.code.size(); ++i) {
      const Instruction& in = code_.code[i];
      if (in.opcode == Opcode::loop_begin) {
        open.push_back(static_cast<int>(out_.loops.size()));
        loop_of_[i] = open.back();
        out_.loops.push_back({in.count});
        uses_.push_back(0);
      } else if (in.opcode == Opcode::loop_end) {
        if (open.empty()) throw InternalError(fmt::format("timing of '{}': loop_end {} without a loop_begin", program_.name, i));
        loop_of_[i] = open.back();
        open.pop_back();
      } else if (in.opcode == Opcode::rotate) {
        continue;
      } else {
        for (int loop : open) {
          uses_[static_cast<size_t>(loop)] |= is_everywhere(in.opcode) ? 0x1f : 1 << static_cast<int>(in.engine);
          if (in.opcode == Opcode::barrier) out_.loops[static_cast<size_t>(loop)].has_barrier = true;
        }
        if (in.opcode == Opcode::barrier) ++out_.barriers;
      }
    }
    if (!open.empty()) throw InternalError(fmt::format("timing of '{}': a loop is not closed", program_.name));
    for (size_t l = 0; l < out_.loops.size(); ++l)
      for (int e = isa::kEngines - 1; e >= 0; --e)
        if (uses_[l] >> e & 1) out_.loops[l].leader = e;
  }

  void split(int e) {
    std::vector<Step>& steps = out_.steps[static_cast<size_t>(e)];
    std::vector<int32_t> begins;
    for (size_t i = 0; i < code_.code.size(); ++i) {
      const Instruction& in = code_.code[i];
      Step s;
      s.instruction = static_cast<int32_t>(i);
      if (in.opcode == Opcode::loop_begin || in.opcode == Opcode::loop_end) {
        int loop = loop_of_[i];
        if (!(uses_[static_cast<size_t>(loop)] >> e & 1)) continue;
        s.detail = loop;
        s.count = out_.loops[static_cast<size_t>(loop)].count;
        if (in.opcode == Opcode::loop_begin) {
          s.kind = Step::Kind::loop_begin;
          begins.push_back(static_cast<int32_t>(steps.size()) + 1);
        } else {
          s.kind = Step::Kind::loop_end;
          s.target = begins.back();
          begins.pop_back();
        }
        steps.push_back(s);
        continue;
      }
      if (in.opcode == Opcode::rotate) continue;
      if (!is_everywhere(in.opcode) && static_cast<int>(in.engine) != e) continue;
      fill(in, e, s);
      steps.push_back(s);
    }
    add_dependencies(e);
    steps.emplace_back();
  }

  void fill(const Instruction& in, int e, Step& s) {
    if (in.opcode == Opcode::barrier) {
      s.kind = Step::Kind::barrier;
      return;
    }
    add_uses(in, e, s);
    Cost c = cost(in, program_, chip_);
    s.issue_ps = c.issue_ps;
    s.completion_ps = c.completion_ps;
    if (isa::is_dma(in.opcode)) {
      s.kind = Step::Kind::dma;
      s.detail = static_cast<int32_t>(out_.transfers.size());
      Transfer t = transfer(in, program_, chip_);
      if (in.queue < 0 || in.queue >= isa::kMaxQueues)
        throw InternalError(fmt::format("timing of '{}': instruction {}: queue {}", program_.name, s.instruction, in.queue));
      out_.transfers.push_back({in.queue, t.engines, t.engine_ps, t.start_ps, t.complete_ps, t.hbm_ps, t.bytes,
                                t.hbm_read_bytes, t.hbm_write_bytes});
      return;
    }
    s.kind = Step::Kind::compute;
    if (e == static_cast<int>(Engine::tensor) && (in.opcode == Opcode::nc_matmul || in.opcode == Opcode::nc_transpose)) {
      s.kind = Step::Kind::matmul;
      s.detail = static_cast<int32_t>(out_.matmuls.size());
      double rate = chip_.throttle_ramp_ns > 0 ? chip_.throttle_rate : 1;
      int64_t flops = 0;
      if (in.opcode == Opcode::nc_matmul)
        flops = 2 * in.src[0].partitions * in.src[0].free_elements() * in.src[1].free_elements();
      out_.matmuls.push_back({c.columns_ps, std::llround(static_cast<double>(c.columns_ps) / rate), c.load_ps,
                              std::max<int64_t>(0, c.completion_ps - c.columns_ps), flops});
    } else if (in.opcode == Opcode::activation) {
      s.table = static_cast<int16_t>(table_of(in.act, chip_));
    }
    if (chip_.vector_gpsimd_share_port) {
      bool gpsimd_streams = e == static_cast<int>(Engine::gpsimd) && in.opcode != Opcode::gpsimd_kernel &&
                            in.opcode != Opcode::event_semaphore;
      s.takes_port = gpsimd_streams || (in.dst && in_perf_mode(in, chip_));
    }
  }

  void add_uses(const Instruction& in, int e, Step& s) {
    s.first_wait = static_cast<int32_t>(out_.waits.size());
    for (const isa::Signal& w : in.waits) {
      auto first = out_.waits.begin() + s.first_wait;
      auto same = std::find_if(first, out_.waits.end(), [&](const SemaphoreUse& u) { return u.semaphore == w.semaphore; });
      if (same != out_.waits.end()) same->count += w.count;
      else out_.waits.push_back({w.semaphore, w.count});
      out_.waiters.at(static_cast<size_t>(w.semaphore)) |= static_cast<uint8_t>(1 << e);
    }
    s.waits = static_cast<uint16_t>(out_.waits.size() - static_cast<size_t>(s.first_wait));
    s.first_post = static_cast<int32_t>(out_.posts.size());
    for (const isa::Signal& p : in.posts) out_.posts.push_back({p.semaphore, p.count});
    s.posts = static_cast<uint16_t>(in.posts.size());
  }

  // Which earlier instructions of the same engine have to be complete, not only issued, before a step may start.
  void add_dependencies(int e) {
    std::vector<Step>& steps = out_.steps[static_cast<size_t>(e)];
    if (e == static_cast<int>(Engine::tensor)) return;  // reads SBUF, writes PSUM
    std::vector<int> indices, of_step(code_.code.size(), -1);
    for (size_t i = 0; i < steps.size(); ++i) {
      Step::Kind kind = steps[i].kind;
      if (kind != Step::Kind::compute && kind != Step::Kind::dma) continue;
      of_step[static_cast<size_t>(steps[i].instruction)] = static_cast<int>(i);
      indices.push_back(steps[i].instruction);
    }
    Hazards hazards(code_);
    for (Step& s : steps) {
      if (s.kind != Step::Kind::compute && s.kind != Step::Kind::dma) continue;
      s.first_dependency = static_cast<int32_t>(out_.dependencies.size());
      for (int writer : hazards.writers_read_by(s.instruction, indices, kMaxUses)) {
        Step& w = steps[static_cast<size_t>(of_step[static_cast<size_t>(writer)])];
        if (w.kind != Step::Kind::compute || w.completion_ps <= w.issue_ps) continue;  // complete when issued
        if (w.done_slot < 0) w.done_slot = out_.done_slots++;
        out_.dependencies.push_back(w.done_slot);
      }
      s.dependencies = static_cast<uint16_t>(out_.dependencies.size() - static_cast<size_t>(s.first_dependency));
    }
  }

  const isa::Program& program_;
  const isa::CoreProgram& code_;
  const spec::Chip& chip_;
  DecodedCore out_;
  std::vector<int> loop_of_;  // of loop_begin and loop_end
  std::vector<int> uses_;     // per loop: bit e set when engine e has instructions in it
};

}  // namespace

DecodedCore decode(const isa::Program& program, int core, const spec::Chip& chip) {
  return Decoder(program, core, chip).run();
}

CoreParameters parameters_of(const isa::Program& program, const spec::Chip& chip) {
  CoreParameters p;
  p.semaphore_latency_ps = ps(chip.semaphore_latency_ns);
  p.table_load_ps = ps(chip.act_table_load_ns);
  p.barrier_ps = ps(program.cores.size() > 1 ? chip.core_barrier_ns : chip.barrier_ns);
  p.ramp_ps = chip.throttle_rate < 1 ? ps(chip.throttle_ramp_ns) : 0;
  p.ramp_fill = std::llround((1 - chip.throttle_utilisation) * 1024);
  p.ramp_drain = std::llround(chip.throttle_utilisation * 1024);
  p.dma_engines = chip.dma_engines;
  return p;
}

}  // namespace opentrn::cost
