// One rule of the verifier each: what is refused and with which words.
#include "machine.h"

namespace opentrn::isa {
namespace {

using testing::HasSubstr;

// A program around one instruction. Pools a, b, c, d (SBUF, 8 KiB) and p, q (PSUM, 2 banks) are rotated to t0 ... t5.
std::string program(const std::string& instruction, const std::string& declarations = "") {
  return R"(program one chip=trn2
buffer x input bytes=1048576
buffer y output bytes=1048576
buffer w constant bytes=4 data { 00000000 }
scalar lr f32
)" + declarations +
         R"(core {
  pool a sbuf offset=0 bytes=8192 depth=1
  pool b sbuf offset=8192 bytes=8192 depth=1
  pool c sbuf offset=16384 bytes=8192 depth=1
  pool d sbuf offset=24576 bytes=8192 depth=1
  pool p psum offset=0 bytes=4096 depth=1
  pool q psum offset=4096 bytes=4096 depth=1
  semaphore s
  rotate t0 = a
  rotate t1 = b
  rotate t2 = c
  rotate t3 = d
  rotate t4 = p
  rotate t5 = q
  )" + instruction +
         "\n}\n";
}

// What the operand rules say (the order proof, which needs initialised tiles, comes after them).
std::string of(const std::string& instruction, const std::string& declarations = "") {
  std::string text;
  for (const Finding& f : check(parse(program(instruction, declarations)), trn2()))
    if (f.message.find("was not (or not completely) written") == std::string::npos &&
        f.message.find("is never written") == std::string::npos)
      text += std::to_string(f.core) + ":" + std::to_string(f.instruction) + " " + f.message + "\n";
  return text.empty() ? "sound" : text;
}

TEST(Engines, HaveTheirOwnInstructions) {
  EXPECT_THAT(of("tensor tensor_copy f32 a[t0] [0:128] [1,8] <- f32 b[t1] [0:128] [1,8]"),
              HasSubstr("0:6 tensor_copy runs on vector, scalar, gpsimd, not on tensor"));
  EXPECT_THAT(of("vector activation.exp f32 a[t0] [0:128] [1,8] <- f32 b[t1] [0:128] [1,8]"),
              HasSubstr("activation runs on scalar, not on vector"));
  EXPECT_THAT(of("tensor.q0 dma_copy f32 a[t0] [0:128] [1,8] <- f32 x [0:128 step 8] [1,8]"),
              HasSubstr("dma_copy runs on vector, scalar, gpsimd, sync, not on tensor"));
  EXPECT_THAT(of("sync.q0 dma_gather f32 a[t0] [0:128] [1,8] <- f32 x [1,8], i32 b[t1] [0:128] rows=100 row_bytes=32"),
              HasSubstr("dma_gather runs on gpsimd, not on sync"));
  EXPECT_EQ(of("gpsimd tensor_copy f32 a[t0] [0:128] [1,8] <- f32 b[t1] [0:128] [1,8]"), "sound");
}

TEST(Memories, AreReachedByTheRightEngines) {
  EXPECT_THAT(of("vector tensor_copy f32 a[t0] [0:128] [1,8] <- f32 x [0:128 step 8] [1,8]"),
              HasSubstr("src0 lies in HBM; engines compute on sbuf and psum"));
  EXPECT_THAT(of("gpsimd tensor_copy f32 a[t0] [0:128] [1,8] <- f32 p[t4] [0:128] [1,8]"),
              HasSubstr("src0 lies in psum, which GpSimd cannot reach"));
  EXPECT_THAT(of("sync.q0 dma_copy f32 y [0:128 step 8] [1,8] <- f32 p[t4] [0:128] [1,8]"),
              HasSubstr("src0 lies in psum, which DMA cannot reach; copy it to sbuf on the vector or scalar engine"));
  EXPECT_THAT(of("sync.q0 dma_copy f32 x [0:128 step 8] [1,8] <- f32 a[t0] [0:128] [1,8]"),
              HasSubstr("dst writes 'x', which is an input; name an output that aliases it"));
  EXPECT_THAT(of("sync.q0 dma_copy f32 w <- f32 a[t0] [0:1]"), HasSubstr("dst writes 'w', which is a constant"));
}

