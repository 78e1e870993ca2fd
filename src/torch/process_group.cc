#include "torch/process_group.h"

#include <ATen/core/ivalue_inl.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace opentrn::bridge {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// A collective of one rank is complete once its copies are in the stream's queue.
class Done final : public c10d::Work {
 public:
  Done(int rank, c10d::OpType type, Tensors results) : c10d::Work(rank, type), results_(std::move(results)) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future_->markCompleted(c10::IValue(results_));
    finish();
  }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  Tensors result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  Tensors results_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class ProcessGroupNeuron final : public c10d::Backend {
 public:
  explicit ProcessGroupNeuron(int rank) : c10d::Backend(rank, 1) {}
  const std::string getBackendName() const override { return "neuron"; }

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override {}
  WorkPtr endCoalescing() override { return done(c10d::OpType::COALESCED, {}); }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void eagerConnectSingleDevice(at::Device) override {}

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions&) override {
    return done(c10d::OpType::BROADCAST, tensors);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    check(options.reduceOp);
    return done(c10d::OpType::ALLREDUCE, tensors);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    check(options.reduceOp);
    return done(c10d::OpType::ALLREDUCE_COALESCED, tensors);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    check(options.reduceOp);
    return done(c10d::OpType::REDUCE, tensors);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override {
    for (size_t i = 0; i < inputs.size(); ++i) copy(outputs.at(i).at(0), inputs[i]);
    return done(c10d::OpType::ALLGATHER, outputs.empty() ? Tensors{} : outputs[0]);
  }
  WorkPtr _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions&) override {
    copy(output, input);
    return done(c10d::OpType::_ALLGATHER_BASE, {output});
  }
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override {
    for (size_t i = 0; i < inputs.size(); ++i) copy(outputs.at(0).at(i), inputs[i]);
    return done(c10d::OpType::ALLGATHER_COALESCED, outputs.empty() ? Tensors{} : outputs[0]);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override {
    for (size_t i = 0; i < inputs.size(); ++i) copy(outputs.at(i), inputs[i]);
    return done(c10d::OpType::ALLGATHER_COALESCED, outputs);
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions&) override {
    for (size_t i = 0; i < outputs.size(); ++i) copy(outputs[i].at(0), inputs.at(i));
    return done(c10d::OpType::GATHER, outputs.empty() ? Tensors{} : outputs[0]);
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions&) override {
    for (size_t i = 0; i < inputs.size(); ++i) copy(outputs.at(i), inputs[i].at(0));
    return done(c10d::OpType::SCATTER, outputs);
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    check(options.reduceOp);
    for (size_t i = 0; i < inputs.size(); ++i) copy(outputs.at(i), inputs[i].at(0));
    return done(c10d::OpType::REDUCE_SCATTER, outputs);
  }
  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& options) override {
    check(options.reduceOp);
    copy(output, input);
    return done(c10d::OpType::_REDUCE_SCATTER_BASE, {output});
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    check(options.reduceOp);
    for (size_t i = 0; i < inputs.size(); ++i) copy(outputs.at(i), inputs[i]);
    return done(c10d::OpType::REDUCE_SCATTER, outputs);
  }
  WorkPtr alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>&, std::vector<int64_t>&,
                        const c10d::AllToAllOptions&) override {
    copy(output, input);
    return done(c10d::OpType::ALLTOALL_BASE, {output});
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override {
    for (size_t i = 0; i < inputs.size(); ++i) copy(outputs.at(i), inputs[i]);
    return done(c10d::OpType::ALLTOALL, outputs);
  }
  WorkPtr barrier(const c10d::BarrierOptions&) override { return done(c10d::OpType::BARRIER, {}); }

 private:
  // All reductions of one rank leave the tensor as it is; PREMUL_SUM does not, and BXOR and the like are not offered.
  static void check(const c10d::ReduceOp& op) {
    switch (op.op_) {
      case c10d::ReduceOp::SUM:
      case c10d::ReduceOp::AVG:
      case c10d::ReduceOp::MIN:
      case c10d::ReduceOp::MAX:
      case c10d::ReduceOp::PRODUCT: return;
      default: TORCH_CHECK(false, "unsupported reduce operation, supported ops: SUM, AVG, MIN, MAX, PRODUCT");
    }
  }
  static void copy(Tensor& output, const Tensor& input) {
    at::NoGradGuard no_grad;
    if (!output.is_same(input)) output.view(input.sizes()).copy_(input, /*non_blocking=*/true);
  }
  WorkPtr done(c10d::OpType type, Tensors results) {
    ++sequence_;
    return c10::make_intrusive<Done>(rank_, type, std::move(results));
  }
  uint64_t sequence_ = 0;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_process_group(int rank, int size) {
  TORCH_CHECK(size == 1, "init_process_group(backend=\"neuron\") with ", size, " ranks: this version of opentrn ",
              "supports one rank. Run the script without torchrun, or with --nproc-per-node 1.");
  return c10::make_intrusive<ProcessGroupNeuron>(rank);
}

}  // namespace opentrn::bridge
