#include "exec/host_forward.h"

#include <algorithm>
#include <optional>
#include <span>

namespace opentrn::exec::host {
namespace {

using isa::AccessPattern;
using isa::Dim;
using isa::Instruction;
using isa::Memory;
using isa::Opcode;
using isa::Term;

// A dimension of a transfer: steps in the tile's row and in HBM, in bytes.
struct Mapped {
  int64_t count, row, hbm;
};

// Where the bytes of a tile come from: row offset base + sum(row * index) was loaded from hbm offset + sum(hbm * index).
struct LoadMap {
  int leaf = 0;                 // of the first load
  int partition = 0, partitions = 0;
  int64_t base = 0;             // row offset
  int64_t partition_step = 0;   // bytes in HBM
  std::vector<Mapped> dims;     // by descending row step
  AccessPattern source;         // the HBM side: buffer, offset, terms
  bool transposed = false;      // neighbours in HBM lie in different partitions
};

// Free dimensions (stride in bytes) with neighbours that continue each other merged, ones left out.
std::vector<std::pair<int64_t, int64_t>> dims_of(const AccessPattern& p) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // count, stride
  const int64_t size = size_of(p.dtype);
  for (const Dim& d : p.dims) {
    if (d.count == 1) continue;
    const int64_t stride = d.stride * size;
    if (!dims.empty() && dims.back().second == stride * d.count) {
      dims.back().first *= d.count;
      dims.back().second = stride;
    } else {
      dims.emplace_back(d.count, stride);
    }
  }
  return dims;
}

// Splits two dimension lists with the same number of elements until they agree.
bool common(std::vector<std::pair<int64_t, int64_t>> a, std::vector<std::pair<int64_t, int64_t>> b, std::vector<Mapped>& out) {
  while (!a.empty() && !b.empty()) {
    auto& [count_a, stride_a] = a.back();
    auto& [count_b, stride_b] = b.back();
    const int64_t n = std::min(count_a, count_b);
    if (count_a % n != 0 || count_b % n != 0) return false;
    out.push_back({n, stride_a, stride_b});
    const auto advance = [n](auto& dims) {
      auto& [count, stride] = dims.back();
      count /= n;
      stride *= n;
      if (count == 1) dims.pop_back();
    };
    advance(a);
    advance(b);
  }
  std::ranges::reverse(out);
  return a.empty() && b.empty();
}

bool is_load(const Instruction& i) {
  return (i.opcode == Opcode::dma_copy || i.opcode == Opcode::dma_transpose) && !i.accumulate &&
         i.src[0].memory == Memory::hbm && i.dst.memory != Memory::hbm && i.src[0].dtype == i.dst.dtype;
}
bool is_store(const Instruction& i) {
  return (i.opcode == Opcode::dma_copy || i.opcode == Opcode::tensor_copy) && !i.accumulate && i.dst.memory == Memory::hbm && i.src[0].memory != Memory::hbm &&
         i.src[0].dtype == i.dst.dtype;
}

std::optional<LoadMap> map_of(const Use& write) {
  const Instruction& i = write.node->instruction;
  const AccessPattern& from = i.src[0];
  const AccessPattern& to = i.dst;
  if (!to.terms.empty()) return std::nullopt;  // a tile filled piece by piece
  LoadMap map;
  map.leaf = write.leaf;
  map.partition = to.partition;
  map.partitions = to.partitions;
  map.base = to.offset;
  map.source = from;
  const int64_t size = size_of(from.dtype);
  if (i.opcode == Opcode::dma_copy) {
    if (from.partitions != to.partitions || from.free_elements() != to.free_elements()) return std::nullopt;
    map.partition_step = from.partition_stride * size;
    if (!common(dims_of(to), dims_of(from), map.dims)) return std::nullopt;
  } else {
    // Elements of the source's row become partitions, its rows the elements of a row.
    const auto row = dims_of(from);
    const auto free = dims_of(to);
    if (row.size() > 1 || free.size() > 1 || from.free_elements() != to.partitions || from.partitions != to.free_elements())
      return std::nullopt;
    map.partition_step = row.empty() ? size : row[0].second;
    if (from.partitions > 1) map.dims.push_back({from.partitions, free.empty() ? size : free[0].second, from.partition_stride * size});
    map.transposed = true;
  }
  for (const Mapped& d : map.dims)
    if (d.row <= 0) return std::nullopt;
  return map;
}

// Neighbouring dimensions that continue each other on both sides become one.
void merge(std::vector<Mapped>& dims) {
  std::ranges::sort(dims, std::greater(), &Mapped::row);
  for (size_t d = 1; d < dims.size();) {
    if (dims[d - 1].row == dims[d].row * dims[d].count && dims[d - 1].hbm == dims[d].hbm * dims[d].count) {
      dims[d - 1] = {dims[d - 1].count * dims[d].count, dims[d].row, dims[d].hbm};
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d));
    } else {
      ++d;
    }
  }
}

