#include "compiler/matmul_plan.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"

namespace opentrn::compiler {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

// ---- normalise

void remove_batch(MatmulProblem& p, size_t d) {
  p.batch.erase(p.batch.begin() + static_cast<int64_t>(d));
  for (MatrixView* v : {&p.lhs, &p.rhs, &p.out}) v->batch_strides.erase(v->batch_strides.begin() + static_cast<int64_t>(d));
}

// Batch dimension d becomes the outer part of m (or n) when the other operand does not depend on it.
bool fold(MatmulProblem& p, size_t d) {
  const auto joins = [&](int64_t batch_stride, int64_t extent, int64_t stride) {
    return extent == 1 || batch_stride == extent * stride;
  };
  const int64_t lhs = p.lhs.batch_strides[d], rhs = p.rhs.batch_strides[d], out = p.out.batch_strides[d];
  if (rhs == 0 && joins(lhs, p.m, p.lhs.column_stride) && joins(out, p.m, p.out.row_stride)) {
    if (p.m == 1) {
      p.lhs.column_stride = lhs;
      p.out.row_stride = out;
    }
    p.m *= p.batch[d];
  } else if (lhs == 0 && joins(rhs, p.n, p.rhs.column_stride) && joins(out, p.n, p.out.column_stride)) {
    if (p.n == 1) {
      p.rhs.column_stride = rhs;
      p.out.column_stride = out;
    }
    p.n *= p.batch[d];
  } else {
    return false;
  }
  remove_batch(p, d);
  return true;
}

bool merge(MatmulProblem& p, size_t outer, size_t inner) {
  for (const MatrixView* v : {&p.lhs, &p.rhs, &p.out})
    if (v->batch_strides[outer] != v->batch_strides[inner] * p.batch[inner]) return false;
  p.batch[inner] *= p.batch[outer];
  remove_batch(p, outer);
  return true;
}

void simplify_batch(MatmulProblem& p) {
  for (size_t d = p.batch.size(); d-- > 0;)
    if (p.batch[d] == 1) remove_batch(p, d);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t d = p.batch.size(); d-- > 0 && !changed;) changed = fold(p, d);
    for (size_t a = 0; a < p.batch.size() && !changed; ++a)
      for (size_t b = 0; b < p.batch.size() && !changed; ++b) changed = a != b && merge(p, a, b);
  }
}

void swap_roles(MatmulProblem& p) {
  std::swap(p.lhs, p.rhs);
  std::swap(p.m, p.n);
  std::swap(p.out.row_stride, p.out.column_stride);
}

// Takes one core's share of the dimension that splits most evenly.
bool split(MatmulProblem& p, int core, int cores) {
  if (cores == 1) return true;
  const auto share = [&](int64_t units) { return static_cast<double>(ceil_div(units, cores)) / static_cast<double>(units); };
  double best = 1.0;
  int64_t* extent = nullptr;
  int64_t unit = 1;
  size_t batch_dim = 0;
  const auto consider = [&](int64_t* dimension, int64_t granule, size_t d) {
    const double s = share(ceil_div(*dimension, granule));
    if (s >= best) return;
    best = s;
    extent = dimension;
    unit = granule;
    batch_dim = d;
  };
  for (size_t d = 0; d < p.batch.size(); ++d) consider(&p.batch[d], 1, d);
  const int64_t n_unit = p.n >= 1024 ? 32 : p.n >= 128 ? 2 : 64;
  if (p.m >= p.n) consider(&p.m, 128, 0);
  consider(&p.n, n_unit, 0);
  consider(&p.m, 128, 0);
  if (!extent) return core == 0;
  const int64_t each = ceil_div(ceil_div(*extent, unit), cores) * unit;
  const int64_t begin = std::min(*extent, each * core), end = std::min(*extent, begin + each);
  if (extent == &p.m) {
    p.lhs.offset += begin * p.lhs.column_stride;
    p.out.offset += begin * p.out.row_stride;
  } else if (extent == &p.n) {
    p.rhs.offset += begin * p.rhs.column_stride;
    p.out.offset += begin * p.out.column_stride;
  } else {
    for (MatrixView* v : {&p.lhs, &p.rhs, &p.out}) v->offset += begin * v->batch_strides[batch_dim];
  }
  *extent = end - begin;
  return end > begin;
}