TEST(Partitions, StartWhereTheEngineCanBegin) {
  auto copy = [](const std::string& range) {
    return of("vector tensor_copy f32 a[t0] " + range + " [1,8] <- f32 b[t1] " + range + " [1,8]");
  };
  EXPECT_EQ(copy("[96:128]"), "sound");
  EXPECT_EQ(copy("[64:128]"), "sound");
  EXPECT_EQ(copy("[0:100]"), "sound");
  EXPECT_THAT(copy("[16:32]"), HasSubstr("dst has 16 partitions from 16; up to 32 start at 0, 32, 64 or 96"));
  EXPECT_THAT(copy("[32:96]"), HasSubstr("33 to 64 start at 0 or 64"));
  EXPECT_THAT(copy("[32:128]"), HasSubstr("more than 64 start at 0"));
  EXPECT_THAT(copy("[96:160]"), HasSubstr("dst covers partitions 96 to 159; trn2 has 128"));
  EXPECT_EQ(of("sync.q0 dma_copy f32 a[t0] [17:20] [1,8] <- f32 x [0:3 step 8] [1,8]"), "sound")
      << "DMA starts anywhere";
}

TEST(Addresses, StayInsideTheirMemory) {
  EXPECT_THAT(of("vector memset f32 a[t0]+8188 [0:128] [1,2] value=0"),
              HasSubstr("dst reaches bytes 8188 to 8195 of a slot of pool 'a', which has 8192"));
  EXPECT_THAT(of("vector memset f32 a[t0] [0:128] [-1,2] value=0"), HasSubstr("dst reaches bytes -4 to 3"));
  EXPECT_THAT(of("vector memset f32 a[t0]+2 [0:128] [1,2] value=0"),
              HasSubstr("dst is not aligned to its 4-byte elements"));
  EXPECT_THAT(
      of("loop i0 < 9 {\nsync.q0 dma_copy f32 a[t0] [0:128] [1,256] <- f32 x+i0*131072 [0:128 step 256] [1,256]\n}"),
      HasSubstr("0:7 src0 reaches bytes 0 to 1179647 of buffer 'x', which has 1048576"));
  EXPECT_EQ(
      of("loop i0 < 8 {\nsync.q0 dma_copy f32 a[t0] [0:128] [1,256] <- f32 x+i0*131072 [0:128 step 256] [1,256]\n}"),
      "sound");
  EXPECT_THAT(of("sync.q0 dma_copy f32 a[t0] [0:1] [1,4] <- f32 x+9223372036854775800 [1,4]"),
              HasSubstr("(beyond 64 bits)"));
}

TEST(Addresses, FitTheEnginesFields) {
  EXPECT_THAT(of("vector memset bf16 a[t0] [0:128] [0,70000] value=0"),
              HasSubstr("a dimension of 70000 elements; the limit is 65535"));
  EXPECT_THAT(of("vector memset bf16 a[t0] [0:128] [40000,1] value=0"), "sound") << "one element has no stride";
  EXPECT_THAT(of("vector memset u8 a[t0] [0:128] [40000,2] value=0"), HasSubstr("has a stride of 40000 elements"));
  EXPECT_THAT(of("vector memset f32 a[t0] [0:128] [0,4] value=0"),
              HasSubstr("writes the same element several times (stride 0)"));
}