// Loads of equal shape at regular distances are one load with one more dimension.
std::vector<LoadMap> join(std::vector<LoadMap> maps) {
  const auto alike = [](const LoadMap& a, const LoadMap& b) {
    if (a.partition != b.partition || a.partitions != b.partitions || a.partition_step != b.partition_step ||
        a.dims.size() != b.dims.size() || a.source.buffer != b.source.buffer || !(a.source.terms == b.source.terms))
      return false;
    for (size_t d = 0; d < a.dims.size(); ++d)
      if (a.dims[d].count != b.dims[d].count || a.dims[d].row != b.dims[d].row || a.dims[d].hbm != b.dims[d].hbm) return false;
    return true;
  };
  // First the nearest neighbours in pairs or runs, then runs of runs.
  for (bool joined = true; joined && maps.size() > 1;) {
    joined = false;
    std::ranges::sort(maps, {}, &LoadMap::base);
    std::vector<LoadMap> out;
    for (size_t first = 0; first < maps.size();) {
      size_t end = first + 1;
      while (end < maps.size() && alike(maps[first], maps[end]) &&
             maps[end].base - maps[end - 1].base == maps[first + 1].base - maps[first].base &&
             maps[end].source.offset - maps[end - 1].source.offset == maps[first + 1].source.offset - maps[first].source.offset)
        ++end;
      LoadMap map = maps[first];
      if (end - first > 1) {
        map.dims.push_back({static_cast<int64_t>(end - first), maps[first + 1].base - maps[first].base,
                            maps[first + 1].source.offset - maps[first].source.offset});
        for (size_t k = first; k < end; ++k) map.leaf = std::min(map.leaf, maps[k].leaf);
        joined = true;
      }
      merge(map.dims);
      out.push_back(std::move(map));
      first = end;
    }
    maps = std::move(out);
  }
  for (LoadMap& map : maps) merge(map.dims);
  return maps;
}

// A position in a load's row as one digit per dimension, and how far the digits may still grow.
class Digits {
 public:
  explicit Digits(const LoadMap& map) : map_(map), largest_(map.dims.size(), 0) {}

  // The offset `bytes` from the load's first byte; adds the offset in HBM.
  bool start(int64_t bytes, int64_t& hbm) {
    if (bytes < 0) return false;
    for (size_t d = 0; d < map_.dims.size(); ++d) {
      const int64_t digit = bytes / map_.dims[d].row;
      bytes -= digit * map_.dims[d].row;
      if (!grow(d, digit)) return false;
      hbm += digit * map_.dims[d].hbm;
    }
    return bytes == 0;
  }

  // `count` steps of `bytes`: as one or two dimensions in HBM (outermost first).
  bool steps(int64_t count, int64_t bytes, SmallVector<Mapped, 8>& out) {
    if (count == 1) return true;
    if (bytes == 0) {
      out.push_back({count, 0, 0});
      return true;
    }
    if (bytes < 0) return false;
    for (size_t d = 0; d < map_.dims.size(); ++d) {
      const Mapped& dim = map_.dims[d];
      if (bytes % dim.row != 0 || bytes < dim.row) continue;
      const int64_t by = bytes / dim.row;
      if (largest_[d] + by * (count - 1) < dim.count) {
        largest_[d] += by * (count - 1);
        out.push_back({count, bytes, by * dim.hbm});
        return true;
      }
      // Steps that fill this dimension and go on in the next one.
      if (d == 0 || largest_[d] != 0 || dim.count % by != 0) return false;
      const int64_t inner = dim.count / by;
      if (count % inner != 0 || map_.dims[d - 1].row != dim.row * dim.count || !grow(d - 1, count / inner - 1)) return false;
      largest_[d] = by * (inner - 1);
      out.push_back({count / inner, map_.dims[d - 1].row, map_.dims[d - 1].hbm});
      if (inner > 1) out.push_back({inner, bytes, by * dim.hbm});
      return true;
    }
    return false;
  }

 private:
  bool grow(size_t d, int64_t by) {
    largest_[d] += by;
    return largest_[d] < map_.dims[d].count;
  }
  const LoadMap& map_;
  std::vector<int64_t> largest_;
};