MatrixView matrix(const View& view, size_t rows, size_t columns) {
  MatrixView m;
  m.buffer = view.buffer;
  m.dtype = view.dtype;
  m.offset = view.offset;
  m.row_stride = view.strides[rows];
  m.column_stride = view.strides[columns];
  m.batch_strides.assign(view.strides.begin(), view.strides.end() - 2);
  return m;
}

// ---- plan

struct Estimator {
  const MatmulProblem& p;
  const spec::Chip& chip;
  double dma_rate;     // bytes per ns over all engines
  double row_ns;       // least time of one descriptor, shared by the engines
  double matmul_load_ns;
  double column_ns;
  double latency_ns;   // trigger to consumer, without the transfer
  double batch = 1;

  Estimator(const MatmulProblem& problem, const spec::Chip& c) : p(problem), chip(c) {
    dma_rate = std::min(chip.dma_engines * chip.dma_bytes_per_ns_per_engine, chip.hbm_gb_s_per_core);
    row_ns = chip.dma_descriptor_ns / chip.dma_engines;
    const double ghz = chip.engines[0].ghz;
    column_ns = (p.compute == DType::f32 ? chip.fp32_passes : 1.0) / ghz;
    matmul_load_ns = chip.load_stationary_startup_ns +
                     static_cast<double>(std::min<int64_t>(p.m, 128)) / (chip.load_stationary_columns_per_cycle * ghz);
    latency_ns = chip.dma_start_ns + chip.dma_complete_ns;
    for (int64_t b : p.batch) batch *= static_cast<double>(b);
  }

  // One K tile of `columns` columns.
  double load_ns(const MatrixView& x, int64_t columns, int64_t rows_per_partition) const {
    const double rows = static_cast<double>(std::min<int64_t>(p.k, 128));
    const int64_t size = size_of(x.dtype);
    switch (load_of(x, p.compute, columns)) {
      case Load::vector: return row_ns;
      case Load::transpose: {
        // One transfer for each piece of up to 512 columns and each K block (matmul.cc, load_transposed).
        const int64_t phases = rows_per_partition == 2 && x.column_stride % 2 != 0 ? 2 : 1;
        const int64_t pieces = phases * ceil_div(ceil_div(columns, phases), kTransposeRows);
        const int64_t piece = ceil_div(columns, pieces);
        const double bytes = rows * static_cast<double>(piece * size * rows_per_partition);
        const double runs = std::min(static_cast<double>(piece), rows);
        const double ns = std::max(runs * row_ns, bytes / dma_rate + chip.dma_transfer_overhead_ns);
        return ns / chip.dma_transpose_fraction * static_cast<double>(pieces) / static_cast<double>(rows_per_partition);
      }
      case Load::rows: break;
    }
    const double runs = x.column_stride == 1 || columns == 1 ? rows : rows * static_cast<double>(columns);
    return std::max(runs * row_ns, rows * static_cast<double>(columns * size) / dma_rate);
  }

  double store_ns(int64_t rows, int64_t columns) const {
    const double bytes = static_cast<double>(rows * columns * size_of(p.out.dtype));
    const double runs = static_cast<double>(p.out.column_stride == 1 || columns == 1 ? rows : rows * columns);
    return std::max(runs * row_ns, bytes / dma_rate) + chip.dma_transfer_overhead_ns;
  }

  // One stationary tile against a block of moving columns, one K tile.
  double matmul_ns(int64_t columns, int64_t tile_n) const {
    double ns = 0;
    for (int64_t width : even_pieces(columns, tile_n))
      ns += std::max(column_ns * std::max<double>(static_cast<double>(width), 64), matmul_load_ns);
    return ns;
  }

