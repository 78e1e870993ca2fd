// One or two operators of each family against values worked out by hand or by PyTorch's CPU.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "call_of.h"

namespace opentrn::aten {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pointwise;

using Numbers = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor f32(Shape shape, Numbers values) { return {DType::f32, std::move(shape), std::move(values)}; }
Tensor bf16(Shape shape, Numbers values) { return {DType::bf16, std::move(shape), std::move(values)}; }
Tensor i64(Shape shape, Numbers values) { return {DType::i64, std::move(shape), std::move(values)}; }

#define EXPECT_VALUES(actual, ...) EXPECT_THAT((actual), ElementsAre __VA_ARGS__)
#define EXPECT_NEAR_VALUES(actual, ...) EXPECT_THAT((actual), Pointwise(DoubleNear(1e-6), Numbers __VA_ARGS__))

TEST(Pointwise, ChainsOfBf16RoundOnceAtTheEnd) {
  // 1 + 2^-9 * 3 in f32, then to bf16; rounding the product first would give the same, rounding alpha would not.
  CallOf c("aten::add.Tensor");
  c.tensor("self", bf16({1}, {1})).tensor("other", bf16({1}, {3})).number("alpha", 0.005).result(DType::bf16, {1});
  EXPECT_VALUES(c.run()[0], (1.015625));
}

TEST(Pointwise, BoolAddsAsOr) {
  const Tensor a{DType::boolean, {3}, {0, 1, 1}}, b{DType::boolean, {3}, {0, 0, 1}};
  CallOf c("aten::add.Tensor");
  c.tensor("self", a).tensor("other", b).number("alpha", 1).result(DType::boolean, {3});
  EXPECT_VALUES(c.run()[0], (0, 1, 1));
}

TEST(Pointwise, IntegerDivisionIsFloat) {
  CallOf c("aten::div.Tensor");
  c.tensor("self", i64({2}, {1, -3})).tensor("other", i64({2}, {2, 2})).result(DType::f32, {2}).compute(DType::i64);
  EXPECT_VALUES(c.run()[0], (0.5, -1.5));
}

TEST(Pointwise, RoundingModes) {
  for (auto [mode, expected] : {std::pair{"floor", -4.0}, {"trunc", -3.0}}) {
    CallOf c("aten::div.Tensor_mode");
    c.tensor("self", i64({1}, {-7})).tensor("other", i64({1}, {2})).text("rounding_mode", mode).result(DType::i64, {1});
    EXPECT_VALUES(c.run()[0], (expected));
  }
}

TEST(Pointwise, ClampPropagatesNan) {
  CallOf c("aten::clamp");
  c.tensor("self", f32({3}, {-1, kNan, 5})).number("min", 0).none("max").result(DType::f32, {3});
  EXPECT_THAT(c.run()[0], ElementsAre(0, ::testing::IsNan(), 5));
}

TEST(Activation, Gelu) {
  for (auto [mode, expected] : {std::pair{"none", 0.84134475}, {"tanh", 0.84119199}}) {
    CallOf c("aten::gelu");
    c.tensor("self", f32({2}, {1, 0})).text("approximate", mode).result(DType::f32, {2});
    EXPECT_NEAR_VALUES(c.run()[0], ({expected, 0}));
  }
}

TEST(Activation, SiluBackward) {
  CallOf c("aten::silu_backward");
  c.tensor("grad_output", f32({1}, {2})).tensor("self", f32({1}, {1})).result(DType::f32, {1});
  EXPECT_NEAR_VALUES(c.run()[0], ({1.8553410}));
}

TEST(Reduction, SumOfBf16AccumulatesInF32) {
  CallOf c("aten::sum.dim_IntList");
  c.tensor("self", bf16({1, 3}, {256, 1, 1})).integers("dim", {-1}).boolean("keepdim", true).none("dtype");
  EXPECT_VALUES(c.result(DType::bf16, {1, 1}).run()[0], (258));
}

TEST(Reduction, MaxDimGivesValuesAndPositions) {
  CallOf c("aten::max.dim");
  c.tensor("self", f32({2, 3}, {1, 3, 3, 5, 4, 0})).integer("dim", 1).boolean("keepdim", false);
  auto r = c.result(DType::f32, {2}).result(DType::i64, {2}).run();
  EXPECT_VALUES(r[0], (3, 5));
  EXPECT_VALUES(r[1], (1, 0));
}

TEST(Reduction, VarianceWithCorrection) {
  CallOf c("aten::var.correction");
  c.tensor("self", f32({4}, {1, 2, 3, 4})).none("dim").number("correction", 1).boolean("keepdim", false);
  EXPECT_NEAR_VALUES(c.result(DType::f32, {}).run()[0], ({5.0 / 3}));
}

TEST(Reduction, NormsOfEveryOrder) {
  for (auto [p, expected] : {std::pair{2.0, 5.0}, {1.0, 7.0}, {kInf, 4.0}, {-kInf, 0.0}, {0.0, 2.0}}) {
    CallOf c("aten::linalg_vector_norm");
    c.tensor("self", f32({3}, {3, -4, 0})).number("ord", p).none("dim").boolean("keepdim", false).none("dtype");
    EXPECT_VALUES(c.result(DType::f32, {}).run()[0], (expected));
  }
}

TEST(Matmul, AddmmRoundsAfterTheSum) {
  CallOf c("aten::addmm");
  c.tensor("self", bf16({1}, {-256})).tensor("mat1", bf16({1, 2}, {256, 1})).tensor("mat2", bf16({2, 1}, {1, 1}));
  c.number("beta", 1).number("alpha", 1).result(DType::bf16, {1, 1});
  EXPECT_VALUES(c.run()[0], (1));
}

TEST(Matmul, BetaZeroIgnoresSelf) {
  CallOf c("aten::addmm");
  c.tensor("self", f32({1}, {kNan})).tensor("mat1", f32({1, 1}, {2})).tensor("mat2", f32({1, 1}, {3}));
  EXPECT_VALUES(c.number("beta", 0).number("alpha", 2).result(DType::f32, {1, 1}).run()[0], (12));
}

TEST(Normalization, Softmax) {
  CallOf c("aten::_softmax");
  c.tensor("self", f32({2, 2}, {1000, 1000, 0, std::log(3)})).integer("dim", -1).boolean("half_to_float", false);
  EXPECT_NEAR_VALUES(c.result(DType::f32, {2, 2}).run()[0], ({0.5, 0.5, 0.25, 0.75}));
}

TEST(Normalization, LayerNormAndItsGradient) {
  CallOf c("aten::native_layer_norm");
  c.tensor("input", f32({1, 2}, {1, 3})).integers("normalized_shape", {2}).tensor("weight", f32({2}, {2, 2}));
  c.tensor("bias", f32({2}, {1, 1})).real("eps", 0).result(DType::f32, {1, 2}).result(DType::f32, {1, 1});
  auto r = c.result(DType::f32, {1, 1}).run();
  EXPECT_NEAR_VALUES(r[0], ({-1, 3}));
  EXPECT_NEAR_VALUES(r[1], ({2}));
  EXPECT_NEAR_VALUES(r[2], ({1}));

  CallOf b("aten::native_layer_norm_backward");
  b.tensor("grad_out", f32({1, 2}, {1, 5})).tensor("input", f32({1, 2}, {1, 3})).integers("normalized_shape", {2});
  b.tensor("mean", f32({1, 1}, {2})).tensor("rstd", f32({1, 1}, {1})).tensor("weight", f32({2}, {2, 2}));
  b.tensor("bias", f32({2}, {1, 1})).integers("output_mask", {1, 1, 0}).wanted({true, true, false});
  auto g = b.result(DType::f32, {1, 2}).result(DType::f32, {2}).result(DType::f32, {2}).run();
  EXPECT_NEAR_VALUES(g[0], ({0, 0}));  // two elements: the gradient lies along the removed directions
  EXPECT_NEAR_VALUES(g[1], ({-1, 5}));
  EXPECT_THAT(g[2], IsEmpty());  // not wanted
}

TEST(Indexing, EmbeddingGradientSkipsPadding) {
  CallOf c("aten::embedding_dense_backward");
  c.tensor("grad_output", f32({3, 2}, {1, 2, 3, 4, 5, 6})).tensor("indices", i64({3}, {1, 0, 1}));
  c.integer("num_weights", 3).integer("padding_idx", 0).boolean("scale_grad_by_freq", false);
  EXPECT_VALUES(c.result(DType::f32, {3, 2}).run()[0], (0, 0, 6, 8, 0, 0));
}

TEST(Indexing, SeparatedIndicesComeFirst) {
  // x[[0, -1], :, [1, 0]] of a 2x2x2 tensor: [[x001, x011], [x100, x110]]
  CallOf c("aten::index.Tensor");
  c.tensor("self", f32({2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7}));
  c.tensors_or_none("indices", {i64({2}, {0, -1}), std::nullopt, i64({2}, {1, 0})});
  EXPECT_VALUES(c.result(DType::f32, {2, 2}).run()[0], (1, 3, 4, 6));
}

TEST(Indexing, AdjacentIndicesStayInPlace) {
  CallOf c("aten::index.Tensor");
  c.tensor("self", f32({2, 3}, {0, 1, 2, 3, 4, 5})).tensors_or_none("indices", {std::nullopt, i64({2, 1}, {2, 0})});
  EXPECT_VALUES(c.result(DType::f32, {2, 2, 1}).run()[0], (2, 0, 5, 3));
}

TEST(Indexing, AnIndexOutOfRangeIsAnErrorInEveryDimension) {
  CallOf c("aten::index.Tensor");  // row 0, column 4 would be element 4 of the flat tensor
  c.tensor("self", f32({2, 3}, {0, 1, 2, 3, 4, 5})).tensors("indices", {i64({1}, {0}), i64({1}, {4})});
  c.result(DType::f32, {1});
  EXPECT_THROW(c.run(), UserError);
}

TEST(Indexing, IndexPutAccumulates) {
  for (bool accumulate : {false, true}) {
    CallOf c("aten::_index_put_impl_");
    c.tensor("self", f32({3}, {1, 2, 3})).tensors("indices", {i64({2}, {1, 1})}).tensor("values", f32({2}, {10, 20}));
    c.boolean("accumulate", accumulate).boolean("unsafe", false).result(DType::f32, {3});
    EXPECT_VALUES(c.run()[0], (1, accumulate ? 32 : 20, 3));
  }
}

TEST(Indexing, ScatterReduceWithoutSelf) {
  CallOf c("aten::scatter_reduce.two");
  c.tensor("self", f32({3}, {100, 100, 7})).integer("dim", 0).tensor("index", i64({3}, {0, 0, 1}));
  c.tensor("src", f32({3}, {1, 3, 5})).text("reduce", "mean").boolean("include_self", false);
  EXPECT_VALUES(c.result(DType::f32, {3}).run()[0], (2, 5, 7));
}

TEST(Ordering, TopK) {
  for (bool largest : {true, false}) {
    CallOf c("aten::topk");
    c.tensor("self", f32({2, 2}, {1, 4, 3, 2})).integer("k", 1).integer("dim", 0).boolean("largest", largest);
    auto r = c.boolean("sorted", true).result(DType::f32, {1, 2}).result(DType::i64, {1, 2}).run();
    EXPECT_EQ(r[0], largest ? Numbers({3, 4}) : Numbers({1, 2}));
    EXPECT_EQ(r[1], largest ? Numbers({1, 0}) : Numbers({0, 1}));
  }
}

TEST(Loss, NllIgnoresTargets) {
  const Tensor x = f32({3, 2}, {-1, -2, -3, -4, -5, -6}), target = i64({3}, {1, -100, 0});
  CallOf c("aten::nll_loss_forward");
  c.tensor("self", x).tensor("target", target).none("weight").integer("reduction", 1).integer("ignore_index", -100);
  auto r = c.result(DType::f32, {}).result(DType::f32, {}).run();
  EXPECT_VALUES(r[0], (3.5));
  EXPECT_VALUES(r[1], (2));

  CallOf b("aten::nll_loss_backward");
  b.tensor("grad_output", f32({}, {1})).tensor("self", x).tensor("target", target).none("weight");
  b.integer("reduction", 1).integer("ignore_index", -100).tensor("total_weight", f32({}, {2}));
  EXPECT_VALUES(b.result(DType::f32, {3, 2}).run()[0], (0, -0.5, 0, 0, -0.5, 0));
}

TEST(Creation, ArangeAndTril) {
  CallOf a("aten::arange.start_step");
  a.number("start", 2).number("end", 8).number("step", 3).result(DType::i64, {2});
  EXPECT_VALUES(a.run()[0], (2, 5));
  CallOf t("aten::tril");
  t.tensor("self", f32({2, 2}, {1, 2, 3, 4})).integer("diagonal", 0).result(DType::f32, {2, 2});
  EXPECT_VALUES(t.run()[0], (1, 0, 3, 4));
}

TEST(Shape, RollRepeatAndPad) {
  CallOf r("aten::roll");
  r.tensor("self", f32({2, 2}, {1, 2, 3, 4})).integers("shifts", {1}).integers("dims", {-1}).result(DType::f32, {2, 2});
  EXPECT_VALUES(r.run()[0], (2, 1, 4, 3));
  CallOf p("aten::repeat");
  p.tensor("self", f32({2}, {1, 2})).integers("repeats", {2, 2}).result(DType::f32, {2, 4});
  EXPECT_VALUES(p.run()[0], (1, 2, 1, 2, 1, 2, 1, 2));
  CallOf d("aten::constant_pad_nd");
  d.tensor("self", f32({3}, {1, 2, 3})).integers("pad", {-1, 2}).number("value", 9).result(DType::f32, {4});
  EXPECT_VALUES(d.run()[0], (2, 3, 9, 9));
}

TEST(Random, UniformFillsItsRangeEvenly) {
  constexpr int kCount = 20000;
  CallOf c("aten::uniform");
  c.tensor("self", f32({0}, {})).real("from", 2).real("to", 4).none("generator").result(DType::f32, {kCount});
  const Numbers x = c.run()[0];
  double sum = 0, squares = 0;
  for (double v : x) sum += v, squares += (v - 3) * (v - 3);
  EXPECT_THAT(x, Each(::testing::AllOf(::testing::Ge(2), ::testing::Lt(4))));
  EXPECT_NEAR(sum / kCount, 3, 0.02);
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 0.01);
  EXPECT_EQ(c.call().philox_elements(), kCount);
}

