#include "compiler/matmul.h"

#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>

#include "base/error.h"
#include "compiler/matmul_plan.h"

namespace opentrn::compiler {
namespace {

using isa::AccessPattern;
using isa::Dim;
using isa::Engine;
using isa::Memory;

// Transfers are carried out in the order of their triggers. The operands' loads are triggered by two engines, so that
// their first chunks arrive side by side and neither waits for the computation.
constexpr Queue kLoadMoving = kLoad;
constexpr Queue kLoadStationary{Engine::gpsimd, 4};

// PSUM is evacuated by two engines; each has its own pools and stores its own results, so that neither waits for the
// other.
constexpr std::array<Engine, 2> kEvacuation{Engine::scalar, Engine::vector};
constexpr std::array<Queue, 2> kStoreResult{kStoreScalar, Queue{Engine::vector, 5}};

// A stretch of K: `blocks` K blocks, or the tail (no blocks); `repeat` of them one behind the other.
struct Segment {
  int64_t first_row = 0, blocks = 0, tail_rows = 0, repeat = 1;
  int64_t partitions = 128;  // of a K block
};

// A chunk of an operand in SBUF: column c of tile r of K block s lies at s * block + r * tile + c * column.
struct Chunk {
  Tile tile;
  int64_t block = 0, row = 0, column = 1;
};

// One accumulation in PSUM: a stationary tile against a moving tile.
struct Product {
  Tile psum;
  int64_t m_offset = 0, rows = 0;     // in the group's columns of lhs
  int64_t n_offset = 0, columns = 0;  // in the block's columns of rhs
  size_t engine = 0;                  // that evacuates it
};

class Emitter {
 public:
  Emitter(KernelBuilder& builder, const MatmulProblem& problem, const MatmulPlan& plan)
      : b_(builder), p_(problem), plan_(plan) {
    const int64_t size = size_of(p_.compute), chunk = plan_.chunk_tiles();
    lhs_pool_ = b_.pool("lhs", Memory::sbuf, chunk * plan_.widest_panel() * size, plan_.lhs_depth);
    rhs_pool_ = b_.pool("rhs", Memory::sbuf, chunk * plan_.n.size * size, plan_.rhs_depth);
    const int64_t banks = b_.chip().psum_banks / 2;
    for (size_t e = 0; e < 2; ++e) {
      out_pool_[e] = b_.pool(fmt::format("out_{}", isa::name_of(kEvacuation[e])), Memory::sbuf,
                             plan_.n.size * size_of(p_.out.dtype), plan_.out_depth);
      psum_pool_[e] = b_.pool(fmt::format("psum_{}", isa::name_of(kEvacuation[e])), Memory::psum,
                              plan_.tile_n * size_of(DType::f32), static_cast<int>(banks));
    }
    segments();
  }

  void run() { batch(0, Index(p_.lhs.offset), Index(p_.rhs.offset), Index(p_.out.offset)); }

 private:
  // Resident panels: one segment per chunk. Streaming: the chunks between the first and the last are a loop.
  void segments() {
    const int64_t block_rows = 128 * plan_.rows_per_partition;
    const auto add = [&](int64_t first_block, int64_t blocks, int64_t repeat) {
      if (repeat > 0 && blocks > 0) segments_.push_back({first_block * block_rows, blocks, 0, repeat, 128});
    };
    const int64_t size = plan_.chunk_blocks, first = plan_.first_blocks, others = plan_.k_blocks - first;
    const int64_t full = others / size, rest = others % size;
    add(0, first, 1);
    if (plan_.resident) {
      for (int64_t c = 0; c < full; ++c) add(first + c * size, size, 1);
    } else {
      const int64_t last = rest == 0 && full > 0 ? 1 : 0;
      add(first, size, full - last);
      add(first + (full - last) * size, size, last);
    }
    add(first + full * size, rest, 1);
    // A tail of two tiles is a K block with fewer partitions where that leaves no odd row.
    const int64_t tail = plan_.tail_rows, begin = plan_.k_blocks * block_rows;
    if (tail > 128 && tail % 2 == 0)
      segments_.push_back({begin, 1, 0, 1, tail / 2});
    else if (tail > 0)
      segments_.push_back({begin, 0, tail, 1, 128});
  }