  double estimate(const MatmulPlan& plan) const {
    const double kt = static_cast<double>(plan.k_tiles());
    const int64_t q = plan.rows_per_partition, m_tiles = ceil_div(p.m, 128);
    const bool one_engine = m_tiles == 1 && plan.n.size <= plan.tile_n;
    const double evacuation_ghz = one_engine ? chip.engines[2].ghz : chip.engines[1].ghz + chip.engines[2].ghz;
    // What the slots beyond one panel hold is loaded while the panel before is in use; the rest arrives while the first
    // group computes.
    const auto behind = [&](int depth) {
      const double slots = static_cast<double>(depth - plan.panel_chunks());
      return plan.resident ? std::max(0.0, kt - slots * static_cast<double>(plan.chunk_tiles())) : 0;
    };
    const double lhs_behind = behind(plan.lhs_depth), rhs_behind = behind(plan.rhs_depth);
    // One panel of lhs against all of rhs. Each panel of rhs loads while the one before it is computed.
    const auto panel = [&](int64_t size) {
      const double tiles = static_cast<double>(ceil_div(size, 128)), lhs = kt * load_ns(p.lhs, size, q);
      const double group_tiles = std::min(tiles, static_cast<double>(plan.group_m));
      double ns = 0, dma_all = plan.resident ? lhs : 0;
      const auto block = [&](int64_t columns, double count) {
        const double rhs = kt * load_ns(p.rhs, columns, q), matmul = matmul_ns(columns, plan.tile_n);
        const double dma = rhs + tiles * store_ns(std::min<int64_t>(p.m, 128), columns) + (plan.resident ? 0 : lhs);
        const double wait = rhs_behind * std::max(0.0, rhs / kt - group_tiles * matmul);
        dma_all += count * dma;
        ns += count * std::max({tiles * kt * matmul + wait, dma, tiles * static_cast<double>(columns) / evacuation_ghz});
        return std::max(lhs_behind, rhs_behind) * std::max(0.0, (lhs + rhs) / kt - group_tiles * matmul) - wait;
      };
      const double change = block(plan.n.size, static_cast<double>(plan.n.blocks));
      if (plan.n.rest > 0) block(plan.n.rest, 1);
      return std::max(ns + std::max(0.0, change), dma_all);
    };
    double all = 0;
    if (plan.panels > 0) all += static_cast<double>(plan.panels) * panel(plan.block_m);
    if (plan.last_m > 0) all += panel(plan.last_m);

    // The first panels arrive chunk by chunk while the first group computes.
    const double arrival = load_ns(p.lhs, plan.panels > 0 ? plan.block_m : plan.last_m, q) + load_ns(p.rhs, plan.n.size, q);
    const double group = static_cast<double>(std::min(plan.group_m, m_tiles)) * matmul_ns(plan.n.size, plan.tile_n);
    double arrived = latency_ns, done = 0;
    const auto chunk = [&](double tiles) {
      arrived += tiles * arrival;
      done = std::max(done, arrived) + tiles * group;
    };
    const int64_t first = std::min(plan.k_blocks, plan.first_blocks);
    if (first > 0) chunk(static_cast<double>(first * q));
    for (int64_t k = first; k < plan.k_blocks; k += plan.chunk_blocks)
      chunk(static_cast<double>(std::min(plan.chunk_blocks, plan.k_blocks - k) * q));
    if (plan.tail_rows > 0) chunk(static_cast<double>(ceil_div(plan.tail_rows, 128)));
    const double fill = done - kt * group;
    // The last group's rows leave one after the other while its last chunk is computed.
    const double rows = static_cast<double>(std::min(plan.group_m, m_tiles)), store = store_ns(128, plan.n.size);
    const double last_tiles = static_cast<double>(plan.tail_rows > 0 ? ceil_div(plan.tail_rows, 128) : plan.chunk_blocks * q);
    const double drain = latency_ns + static_cast<double>(plan.n.size) +
                         std::max(store, rows * store - last_tiles * group * (rows - 1) / rows);

    // A little for code: bodies of different shapes, chunks that are written out.
    const int64_t group_columns = plan.group_m * 128;
    const auto groups = [&](int64_t size) { return (size >= group_columns ? 1 : 0) + (size % group_columns > 0 ? 1 : 0); };
    const double bodies = (plan.n.rest > 0 ? 2 : 1) * ((plan.panels > 0 ? groups(plan.block_m) : 0) + groups(plan.last_m));
    const double code = 1 + 0.0005 * bodies * static_cast<double>(plan.resident ? plan.panel_chunks() : 3);
    return (fill + batch * all + drain) * code;
  }
};