// Whether the instruction looks at the free dimensions of its sources, not only at the order of their elements.
bool has_shape(Opcode opcode) { return opcode == Opcode::tensor_reduce || opcode == Opcode::gpsimd_kernel; }

// The HBM pattern that holds what `read` finds in the tile, nullopt if that is not a pattern.
std::optional<AccessPattern> translate(const LoadMap& map, const Use& read, const Uses& uses) {
  const AccessPattern& p = *read.pattern;
  const int64_t size = size_of(p.dtype);
  if (p.dtype != map.source.dtype) return std::nullopt;
  if (p.partition < map.partition || p.partition + p.partitions > map.partition + map.partitions) return std::nullopt;
  AccessPattern hbm = map.source;
  hbm.dims.clear();
  hbm.partitions = p.partitions;
  if (map.partition_step % size != 0) return std::nullopt;
  hbm.partition_stride = map.partition_step / size;
  hbm.offset += (p.partition - map.partition) * map.partition_step;
  Digits digits(map);
  int64_t start = 0;
  if (!digits.start(p.offset - map.base, start)) return std::nullopt;
  hbm.offset += start;
  for (const Term& term : p.terms) {
    const auto loop = std::ranges::find_if(read.loops, [&](int l) { return uses.loops[static_cast<size_t>(l)].reg == term.reg; });
    if (loop == read.loops.end()) return std::nullopt;
    SmallVector<Mapped, 8> steps;
    if (!digits.steps(uses.loops[static_cast<size_t>(*loop)].count, term.bytes, steps) || steps.size() > 1) return std::nullopt;
    if (steps.empty() || steps[0].hbm == 0) continue;
    auto same = std::ranges::find_if(hbm.terms, [&](const Term& t) { return t.reg == term.reg; });
    if (same != hbm.terms.end()) same->bytes += steps[0].hbm;
    else if (hbm.terms.size() == 6) return std::nullopt;
    else hbm.terms.push_back({term.reg, steps[0].hbm});
  }
  SmallVector<Mapped, 8> dims;
  const bool shaped = has_shape(read.node->instruction.opcode);
  for (const Dim& d : p.dims) {
    const size_t before = dims.size();
    if (before > 6 || !digits.steps(d.count, d.stride * size, dims)) return std::nullopt;
    if (!shaped) continue;
    if (d.count == 1) dims.push_back({1, size, size});
    if (dims.size() != before + 1) return std::nullopt;
  }
  if (dims.size() > 4) return std::nullopt;
  for (const Mapped& d : dims) {
    if (d.hbm % size != 0) return std::nullopt;
    hbm.dims.push_back({d.hbm / size, static_cast<int32_t>(d.count)});
  }
  return hbm;
}

// Whether the instruction reads a strided operand as well as a dense one.
bool takes_strides(const Instruction& i, const AccessPattern& pattern, const AccessPattern& hbm) {
  if (i.opcode == Opcode::nc_matmul) return true;
  const Dim* inner = nullptr;
  for (const Dim& d : hbm.dims)
    if (d.count > 1) inner = &d;
  if (!inner || inner->stride == 1 || inner->stride == 0) return true;
  if (i.opcode == Opcode::dma_copy || i.opcode == Opcode::tensor_copy) return true;
  return i.opcode == Opcode::tensor_reduce && hbm.partition_stride == 1 && &pattern == &i.src[0];
}

class Forwarder {
 public:
  Forwarder(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots, size_t tiles)
      : nodes_(nodes), program_(program), roots_(roots), tiles_(tiles) {}

  void run(bool loads) {
    uses_ = uses_of(nodes_, program_, roots_, tiles_);
    for (size_t u = 0; u < uses_.all.size(); ++u)
      if (!uses_.all[u].on_chip()) hbm_.push_back(static_cast<int>(u));
    for (size_t t = 0; t < tiles_; ++t) store(t);
    for (size_t t = 0; loads && t < tiles_; ++t) load(t);
    sweep(nodes_);
  }

 private:
  const Use& use(int u) const { return uses_.all[static_cast<size_t>(u)]; }