  void batch(size_t d, const Index& lhs, const Index& rhs, const Index& out) {
    if (d == p_.batch.size()) return panels(lhs, rhs, out);
    b_.loop(p_.batch[d], [&](Index i) {
      batch(d + 1, lhs + i * p_.lhs.batch_strides[d], rhs + i * p_.rhs.batch_strides[d],
            out + i * p_.out.batch_strides[d]);
    });
  }

  // lhs in panels of block_m columns; for each, all of rhs in panels of n.size columns.
  void panels(const Index& lhs, const Index& rhs, const Index& out) {
    const auto panel_of = [&](const Index& m, int64_t columns_m) {
      const Index lhs_panel = lhs + m * p_.lhs.column_stride, out_rows = out + m * p_.out.row_stride;
      const std::vector<Chunk> stationary = panel(p_.lhs, lhs_pool_, lhs_panel, columns_m, kLoadStationary);
      const auto body = [&](const Index& n, int64_t columns_n) {
        const Index rhs_panel = rhs + n * p_.rhs.column_stride;
        const std::vector<Chunk> moving = panel(p_.rhs, rhs_pool_, rhs_panel, columns_n, kLoadMoving);
        b_.blocks(columns_m, plan_.group_m * 128, [&](Index g, int64_t rows) {
          Group group;
          group.lhs = lhs_panel;
          group.rhs = rhs_panel;
          group.first = g;
          group.panel_columns = columns_m;
          group.columns = columns_n;
          group.rows = rows;
          compute(group, stationary, moving, out_rows + g * p_.out.row_stride + n * p_.out.column_stride);
        });
      };
      b_.loop(plan_.n.blocks, [&](Index i) { body(i * plan_.n.step, plan_.n.size); });
      if (plan_.n.rest > 0) body(Index(plan_.n.blocks * plan_.n.size), plan_.n.rest);
    };
    b_.loop(plan_.panels, [&](Index i) { panel_of(i * plan_.block_m, plan_.block_m); });
    if (plan_.last_m > 0) panel_of(Index(plan_.panels * plan_.block_m), plan_.last_m);
  }

  std::vector<Chunk> panel(const MatrixView& x, int pool, const Index& base, int64_t columns, Queue queue) {
    std::vector<Chunk> chunks;
    if (!plan_.resident) return chunks;
    for (const Segment& s : segments_) chunks.push_back(load(x, pool, base + Index(s.first_row * x.row_stride), s, columns, queue));
    return chunks;
  }

  // ---- loads
  Chunk load(const MatrixView& x, int pool, const Index& base, const Segment& s, int64_t columns, Queue queue) {
    Chunk chunk;
    chunk.tile = b_.take(pool);
    const int64_t q = s.blocks > 0 ? plan_.rows_per_partition : 1;
    const Load kind = load_of(x, p_.compute, columns);
    if (kind == Load::rows || q == 1) {
      chunk.column = 1;
      chunk.row = columns;
    } else {
      chunk.column = q;
      chunk.row = 1;
    }
    chunk.block = q * columns;
    if (kind == Load::rows)
      load_rows(x, chunk, base, s, columns, queue);
    else if (kind == Load::vector)
      load_vector(x, chunk, base, s, queue);
    else
      load_transposed(x, chunk, base, s, columns, queue);
    return chunk;
  }