TEST(Random, NormalHasItsMoments) {
  constexpr int kCount = 20001;  // odd: one number of the last pair is dropped
  CallOf c("aten::normal_functional");
  c.tensor("self", f32({0}, {})).real("mean", 1).real("std", 2).none("generator").result(DType::f32, {kCount});
  double sum = 0, squares = 0, fourth = 0;
  const Numbers x = c.run()[0];
  for (double v : x) sum += v, squares += std::pow((v - 1) / 2, 2), fourth += std::pow((v - 1) / 2, 4);
  EXPECT_NEAR(sum / kCount, 1, 0.05);
  EXPECT_NEAR(squares / kCount, 1, 0.03);
  EXPECT_NEAR(fourth / kCount, 3, 0.2);
}

TEST(Random, DropoutScalesWhatItKeeps) {
  CallOf c("aten::native_dropout");
  c.tensor("input", f32({1000}, Numbers(1000, 1))).real("p", 0.25).boolean("train", true);
  auto r = c.result(DType::f32, {1000}).result(DType::boolean, {1000}).run();
  int kept = 0;
  for (size_t i = 0; i < 1000; ++i) {
    EXPECT_NEAR(r[0][i], r[1][i] / 0.75, 1e-6);
    kept += r[1][i] != 0;
  }
  EXPECT_NEAR(kept, 750, 50);
}