  // Takes an instruction out: its operands no longer count, sweep drops it.
  void remove(Node& node, int leaf) {
    node.instruction.opcode = Opcode::event_semaphore;
    const auto range = std::ranges::equal_range(uses_.all, leaf, {}, &Use::leaf);
    for (Use& use : range) use.gone = true;
  }
  static void sweep(std::vector<Node>& nodes) {
    for (Node& node : nodes)
      if (node.is_loop()) sweep(node.body);
    std::erase_if(nodes, [](const Node& node) {
      return node.is_loop() ? node.body.empty() : node.instruction.opcode == Opcode::event_semaphore;
    });
  }
  // Lets an operand in a tile refer to HBM.
  void redirect(int u, const AccessPattern& hbm) {
    Use& use = uses_.all[static_cast<size_t>(u)];
    *use.pattern = hbm;
    use.root = roots_[static_cast<size_t>(hbm.buffer)];
    hbm_.push_back(u);
  }
  // The operands of one instruction.
  std::span<const Use> of_leaf(int leaf) const {
    const auto range = std::ranges::equal_range(uses_.all, leaf, {}, &Use::leaf);
    return {range.begin(), range.end()};
  }

  // HBM accesses of other instructions between two leaves that may touch the bytes of `at`. `in_loop`: the first leaf lies
  // outside loops that the second is in, so that everything in those loops counts.
  bool disturbed(const Use& at, const Use& from, const Use& to, bool writes_only) const {
    const size_t shared = common_loops(from, to);
    int begin = from.leaf, end = to.leaf;
    if (to.loops.size() > shared) {
      const Loop& loop = uses_.loops[static_cast<size_t>(to.loops[shared])];
      end = std::max(end, loop.end - 1);
    }
    for (const int u : hbm_) {
      const Use& other = use(u);
      if (other.gone || other.leaf <= begin || other.leaf > end) continue;
      if (other.leaf == to.leaf && to.loops.size() == shared) continue;
      if (other.node == at.node || (writes_only && !other.writes)) continue;
      if (other.root != at.root) continue;
      if (may_conflict(uses_, other, at, std::min(shared, common_loops(other, at)), program_)) return true;
    }
    return false;
  }

  void load(size_t tile) {
    std::vector<LoadMap> maps;
    std::vector<const Use*> writes, reads;
    std::vector<int> read_numbers;
    for (const int u : uses_.of_tile[tile]) {
      const Use& x = use(u);
      if (x.gone || !x.on_chip()) continue;
      if (x.writes && x.reads) return;
      if (x.reads) read_numbers.push_back(u);
      (x.writes ? writes : reads).push_back(&x);
    }
    if (writes.empty()) return;
    for (const Use* write : writes) {
      if (!is_load(write->node->instruction)) return;
      std::optional<LoadMap> map = map_of(*write);
      if (!map) return;
      maps.push_back(std::move(*map));
    }
    // Every byte is loaded once; all loads stand in the same place of the loop nest.
    for (const Use* write : writes)
      if (!(write->loops == writes[0]->loops)) return;
    for (size_t a = 0; a < writes.size(); ++a)
      for (size_t b = a + 1; b < writes.size(); ++b)
        if (isa::overlap(isa::byte_set(*writes[a]->pattern), isa::byte_set(*writes[b]->pattern))) return;
    maps = join(std::move(maps));
    std::vector<AccessPattern> replaced(reads.size());
    for (size_t r = 0; r < reads.size(); ++r) {
      const Use& read = *reads[r];
      // The source's address is that of the reader's iteration.
      if (common_loops(*writes[0], read) < writes[0]->loops.size()) return;
      std::optional<AccessPattern> hbm;
      for (const LoadMap& map : maps)
        if ((hbm = translate(map, read, uses_))) break;
      if (!hbm || !takes_strides(read.node->instruction, *read.pattern, *hbm)) return;
      for (const Use* write : writes) {
        const Use* source = nullptr;
        for (const Use& other : of_leaf(write->leaf))
          if (!other.on_chip()) source = &other;
        if (read.leaf < write->leaf || disturbed(*source, *write, read, true)) return;
        // The reader's own result must not fall on what it reads, except on the very same elements.
        for (const Use& own : of_leaf(read.leaf))
          if (own.writes && !own.on_chip() && own.root == source->root &&
              !in_place(read.node->instruction, *own.pattern, *hbm))
            return;
      }
      replaced[r] = *hbm;
    }
    for (size_t r = 0; r < reads.size(); ++r) redirect(read_numbers[r], replaced[r]);
    for (const Use* write : writes) remove(*write->node, write->leaf);
  }