  void load_rows(const MatrixView& x, const Chunk& chunk, const Index& base, const Segment& s, int64_t columns,
                 Queue queue) {
    const auto part = [&](int64_t first_tile, int64_t partitions, int64_t blocks, int64_t q, int64_t partition = 0) {
      const auto dim = [](int64_t stride, int64_t count) { return Dim{stride, static_cast<int32_t>(count)}; };
      b_.dma(b_.at(chunk.tile, p_.compute, partitions,
                   {dim(q * columns, blocks), dim(columns, q), dim(1, columns)}, Index(first_tile * columns), partition),
             b_.hbm(x.buffer, x.dtype, base + Index((first_tile * 128 + partition * q) * x.row_stride), partitions,
                    q * x.row_stride, {dim(128 * q * x.row_stride, blocks), dim(x.row_stride, q), dim(x.column_stride, columns)}),
             queue);
    };
    if (s.blocks > 0) {
      // Beside a transposed operand, which comes in pieces, this one comes in halves: transfers of both take turns.
      const int64_t half = plan_.rows_per_partition == 2 && s.partitions == 128 ? 64 : s.partitions;
      for (int64_t p = 0; p < s.partitions; p += half) part(0, half, s.blocks, plan_.rows_per_partition, p);
      return;
    }
    const int64_t full = s.tail_rows / 128, rest = s.tail_rows % 128;
    if (full > 0) part(0, 128, full, 1);
    if (rest > 0) part(full, rest, 1, 1);
  }

  // Rows [first, first + rows) of HBM, `step` apart, become columns of SBUF. Pairs of 16-bit values move as one.
  void transpose(const MatrixView& x, const Chunk& chunk, const Index& from, int64_t row_stride, int64_t rows,
                 int64_t partitions, bool pairs, const Index& to, int64_t column_stride, Queue queue) {
    AccessPattern src = b_.hbm(x.buffer, x.dtype, from, rows, row_stride, {{1, static_cast<int32_t>(partitions)}});
    AccessPattern dst = b_.at(chunk.tile, x.dtype, partitions, {{column_stride, static_cast<int32_t>(rows)}}, to);
    if (pairs) {
      src.dtype = dst.dtype = DType::u32;
      src.partition_stride /= 2;
      dst.dims[0].stride /= 2;
    }
    b_.dma_transpose(dst, src, queue);
  }

  void load_transposed(const MatrixView& x, const Chunk& chunk, const Index& base, const Segment& s, int64_t columns,
                       Queue queue) {
    const bool pairs = s.blocks > 0 && plan_.rows_per_partition == 2;
    // Rows of an odd number of 16-bit elements are whole 32-bit strides apart two by two.
    const int64_t phases = pairs && x.column_stride % 2 != 0 ? 2 : 1;
    const auto tile = [&](const Index& from, const Index& to, int64_t partitions) {
      for (int64_t phase = 0; phase < phases; ++phase) {
        int64_t column = phase;
        for (int64_t rows : even_pieces((columns - phase + phases - 1) / phases, kTransposeRows)) {
          transpose(x, chunk, from + Index(column * x.column_stride), phases * x.column_stride, rows, partitions, pairs,
                    to + Index(column * chunk.column), phases * chunk.column, queue);
          column += rows * phases;
        }
      }
    };
    if (s.blocks > 0) {
      // The last block's transfers stand behind the loop: its readers wait for them.
      const int64_t block_rows = 128 * plan_.rows_per_partition;
      b_.loop(s.blocks - 1, [&](Index i) { tile(base + i * block_rows, i * chunk.block, s.partitions); });
      return tile(base + Index((s.blocks - 1) * block_rows), Index((s.blocks - 1) * chunk.block), s.partitions);
    }
    for (int64_t row = 0; row < s.tail_rows; row += 128)
      tile(base + Index(row), Index(row / 128 * columns), std::min<int64_t>(128, s.tail_rows - row));
  }