TEST(Random, MultinomialFollowsTheWeights) {
  int hits = 0;
  for (int64_t seed = 0; seed < 400; ++seed) {
    CallOf c("aten::multinomial");
    c.tensor("self", f32({3}, {1, 3, 0})).integer("num_samples", 1).boolean("replacement", false).none("generator");
    c.seed = seed;
    const double drawn = c.result(DType::i64, {1}).run()[0][0];
    EXPECT_NE(drawn, 2);
    hits += drawn == 1;
  }
  EXPECT_NEAR(hits, 300, 40);
}

TEST(Random, IntegersStayBelowTheirBound) {
  CallOf c("aten::random.from");
  c.tensor("self", i64({0}, {})).integer("from", -3).integer("to", 4).none("generator").result(DType::i64, {500});
  const Numbers x = c.run()[0];
  for (int v = -3; v < 4; ++v) EXPECT_THAT(x, ::testing::Contains(v));
  EXPECT_THAT(x, Each(::testing::AllOf(::testing::Ge(-3), ::testing::Lt(4))));
}

std::vector<Numbers> adamw(double found_inf) {
  CallOf c("aten::_fused_adamw_");
  c.tensors("self", {f32({1}, {1})}).tensors("grads", {f32({1}, {0.5})}).tensors("exp_avgs", {f32({1}, {0})});
  c.tensors("exp_avg_sqs", {f32({1}, {0})}).tensors("max_exp_avg_sqs", {}).tensors("state_steps", {f32({}, {1})});
  c.real("lr", 0.1).real("beta1", 0.9).real("beta2", 0.999).real("weight_decay", 0.01).real("eps", 1e-8);
  c.boolean("amsgrad", false).boolean("maximize", false).none("grad_scale").tensor("found_inf", f32({}, {found_inf}));
  for (int i = 0; i < 4; ++i) c.result(DType::f32, {1});
  return c.run();
}