std::vector<Blocks> partitions_of_n(int64_t n, int64_t tiles, int64_t tile_n, int64_t banks) {
  const int64_t limit = tiles * tile_n;
  std::vector<Blocks> result;
  if (n <= limit) return {{n, n, 1, 0}};
  // Equal blocks that overlap by less than the number of blocks, so that one body of code serves all.
  for (int64_t blocks = ceil_div(n, limit); blocks <= ceil_div(n, limit) + 2; ++blocks)
    for (int64_t size = ceil_div(n, blocks); size <= limit; ++size)
      if ((n - size) % (blocks - 1) == 0) {
        // Overlapping rows of one stationary tile leave PSUM through one engine, which has half of the banks.
        if (size * blocks > n && 2 * tiles > banks) break;
        result.push_back({size, (n - size) / (blocks - 1), blocks, 0});
        break;
      }
  // Equal tiles, with a last block of fewer tiles.
  const int64_t width = ceil_div(n, ceil_div(n, tile_n)), size = width * tiles;
  result.push_back({size, size, n / size, n % size});
  return result;
}

// Fills in the depths; false when the panels do not fit.
bool place(MatmulPlan& plan, const MatmulProblem& p, int64_t sbuf_bytes) {
  const int64_t es = size_of(p.compute);
  const int64_t lhs = round_up(plan.chunk_tiles() * plan.widest_panel() * es, 64);
  const int64_t rhs = round_up(plan.chunk_tiles() * plan.n.size * es, 64);
  const int64_t out = 2 * round_up(plan.n.size * size_of(p.out.dtype), 64);  // one slot for each evacuating engine
  const int chunks = plan.resident ? static_cast<int>(plan.panel_chunks()) : 1;
  const bool one_panel = plan.panels + (plan.last_m > 0 ? 1 : 0) == 1 && p.batch.empty();
  plan.lhs_depth = chunks;
  plan.rhs_depth = chunks + 1;
  // All rows of a group that one engine evacuates, and one more, so that PSUM is free before they are stored.
  plan.out_depth = static_cast<int>((plan.group_m + 1) / 2) + 1;
  const auto used = [&] { return lhs * plan.lhs_depth + rhs * plan.rhs_depth + out * plan.out_depth; };
  if (used() > sbuf_bytes) {
    plan.rhs_depth = chunks;
    if (used() > sbuf_bytes) return false;
  }
  // Small tiles are limited by latency: more of them in flight.
  const int most = chunks + std::max(chunks, 4);
  const auto grow = [&](int& depth, int limit, int64_t bytes) {
    if (depth < limit && used() + bytes <= sbuf_bytes) ++depth;
  };
  for (int round = 0; round < most; ++round) {
    grow(plan.rhs_depth, most, rhs);
    if (!one_panel || !plan.resident) grow(plan.lhs_depth, most, lhs);
    grow(plan.out_depth, 8, out);
  }
  return plan.resident || (plan.lhs_depth >= 2 && plan.rhs_depth >= 2);
}

}  // namespace

std::vector<int64_t> even_pieces(int64_t extent, int64_t limit) {
  const int64_t pieces = ceil_div(extent, limit);
  std::vector<int64_t> sizes(static_cast<size_t>(pieces), extent / pieces);
  for (int64_t i = 0; i < extent % pieces; ++i) ++sizes[static_cast<size_t>(i)];
  return sizes;
}

int64_t MatmulPlan::chunk_tiles() const {
  return std::max(k_blocks > 0 ? chunk_blocks * rows_per_partition : 0, ceil_div(tail_rows, 128));
}

Load load_of(const MatrixView& operand, DType compute, int64_t columns) {
  const bool transposable = operand.row_stride == 1 && operand.dtype == compute;
  if (columns == 1) return transposable ? Load::vector : Load::rows;
  return transposable && operand.column_stride != 1 ? Load::transpose : Load::rows;
}