  // A contiguous vector is a matrix of 128 (or 2 x 128) columns and one row for each K block.
  void load_vector(const MatrixView& x, const Chunk& chunk, const Index& base, const Segment& s, Queue queue) {
    const int64_t q = plan_.rows_per_partition;
    const auto part = [&](int64_t first, int64_t blocks, int64_t partitions, int64_t rows_per_partition) {
      int64_t done = 0;
      for (int64_t rows : even_pieces(blocks, kTransposeRows)) {
        const int64_t block = first + done;
        transpose(x, chunk, base + Index(block * 128 * rows_per_partition), 128 * rows_per_partition, rows, partitions,
                  rows_per_partition == 2, Index(block * rows_per_partition), rows_per_partition, queue);
        done += rows;
      }
    };
    if (s.blocks > 0) return part(0, s.blocks, s.partitions, q);
    const int64_t full = s.tail_rows / 128, rest = s.tail_rows % 128;
    if (full > 0) part(0, full, 128, 1);
    if (rest > 0) part(full, 1, rest, 1);
  }

  // ---- computation
  struct Group {
    Index lhs, rhs;             // the panels in HBM (streaming)
    Index first;                // first column of lhs, from the panel's start
    int64_t panel_columns = 0;  // of lhs
    int64_t rows = 0;           // columns of lhs, rows of the result
    int64_t columns = 0;        // of rhs and the result
  };

  // Up to eight products of stationary and moving tiles accumulate in PSUM side by side, K from outside to inside.
  void compute(const Group& group, const std::vector<Chunk>& stationary, const std::vector<Chunk>& moving,
               const Index& out) {
    const int64_t m_tiles = (group.rows + 127) / 128;
    const std::vector<int64_t> widths = even_pieces(group.columns, plan_.tile_n);
    // Blocks that overlap in n write the same results twice: rows always go through the same queue.
    const size_t half = plan_.n.step < plan_.n.size ? widths.size() : (widths.size() + 1) / 2;
    std::vector<Product> products;
    for (int64_t m = 0; m < m_tiles; ++m) {
      int64_t column = 0;
      for (size_t n = 0; n < widths.size(); ++n) {
        Product product;
        product.engine = m_tiles > 1 ? static_cast<size_t>(m % 2) : (n < half ? 0 : 1);
        product.psum = b_.take(psum_pool_[product.engine]);
        product.m_offset = m * 128;
        product.rows = std::min<int64_t>(128, group.rows - m * 128);
        product.n_offset = column;
        product.columns = widths[n];
        products.push_back(product);
        column += widths[n];
      }
    }
    // The last chunk, and the tail with it, is computed row by row: each leaves PSUM while the next ones are finished.
    size_t last = segments_.size() - 1;
    if (plan_.tail_rows > 0 && last > 0) --last;
    for (size_t k = 0; k < last; ++k)
      b_.loop(segments_[k].repeat, [&](Index i) {
        const auto [lhs, rhs] = chunks(group, stationary, moving, k, i);
        accumulate(products, lhs, rhs, segments_[k], k == 0, group.first);
      });
    std::vector<std::pair<Chunk, Chunk>> final_chunks;
    for (size_t k = last; k < segments_.size(); ++k) final_chunks.push_back(chunks(group, stationary, moving, k, 0));
    for (size_t begin = 0; begin < products.size(); begin += widths.size())
      for (size_t k = last; k < segments_.size(); ++k) {
        const auto& [lhs, rhs] = final_chunks[k - last];
        accumulate(std::span(products).subspan(begin, widths.size()), lhs, rhs, segments_[k], k == 0, group.first);
      }
    evacuate(products, out);
  }

  // Both operands' chunk of segment k: resident, or loaded now.
  std::pair<Chunk, Chunk> chunks(const Group& group, const std::vector<Chunk>& stationary,
                                 const std::vector<Chunk>& moving, size_t k, const Index& repeat) {
    if (plan_.resident) return {stationary[k], moving[k]};
    const Segment& s = segments_[k];
    const Index row = repeat * (s.blocks * 128 * plan_.rows_per_partition) + Index(s.first_row);
    return {load(p_.lhs, lhs_pool_, group.lhs + row * p_.lhs.row_stride, s, group.panel_columns, kLoadStationary),
            load(p_.rhs, rhs_pool_, group.rhs + row * p_.rhs.row_stride, s, group.columns, kLoadMoving)};
  }