TEST(Shapes, OfElementwiseInstructions) {
  EXPECT_THAT(of("vector tensor_copy f32 a[t0] [0:128] [1,8] <- f32 b[t1] [0:128] [1,9]"),
              HasSubstr("src0 is 128x9, dst is 128x8: tensor_copy needs as many partitions and elements in both"));
  EXPECT_EQ(of("vector tensor_copy f32 a[t0] [0:128] [1,8] <- f32 b[t1] [0:128] [4,2][1,4]"), "sound");
  EXPECT_THAT(of("vector tensor_tensor.add f32 a[t0] [0:64] [1,8] <- f32 b[t1] [0:64] [1,8], f32 c[t2] [0:32] [1,8]"),
              HasSubstr("src1 is 32x8"));
  EXPECT_THAT(of("vector tensor_tensor.add f32 a[t0] [0:64] [1,8] <- f32 b[t1] [0:64] [1,8]"),
              HasSubstr("tensor_tensor has 2 source operands, not 1"));
  EXPECT_THAT(of("vector tensor_copy none <- f32 b[t1] [0:64] [1,8]"), HasSubstr("tensor_copy needs a destination"));
}

TEST(Operations, FitTheInstruction) {
  const std::string two = " f32 a[t0] [0:64] [1,8] <- f32 b[t1] [0:64] [1,8], f32 c[t2] [0:64] [1,8]";
  const std::string one = " f32 a[t0] [0:64] [1,8] <- f32 b[t1] [0:64] [1,8]";
  EXPECT_THAT(of("vector tensor_tensor" + two), HasSubstr("op0 cannot be 'none'"));
  EXPECT_THAT(of("vector tensor_tensor.bitwise_and" + two),
              HasSubstr("src0 is f32; bitwise_and works on the bits of integers"));
  EXPECT_THAT(of("vector tensor_scalar.add" + one), HasSubstr("tensor_scalar needs s0"));
  EXPECT_THAT(of("vector tensor_scalar.add.mult" + one + " s0=1"), HasSubstr("op1 needs s1"));
  EXPECT_THAT(of("vector tensor_scalar.add" + one + " s0=1 s1=2"), HasSubstr("s1 needs op1"));
  EXPECT_THAT(of("vector tensor_copy" + one + " s0=1"), HasSubstr("tensor_copy takes no s0"));
  EXPECT_EQ(of("vector tensor_scalar.add.mult" + one + " s0=f32 c[t2] [0:64] s1=$lr"), "sound");
  EXPECT_THAT(of("vector tensor_scalar.add" + one + " s0=f32 c[t2] [0:64] [1,2]"),
              HasSubstr("s0 is 64x2; it has one value for each of the 64 partitions"));
  EXPECT_THAT(of("gpsimd affine_select.add" + one + " fill=0 pattern=[1,8]"),
              HasSubstr("the comparison cannot be 'add'"));
  EXPECT_THAT(of("gpsimd affine_select.is_ge" + one + " fill=0 pattern=[1,7]"),
              HasSubstr("the pattern has 7 elements, the operands have 8 per partition"));
  EXPECT_THAT(of("vector memset f32 a[t0] [0:64] [1,8] value=f32 b[t1] [0:64]"),
              HasSubstr("value of memset is a number or an argument, not a tile"));
}

TEST(Types, OfEnginesAndDma) {
  EXPECT_THAT(of("vector tensor_copy i64 a[t0] [0:64] [1,8] <- i64 b[t1] [0:64] [1,8]"),
              HasSubstr("src0 is i64; engines compute on types of at most 4 bytes"));
  EXPECT_EQ(of("sync.q0 dma_copy i64 a[t0] [0:64] [1,8] <- i64 x [0:64 step 8] [1,8]"), "sound");
  EXPECT_THAT(of("sync.q0 dma_copy f32 a[t0] [0:64] [1,8] <- f64 x [0:64 step 8] [1,8]"),
              HasSubstr("DMA cannot convert f64 to f32"));
  EXPECT_EQ(of("sync.q0 dma_copy bf16 a[t0] [0:64] [1,8] <- f32 x [0:64 step 8] [1,8]"), "sound");
  EXPECT_THAT(of("sync.q0 dma_copy f32 a[t0] [0:64] [1,8] <- f32 x [0:64 step 8] [1,7]"),
              HasSubstr("dst has 512 elements (64x8), src0 has 448 (64x7)"));
}