  // Element-wise instructions may write what they read.
  static bool in_place(const Instruction& i, const AccessPattern& w, const AccessPattern& read) {
    switch (i.opcode) {
      case Opcode::tensor_tensor: case Opcode::tensor_scalar: case Opcode::scalar_tensor_tensor: case Opcode::activation:
      case Opcode::reciprocal: case Opcode::tensor_copy: case Opcode::dma_copy: break;
      default: return false;
    }
    return w.dtype == read.dtype && w.offset == read.offset && w.partitions == read.partitions &&
           w.partition_stride == read.partition_stride && dims_of(w) == dims_of(read) && w.terms == read.terms;
  }

  static bool writes_a_stream(Opcode opcode) {
    switch (opcode) {
      case Opcode::tensor_tensor: case Opcode::tensor_scalar: case Opcode::scalar_tensor_tensor: case Opcode::activation:
      case Opcode::reciprocal: case Opcode::tensor_copy: case Opcode::select: case Opcode::memset: case Opcode::tensor_reduce:
      case Opcode::dma_gather: case Opcode::iota: case Opcode::affine_select: case Opcode::gpsimd_kernel: case Opcode::nc_matmul:
        return true;
      default: return false;
    }
  }

  // A tile that is only filled and then stored: what fills it writes to where it goes.
  void store(size_t tile) {
    std::vector<int> writes;
    const Use* read = nullptr;
    for (const int u : uses_.of_tile[tile]) {
      const Use& x = use(u);
      if (x.gone || !x.on_chip()) continue;
      if (x.writes ? x.reads : read != nullptr) return;
      if (x.writes) writes.push_back(u);
      else read = &x;
    }
    if (writes.empty() || !read || !is_store(read->node->instruction)) return;
    const AccessPattern& from = read->node->instruction.src[0];
    const AccessPattern& to = read->node->instruction.dst;
    if (!from.terms.empty() || to.partitions != from.partitions || to.free_elements() != from.free_elements()) return;
    LoadMap map;  // the transfer read backwards: where each byte of the tile goes
    map.partition = from.partition;
    map.partitions = from.partitions;
    map.base = from.offset;
    map.partition_step = to.partition_stride * size_of(to.dtype);
    map.source = to;
    if (!common(dims_of(from), dims_of(to), map.dims)) return;
    for (const Mapped& d : map.dims)
      if (d.row <= 0) return;
    merge(map.dims);
    const Use* destination = nullptr;
    for (const Use& other : of_leaf(read->leaf))
      if (other.writes) destination = &other;
    std::vector<AccessPattern> targets;
    for (const int u : writes) {
      const Use& write = use(u);
      const Instruction& producer = write.node->instruction;
      if (read->leaf < write.leaf || !(write.loops == read->loops) || !write.pattern->terms.empty() ||
          !writes_a_stream(producer.opcode))
        return;
      std::optional<AccessPattern> target = translate(map, write, uses_);
      if (!target || !suits(producer, *write.pattern, *target) || disturbed(*destination, write, *read, false)) return;
      for (const Use& own : of_leaf(write.leaf))
        if (!own.on_chip() && own.root == destination->root &&
            may_conflict(uses_, own, *destination, own.loops.size(), program_) && !in_place(producer, *target, *own.pattern))
          return;
      targets.push_back(*target);
    }
    for (size_t w = 0; w < writes.size(); ++w) redirect(writes[w], targets[w]);
    remove(*read->node, read->leaf);
  }

  // Whether the producer can write `target`, which holds the elements of `made` in their order.
  static bool suits(const Instruction& producer, const AccessPattern& made, AccessPattern& target) {
    if (producer.opcode == Opcode::gpsimd_kernel) {  // operands keep their outer dimensions
      if (target.dims.size() > 1) return false;
      int64_t stride = target.dims.empty() ? 1 : target.dims[0].stride;
      target.dims = made.dims;
      for (size_t d = target.dims.size(); d-- > 0;) {
        target.dims[d].stride = stride;
        stride *= target.dims[d].count;
      }
      return true;
    }
    return target.dims.empty() || target.dims.back().stride == 1 || producer.opcode == Opcode::tensor_copy;
  }

  std::vector<Node>& nodes_;
  const isa::Program& program_;
  const std::vector<int>& roots_;
  const size_t tiles_;
  Uses uses_;
  std::vector<int> hbm_;  // uses in HBM
};

}  // namespace

void forward_copies(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots, size_t tiles) {
  Forwarder(nodes, program, roots, tiles).run(true);
}

void forward_stores(std::vector<Node>& nodes, const isa::Program& program, const std::vector<int>& roots, size_t tiles) {
  Forwarder(nodes, program, roots, tiles).run(false);
}

}  // namespace opentrn::exec::host