  // The products of one segment. The very first K tile overwrites PSUM.
  void accumulate(std::span<const Product> products, const Chunk& lhs, const Chunk& rhs, const Segment& s, bool first,
                  const Index& m) {
    const auto tile = [&](const Index& lhs_offset, const Index& rhs_offset, int64_t partitions, bool adds) {
      for (const Product& p : products)
        b_.matmul(b_.at(p.psum, DType::f32, p.rows, {{1, static_cast<int32_t>(p.columns)}}),
                  b_.at(lhs.tile, p_.compute, partitions, {{lhs.column, static_cast<int32_t>(p.rows)}},
                        lhs_offset + (m + Index(p.m_offset)) * lhs.column),
                  b_.at(rhs.tile, p_.compute, partitions, {{rhs.column, static_cast<int32_t>(p.columns)}},
                        rhs_offset + Index(p.n_offset * rhs.column)),
                  adds);
    };
    if (s.blocks == 0) {
      for (int64_t row = 0; row < s.tail_rows; row += 128)
        tile(Index(row / 128 * lhs.row), Index(row / 128 * rhs.row), std::min<int64_t>(128, s.tail_rows - row),
             !(first && row == 0));
      return;
    }
    const int64_t q = plan_.rows_per_partition, begin = first ? 1 : 0;
    if (first)
      for (int64_t r = 0; r < q; ++r) tile(Index(r * lhs.row), Index(r * rhs.row), s.partitions, r > 0);
    b_.loop(s.blocks - begin, [&](Index k) {
      b_.loop(q, [&](Index r) {
        tile((k + Index(begin)) * lhs.block + r * lhs.row, (k + Index(begin)) * rhs.block + r * rhs.row, s.partitions, true);
      });
    });
  }

  // Results go to SBUF in rows as long as one engine copies them, and from there to HBM.
  void evacuate(const std::vector<Product>& products, const Index& out) {
    for (size_t begin = 0; begin < products.size();) {
      const Product& head = products[begin];
      const Tile row = b_.take(out_pool_[head.engine]);
      int64_t columns = 0;
      size_t end = begin;
      for (; end < products.size(); ++end) {
        const Product& p = products[end];
        if (p.m_offset != head.m_offset || p.engine != head.engine) break;
        const Dim dim{1, static_cast<int32_t>(p.columns)};
        b_.copy(kEvacuation[p.engine], b_.at(row, p_.out.dtype, p.rows, {dim}, Index(columns)),
                b_.at(p.psum, DType::f32, p.rows, {dim}));
        columns += p.columns;
      }
      b_.dma(b_.hbm(p_.out.buffer, p_.out.dtype,
                    out + Index(head.m_offset * p_.out.row_stride + head.n_offset * p_.out.column_stride), head.rows,
                    p_.out.row_stride, {{p_.out.column_stride, static_cast<int32_t>(columns)}}),
             b_.at(row, p_.out.dtype, head.rows, {{1, static_cast<int32_t>(columns)}}), kStoreResult[head.engine]);
      begin = end;
    }
  }

  KernelBuilder& b_;
  const MatmulProblem& p_;
  const MatmulPlan& plan_;
  int lhs_pool_ = -1, rhs_pool_ = -1;
  std::array<int, 2> out_pool_{}, psum_pool_{};
  std::vector<Segment> segments_;
};

}  // namespace

void emit_matmul(KernelBuilder& builder, const Matmul& matmul, int cores) {
  MatmulProblem problem;
  if (!normalise(matmul.lhs, matmul.rhs, matmul.out, builder.core(), cores, problem)) return;
  const MatmulPlan plan = plan_matmul(problem, builder.chip(), builder.free_bytes(Memory::sbuf));
  Emitter(builder, problem, plan).run();
}

}  // namespace opentrn::compiler