TEST(Optimizer, FusedAdamW) {
  auto r = adamw(0);
  EXPECT_NEAR_VALUES(r[0], ({1 - 0.1 * 0.01 - 0.1}));  // decay, then a first step of size lr
  EXPECT_THAT(r[1], IsEmpty());                         // gradients are left as they are
  EXPECT_NEAR_VALUES(r[2], ({0.05}));
  EXPECT_NEAR_VALUES(r[3], ({0.00025}));
}

TEST(Optimizer, FoundInfSkipsTheStep) {
  auto r = adamw(1);
  EXPECT_VALUES(r[0], (1));
  EXPECT_VALUES(r[2], (0));
}

TEST(Optimizer, UnscaleFindsInfinities) {
  CallOf c("aten::_amp_foreach_non_finite_check_and_unscale_");
  c.tensors("self", {f32({2}, {2, 4}), f32({1}, {kInf})}).tensor("found_inf", f32({1}, {0})).tensor("inv_scale", f32({1}, {0.5}));
  auto r = c.result(DType::f32, {2}).result(DType::f32, {1}).result(DType::f32, {1}).run();
  EXPECT_VALUES(r[0], (1, 2));
  EXPECT_VALUES(r[2], (1));
}

TEST(Foreach, ScalarListsAndNorms) {
  CallOf c("aten::_foreach_addcdiv.ScalarList");
  c.tensors("self", {f32({1}, {1}), f32({1}, {2})}).tensors("tensor1", {f32({1}, {6}), f32({1}, {8})});
  c.tensors("tensor2", {f32({1}, {2}), f32({1}, {4})}).numbers("scalars", {10, 100});
  auto r = c.result(DType::f32, {1}).result(DType::f32, {1}).run();
  EXPECT_VALUES(r[0], (31));
  EXPECT_VALUES(r[1], (202));
}

}  // namespace
}  // namespace opentrn::aten