TEST(Matmul, Sizes) {
  auto matmul = [](const std::string& dst, const std::string& stationary, const std::string& moving) {
    return of("tensor nc_matmul " + dst + " <- " + stationary + ", " + moving);
  };
  EXPECT_EQ(matmul("f32 p[t4] [0:64] [1,512]", "bf16 a[t0] [0:128] [1,64]", "bf16 b[t1] [0:128] [1,512]"), "sound");
  EXPECT_THAT(matmul("f32 p[t4] [0:128] [1,512]", "bf16 a[t0] [0:64] [1,128]", "bf16 b[t1] [0:128] [1,512]"),
              HasSubstr("stationary has 64 partitions (K), moving has 128"));
  EXPECT_THAT(matmul("f32 p[t4] [0:128] [1,512]", "bf16 a[t0] [0:64] [1,129]", "bf16 b[t1] [0:64] [1,513]"),
              HasSubstr("K=64 M=129 N=513 exceed trn2's tensor engine: 128 x 128, 512 moving columns"));
  EXPECT_THAT(matmul("f32 p[t4] [0:64] [1,512]", "bf16 a[t0] [0:64] [1,128]", "bf16 b[t1] [0:64] [1,512]"),
              HasSubstr("dst is 64x512, the product is 128x512"));
  EXPECT_THAT(matmul("f32 p[t4]+1024 [0:64] [1,512]", "bf16 a[t0] [0:64] [1,64]", "bf16 b[t1] [0:64] [1,512]"),
              HasSubstr("dst crosses a psum bank of 2048 bytes"));
  EXPECT_THAT(matmul("bf16 p[t4] [0:64] [1,512]", "bf16 a[t0] [0:64] [1,64]", "bf16 b[t1] [0:64] [1,512]"),
              HasSubstr("dst is bf16; psum accumulates f32"));
  EXPECT_THAT(matmul("f32 c[t2] [0:64] [1,512]", "bf16 a[t0] [0:64] [1,64]", "bf16 b[t1] [0:64] [1,512]"),
              HasSubstr("nc_matmul writes to psum"));
  EXPECT_THAT(matmul("f32 p[t4] [0:64] [1,512]", "f32 a[t0] [0:64] [1,64]", "bf16 b[t1] [0:64] [1,512]"),
              HasSubstr("nc_matmul cannot multiply f32 and bf16"));
  EXPECT_THAT(matmul("f32 p[t4] [0:64] [1,512]", "i32 a[t0] [0:64] [1,64]", "i32 b[t1] [0:64] [1,512]"),
              HasSubstr("cannot multiply i32 and i32"));
}

TEST(Matmul, BanksOfEveryIteration) {
  auto at = [](const std::string& step) {
    return of("loop i0 < 2 {\ntensor nc_matmul f32 p[t4]+i0*" + step +
              " [0:64] [1,256] <- bf16 a[t0] [0:64] [1,64], bf16 b[t1] [0:64] [1,256]\n}");
  };
  EXPECT_EQ(at("1024"), "sound");
  EXPECT_THAT(at("1028"), HasSubstr("dst crosses a psum bank"));
}

TEST(Psum, OnlyOneSourceOfTwo) {
  EXPECT_THAT(of("vector tensor_tensor.add f32 a[t0] [0:64] [1,8] <- f32 p[t4] [0:64] [1,8], f32 q[t5] [0:64] [1,8]"),
              HasSubstr("src0 and src1 both lie in psum; tensor_tensor reads one of them from sbuf"));
}