bool normalise(const View& lhs, const View& rhs, const View& out, int core, int cores, MatmulProblem& p) {
  const size_t rank = out.shape.size();
  p.batch.assign(out.shape.begin(), out.shape.end() - 2);
  p.m = out.shape[rank - 2];
  p.n = out.shape[rank - 1];
  p.k = lhs.shape[rank - 1];
  p.lhs = matrix(lhs, rank - 1, rank - 2);
  p.rhs = matrix(rhs, rank - 2, rank - 1);
  p.out = matrix(out, rank - 2, rank - 1);
  p.compute = lhs.dtype == rhs.dtype ? lhs.dtype : DType::f32;
  simplify_batch(p);
  const bool m_runs = p.m > 1 && p.out.row_stride == 1, n_runs = p.n > 1 && p.out.column_stride == 1;
  if (!n_runs && (m_runs || p.n == 1)) swap_roles(p);
  return split(p, core, cores);
}

MatmulPlan plan_matmul(const MatmulProblem& p, const spec::Chip& chip, int64_t sbuf_bytes) {
  const Estimator estimator(p, chip);
  const int64_t banks = chip.psum_banks, tile_n = chip.psum_bank_bytes / 4;
  const int64_t m_tiles = ceil_div(p.m, 128);
  MatmulPlan best;
  bool found = false;
  const auto consider = [&](MatmulPlan plan) {
    if (!place(plan, p, sbuf_bytes)) return;
    plan.estimated_ns = estimator.estimate(plan);
    if (found && plan.estimated_ns >= best.estimated_ns) return;
    best = plan;
    found = true;
  };
  const auto consider_panels = [&](MatmulPlan plan, int64_t panels) {
    plan.panels = panels;
    plan.last_m = p.m - panels * plan.block_m;
    if (panels >= 0) consider(plan);
  };
  MatmulPlan plan;
  const bool pairs = size_of(p.compute) == 2 && (load_of(p.lhs, p.compute, p.m) != Load::rows ||
                                                 load_of(p.rhs, p.compute, p.n) != Load::rows);
  plan.rows_per_partition = pairs ? 2 : 1;
  plan.k_blocks = p.k / (128 * plan.rows_per_partition);
  plan.tail_rows = p.k % (128 * plan.rows_per_partition);
  plan.tile_n = std::min<int64_t>(tile_n, chip.moving_free_max);
  const auto cut = [&](int64_t blocks) {
    plan.chunk_blocks = std::max<int64_t>(1, std::min(blocks, plan.k_blocks));
    plan.first_blocks = std::min<int64_t>(plan.k_blocks, 1);
  };
  for (int64_t n_tiles = 1; n_tiles <= banks; ++n_tiles) {
    if (n_tiles > 1 && (n_tiles - 1) * plan.tile_n >= p.n) break;
    plan.group_m = std::min(banks / n_tiles, m_tiles);
    for (const Blocks& n : partitions_of_n(p.n, n_tiles, plan.tile_n, banks)) {
      plan.n = n;
      plan.resident = true;
      for (int64_t chunks : {4, 7}) {
        cut(ceil_div(plan.k_blocks - 1, chunks));
        for (int64_t panels = 1; panels <= ceil_div(m_tiles, plan.group_m); ++panels) {
          if (panels == 1) {
            consider_panels(plan, 0);
          } else {
            plan.block_m = round_up(ceil_div(m_tiles, panels), plan.group_m) * 128;
            consider_panels(plan, p.m / plan.block_m);
            if (plan.block_m > 128 * plan.group_m) {
              plan.block_m -= 128 * plan.group_m;
              consider_panels(plan, p.m / plan.block_m - 1);
            }
          }
          if (panels >= 4) panels += panels / 2;
        }
      }
      plan.resident = false;
      plan.block_m = plan.group_m * 128;
      cut(4 / plan.rows_per_partition);
      consider_panels(plan, p.m / plan.block_m);
    }
  }
  if (!found) throw InternalError(fmt::format("plan_matmul: no plan for {} x {} x {}", p.m, p.n, p.k));
  return best;
}

}  // namespace opentrn::compiler