TEST(Transpose, Sizes) {
  EXPECT_EQ(of("tensor nc_transpose bf16 p[t4] [0:100] [1,128] <- bf16 a[t0] [0:128] [1,100]"), "sound");
  EXPECT_EQ(of("vector nc_transpose f32 a[t0] [0:32] [1,20] <- f32 b[t1] [0:20] [1,32]"), "sound");
  EXPECT_THAT(of("vector nc_transpose f32 a[t0] [0:33] [1,32] <- f32 b[t1] [0:32] [1,33]"),
              HasSubstr("src0 is 32x33; nc_transpose on vector takes up to 32x32"));
  EXPECT_THAT(of("tensor nc_transpose bf16 a[t0] [0:100] [1,128] <- bf16 b[t1] [0:128] [1,100]"),
              HasSubstr("goes from sbuf to psum"));
  EXPECT_THAT(of("sync.q0 dma_transpose i64 a[t0] [0:8] [1,8] <- i64 x [0:8 step 8] [1,8]"),
              HasSubstr("types of 2 or 4 bytes"));
  EXPECT_THAT(of("sync.q0 dma_transpose f32 a[t0] [0:8] [1,16] <- f32 x [0:8 step 8] [1,16]"),
              HasSubstr("the transpose of src0 is 16x8"));
}

TEST(Reductions, Shapes) {
  EXPECT_EQ(of("vector tensor_reduce.add f32 a[t0] [0:64] [1,4] <- f32 b[t1] [0:64] [16,4][1,16]"), "sound");
  EXPECT_THAT(of("vector tensor_reduce.add f32 a[t0] [0:64] [1,4] <- f32 b[t1] [0:64] [16,4][1,16] axes=2"),
              HasSubstr("dst has 4 elements per partition, the reduction leaves 1"));
  EXPECT_THAT(of("vector tensor_reduce.add f32 a[t0] [0:64] <- f32 b[t1] [0:64] [1,16] axes=2"),
              HasSubstr("2 trailing dimensions are reduced, src0 has 1"));
  EXPECT_THAT(of("vector tensor_reduce.subtract f32 a[t0] [0:64] <- f32 b[t1] [0:64] [1,16]"),
              HasSubstr("op0 cannot be 'subtract'"));
  EXPECT_THAT(of("scalar activation.exp f32 a[t0] [0:64] [1,8], f32 c[t2] [0:64] [1,2] <- f32 b[t1] [0:64] [1,8]"),
              HasSubstr("dst1 has 2 elements per partition, not 1"));
  EXPECT_EQ(of("scalar activation.exp.add f32 a[t0] [0:64] [1,8], f32 c[t2] [0:64] <- f32 b[t1] [0:64] [1,8]"),
            "sound");
  EXPECT_THAT(of("gpsimd tensor_partition_reduce.add f32 a[t0] [0:2] [1,8] <- f32 b[t1] [0:64] [1,8]"),
              HasSubstr("dst has 2 partitions; the result lies in one"));
  EXPECT_THAT(of("vector bn_stats f32 a[t0] [0:64] [1,6] <- f32 b[t1] [0:64] [1,513]"),
              HasSubstr("bn_stats takes up to 512 elements, not 513"));
  EXPECT_THAT(of("vector bn_aggr f32 a[t0] [0:64] [1,2] <- f32 b[t1] [0:64] [1,7]"), HasSubstr("not triples"));
  EXPECT_THAT(of("vector max8 f32 a[t0] [0:64] [1,8] <- f32 b[t1] [0:64] [1,7]"), HasSubstr("8 to 16384 are possible"));
  EXPECT_THAT(of("vector nc_find_index8 f32 a[t0] [0:64] [1,8] <- f32 b[t1] [0:64] [1,16], f32 c[t2] [0:64] [1,8]"),
              HasSubstr("dst is f32; positions are integers"));
}

TEST(Indirect, RowsAndIndices) {
  EXPECT_EQ(of("gpsimd.q1 dma_gather f32 a[t0] [0:64] [8,2][1,8] <- f32 x [1,8], i32 b[t1] [0:64] [1,2] rows=32768 "
               "row_bytes=32"),
            "sound");
  EXPECT_THAT(of("gpsimd.q1 dma_gather f32 a[t0] [0:64] [8,2][1,8] <- f32 x [1,8], i32 b[t1] [0:64] [1,2] rows=32769 "
                 "row_bytes=32"),
              HasSubstr("src0 reaches bytes 0 to 1048607 of buffer 'x'"));
  EXPECT_THAT(of("gpsimd.q1 dma_gather f32 a[t0] [0:64] [1,8] <- f32 x [1,8], f32 b[t1] [0:64] rows=4 row_bytes=32"),
              HasSubstr("row numbers are i32, u32 or i64"));
  EXPECT_THAT(of("gpsimd.q1 dma_scatter f32 y [1,8] <- f32 a[t0] [0:64] [1,9], i32 b[t1] [0:64] rows=4 row_bytes=32"),
              HasSubstr("src0 is 64x9; 1 row numbers per partition and 8 elements per row need 64x8"));
}

TEST(Kernels, AreWellFormed) {
  auto kernel = [](const std::string& body, const std::string& prologue = "") {
    return of("gpsimd gpsimd_kernel f32 a[t0] [0:64] [1,8] <- f32 b[t1] [0:64] [1,8] kernel=k",
              "kernel k {\n prologue {\n" + prologue + "}\n body {\n" + body + "}\n}\n");
  };
  EXPECT_EQ(kernel("r0 = load.f32 0\nstore.f32 1, r0\n"), "sound");
  EXPECT_THAT(kernel("store.f32 1, r0\n"), HasSubstr("kernel 'k', body 0: r0 is read before it is defined"));
  EXPECT_THAT(kernel("r0 = load.f64 0\nstore.f32 1, r0\n"), HasSubstr("body 1: r0 holds f64, the operation reads f32"));
  EXPECT_THAT(kernel("r0 = load.i32 0\nr1 = sqrt.i32 r0\nstore.i32 1, r1\n"),
              HasSubstr("body 1: sqrt does not exist for i32"));
  EXPECT_THAT(kernel("r0 = load.f32 0\nr1 = bit_and.f32 r0, r0\nstore.f32 1, r1\n"),
              HasSubstr("bit_and does not exist for f32"));
  EXPECT_THAT(kernel("r0 = load.f32 0\nr1 = bitcast.f64 r0.f32\nstore.f64 1, r1\n"),
              HasSubstr("bitcast from f32 to f64 changes the size"));
  EXPECT_THAT(kernel("r0 = load.f32 0\nstore.f32 0, r0\n"), HasSubstr("kernel 'k' stores to operand 0, a source"));
  EXPECT_THAT(kernel("r0 = load.f32 2\nstore.f32 1, r0\n"),
              HasSubstr("kernel 'k' uses operand 2, the instruction has 2"));
  EXPECT_THAT(kernel("r0 = load.f32 0\n"), HasSubstr("never stores to operand 1"));
  // The type with which an element leaves a register is the one the next element finds.
  EXPECT_THAT(kernel("r2 = add.f32 r1, r1\nr1 = load.i32 0\nstore.f32 1, r2\n", "r1 = constant.f32 0\n"),
              HasSubstr("body 0: r1 holds i32, the operation reads f32"));
}

TEST(Kernels, OperandsHaveTheSameRows) {
  const std::string sum =
      "kernel sum {\n prologue {\nr0 = constant.f32 0\n}\n body {\nr1 = load.f32 0\nr0 = add.f32 r0, r1\n}\n"
      " epilogue {\nstore.f32 1, r0\n}\n}\n";
  EXPECT_EQ(of("gpsimd gpsimd_kernel f32 a[t0] [0:64] [1,4][1,1] <- f32 b[t1] [0:64] [8,4][1,8] kernel=sum", sum),
            "sound");
  EXPECT_THAT(of("gpsimd gpsimd_kernel f32 a[t0] [0:64] [1,8] <- f32 b[t1] [0:64] [1,8] kernel=sum", sum),
              HasSubstr("operand 1 is used once per row, its innermost count is 8, not 1"));
  EXPECT_THAT(of("gpsimd gpsimd_kernel f32 a[t0] [0:64] [1,3][1,1] <- f32 b[t1] [0:64] [8,4][1,8] kernel=sum", sum),
              HasSubstr("operand 1 of kernel 'sum' has other outer dimensions than the row operand"));
  // A dimension less than others: one element per row.
  EXPECT_EQ(of("gpsimd gpsimd_kernel f32 a[t0] [0:64] [1,4] <- f32 b[t1] [0:64] [8,4][1,8] kernel=sum", sum), "sound");
  EXPECT_THAT(of("gpsimd gpsimd_kernel f32 a[t0] [0:64] [1,1][1,1] <- f32 b[t1] [0:64] [1,8] kernel=sum", sum),
              HasSubstr("operand 1 of kernel 'sum' has other outer dimensions than the row operand"));
}

TEST(Structure, Declarations) {
  auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    return findings(text.replace(text.find(from), from.size(), to));
  };
  const std::string text = program("barrier");
  EXPECT_THAT(replaced(text, "chip=trn2", "chip=trn3"), HasSubstr("the program is for chip 'trn3', not for 'trn2'"));
  EXPECT_THAT(
      replaced(text, "offset=24576 bytes=8192 depth=1", "offset=24576 bytes=8192 depth=24"),
      HasSubstr(
          "pool 'd' takes 24 slots of 8192 bytes from offset 24576, sbuf of trn2 has 212984 bytes per partition"));
  EXPECT_THAT(replaced(text, "offset=4096 bytes=4096 depth=1", "offset=4096 bytes=4096 depth=4"),
              HasSubstr("psum of trn2 has 16384"));
  EXPECT_THAT(replaced(text, "semaphore s\n", "semaphore s initial=-1\n"), HasSubstr("semaphore 's' starts at -1"));
  EXPECT_THAT(replaced(text, "00000000", "0000"), HasSubstr("constant 'w' has 4 bytes but 2 bytes of data"));
  EXPECT_THAT(replaced(text, "lr f32", "lr bf16"), HasSubstr("scalar 'lr' is bf16; scalars are f32, f64, i32 or i64"));
}

TEST(Structure, LoopsAndRegisters) {
  EXPECT_THAT(of("loop i0 < 0 {\n}"), HasSubstr("a loop runs at least once, this one 0 times"));
  EXPECT_THAT(of("loop i0 < 2 {\nloop i0 < 2 {\n}\n}"),
              HasSubstr("0:7 loop register i0 is in use by an enclosing loop"));
  EXPECT_THAT(of("vector memset f32 a[t0]+i0*4 [0:64] value=0"),
              HasSubstr("dst depends on loop register i0, which no enclosing loop defines"));
  EXPECT_THAT(of("vector memset f32 a[t9] [0:64] value=0"), HasSubstr("dst has slot register t9; the core has 6"));
  EXPECT_THAT(of("vector memset f32 a[t1] [0:64] value=0"),
              HasSubstr("slot register t1 holds a slot of pool 'b', not of 'a'"));
  EXPECT_THAT(of("barrier post s+1"), HasSubstr("barrier can neither wait nor post"));
  EXPECT_THAT(of("sync.q16 dma_copy f32 a[t0] [0:1] <- f32 x"), HasSubstr("queue 16 does not exist"));
  Program p = parse(program("barrier"));
  p.cores[0].code.push_back({.opcode = Opcode::loop_end});
  EXPECT_THAT(findings(p), HasSubstr("this loop end has no loop"));
  p.cores[0].code.back().opcode = Opcode::loop_begin;
  p.cores[0].code.back().reg = 0;
  p.cores[0].code.back().count = 2;
  p.cores[0].loop_registers = 1;
  EXPECT_THAT(findings(p), HasSubstr("this loop is not closed"));
}

TEST(Verify, ThrowsWithTheInstructionsConcerned) {
  try {
    verify(parse(program("vector memset f32 a[t0]+8188 [0:128] [1,2] value=0")), trn2());
    FAIL();
  } catch (const std::exception& e) {
    EXPECT_STREQ(e.what(),
                 "program 'one' is not valid for trn2:\n"
                 "  core 0, instruction 6: vector memset f32 a[t0]+8188 [0:128] [1,2] value=0\n"
                 "    dst reaches bytes 8188 to 8195 of a slot of pool 'a', which has 8192");
  }
}

}  // namespace
}  // namespace opentrn::isa
