#include "isa/serialize.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"
#include "isa/hash.h"

namespace opentrn::isa {
namespace {

// Layout: magic, version (4 bytes), body, checksum (8 bytes, little endian) of all that precedes it.
// Integers in the body are base-128 varints, signed ones zigzag; each record begins with a mask of the fields that
// differ from their defaults.
constexpr char kMagic[8] = {'O', 'P', 'N', 'T', 'R', 'N', 'P', '\n'};
constexpr size_t kHeaderBytes = sizeof kMagic + 4, kChecksumBytes = 8;

uint64_t zigzag(int64_t v) { return static_cast<uint64_t>(v) << 1 ^ static_cast<uint64_t>(v >> 63); }
int64_t unzigzag(uint64_t v) { return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1); }

class Writer {
 public:
  explicit Writer(bool origins) : origins_(origins) {}

  static constexpr bool reading = false;
  std::vector<std::byte> bytes;

  bool origins() const { return origins_; }
  void raw(const void* data, size_t size) {
    const auto* p = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), p, p + size);
  }
  void varint(uint64_t v) {
    for (; v >= 128; v >>= 7) bytes.push_back(static_cast<std::byte>(v | 128));
    bytes.push_back(static_cast<std::byte>(v));
  }
  template <typename T>
  void integer(T& v) {
    varint(zigzag(v));
  }
  template <typename E>
  void enumeration(E& v, E) {
    bytes.push_back(static_cast<std::byte>(v));
  }
  void real(double& v) { raw(&v, sizeof v); }
  void flag(bool& v) { bytes.push_back(static_cast<std::byte>(v)); }
  void text(std::string& s) {
    varint(s.size());
    raw(s.data(), s.size());
  }
  void blob(std::vector<std::byte>& b) {
    varint(b.size());
    raw(b.data(), b.size());
  }
  template <typename List, typename F>
  void list(List& items, const F& f) {
    varint(items.size());
    for (auto& item : items) f(item);
  }
  uint64_t mask(uint64_t present) {
    varint(present);
    return present;
  }

 private:
  bool origins_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  static constexpr bool reading = true;

  static bool origins() { return true; }
  bool done() const { return at_ == end_; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }

  [[noreturn]] static void torn(const char* what) {
    throw UserError(fmt::format("the serialised program is damaged: {}", what));
  }
  void raw(void* data, size_t size) {
    if (size > left()) torn("it ends early");
    std::memcpy(data, at_, size);
    at_ += size;
  }
  uint8_t byte() {
    if (at_ == end_) torn("it ends early");
    return static_cast<uint8_t>(*at_++);
  }
  uint64_t varint() {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint64_t b = byte();
      if (shift == 63 && b > 1) break;
      v |= (b & 127) << shift;
      if (b < 128) return v;
    }
    torn("an integer has more than 64 bits");
  }
  template <typename T>
  void integer(T& v) {
    const int64_t value = unzigzag(varint());
    if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max())
      torn("an integer is out of range");
    v = static_cast<T>(value);
  }
  template <typename E>
  void enumeration(E& v, E last) {
    const uint8_t value = byte();
    if (value > static_cast<uint8_t>(last)) torn("an enumeration has an unknown value");
    v = static_cast<E>(value);
  }
  void real(double& v) { raw(&v, sizeof v); }
  void flag(bool& v) {
    const uint8_t value = byte();
    if (value > 1) torn("a flag is neither 0 nor 1");
    v = value == 1;
  }
  // An element takes at least a byte, so a count beyond what is left is damage, found before memory is asked for.
  size_t count(size_t limit) {
    const uint64_t n = varint();
    if (n > left()) torn("a list is longer than the bytes that are left");
    if (n > limit) torn("a list is too long");
    return static_cast<size_t>(n);
  }
  void text(std::string& s) {
    const size_t n = count(std::numeric_limits<size_t>::max());
    s.assign(reinterpret_cast<const char*>(at_), n);
    at_ += n;
  }
  void blob(std::vector<std::byte>& b) {
    const size_t n = count(std::numeric_limits<size_t>::max());
    b.assign(at_, at_ + n);
    at_ += n;
  }
  template <typename T, typename F>
  void list(std::vector<T>& items, const F& f) {
    items.clear();
    for (size_t n = count(std::numeric_limits<size_t>::max()); n > 0; --n) f(items.emplace_back());
  }
  template <typename T, size_t N, typename F>
  void list(SmallVector<T, N>& items, const F& f) {
    items.resize(count(N));
    for (T& item : items) f(item);
  }
  uint64_t mask(uint64_t) { return varint(); }

 private:
  const std::byte* at_;
  const std::byte* end_;
};

// Visits one field if its bit is in the mask; the mask is computed from the fields when writing.
template <typename IO>
class Fields {
 public:
  explicit Fields(IO& io) : io_(io) {}
  void present(bool is) { computed_ |= static_cast<uint64_t>(is) << n_++; }
  void begin() {
    mask_ = io_.mask(computed_);
    if (IO::reading && n_ < 64 && mask_ >> n_ != 0) Reader::torn("a record has unknown fields");
    n_ = 0;
  }
  bool next() { return mask_ >> n_++ & 1; }

 private:
  IO& io_;
  uint64_t computed_ = 0, mask_ = 0;
  int n_ = 0;
};

template <typename IO>
struct Codec {
  IO& io;

  void dim(Dim& d) {
    io.integer(d.stride);
    io.integer(d.count);
  }
  void term(Term& t) {
    io.integer(t.reg);
    io.integer(t.bytes);
  }

  void access_pattern(AccessPattern& ap) {
    io.enumeration(ap.memory, Memory::psum);
    io.enumeration(ap.dtype, DType::c128);
    io.integer(ap.buffer);
    io.integer(ap.slot);
    io.integer(ap.partition);
    io.integer(ap.partitions);
    io.integer(ap.offset);
    io.integer(ap.partition_stride);
    io.list(ap.dims, [&](Dim& d) { dim(d); });
    io.list(ap.terms, [&](Term& t) { term(t); });
  }

  void scalar(Scalar& s) {
    io.enumeration(s.kind, Scalar::Kind::tile);
    if (s.kind == Scalar::Kind::immediate) io.real(s.value);
    if (s.kind == Scalar::Kind::argument) io.integer(s.argument);
    if (s.kind == Scalar::Kind::tile) access_pattern(s.tile);
  }

  void signal(Signal& s) {
    io.integer(s.semaphore);
    io.integer(s.count);
  }

  void instruction(Instruction& i) {
    io.enumeration(i.opcode, Opcode::barrier);
    io.enumeration(i.engine, Engine::sync);
    // Without origins, the same program from another call site has the same bytes.
    const bool origin = io.origins() && i.origin != -1;
    const bool flags = i.reverse0 || i.reverse1 || i.accumulate || i.negate || i.skip_out_of_bounds;
    Fields<IO> f(io);
    f.present(i.queue != -1);
    f.present(i.op0 != AluOp::none);
    f.present(i.op1 != AluOp::none);
    f.present(i.act != ActFn::copy);
    f.present(flags);
    f.present(i.axes != 1);
    f.present(i.reg != -1);
    f.present(i.pool != -1);
    f.present(i.kernel != -1);
    f.present(origin);
    f.present(i.count != 0);
    f.present(i.rows != 0);
    f.present(i.row_bytes != 0);
    f.present(i.channel_multiplier != 0);
    f.present(!i.pattern.empty());
    f.present(!i.pattern_terms.empty());
    f.present(static_cast<bool>(i.s0));
    f.present(static_cast<bool>(i.s1));
    f.present(static_cast<bool>(i.dst));
    f.present(static_cast<bool>(i.dst1));
    f.present(!i.src.empty());
    f.present(!i.waits.empty());
    f.present(!i.posts.empty());
    f.begin();
    if (f.next()) io.integer(i.queue);
    if (f.next()) io.enumeration(i.op0, AluOp::bypass);
    if (f.next()) io.enumeration(i.op1, AluOp::bypass);
    if (f.next()) io.enumeration(i.act, ActFn::erfc);
    if (f.next())
      for (bool* b : {&i.reverse0, &i.reverse1, &i.accumulate, &i.negate, &i.skip_out_of_bounds}) io.flag(*b);
    if (f.next()) io.integer(i.axes);
    if (f.next()) io.integer(i.reg);
    if (f.next()) io.integer(i.pool);
    if (f.next()) io.integer(i.kernel);
    if (f.next()) io.integer(i.origin);
    if (f.next()) io.integer(i.count);
    if (f.next()) io.integer(i.rows);
    if (f.next()) io.integer(i.row_bytes);
    if (f.next()) io.integer(i.channel_multiplier);
    if (f.next()) io.list(i.pattern, [&](Dim& d) { dim(d); });
    if (f.next()) io.list(i.pattern_terms, [&](Term& t) { term(t); });
    if (f.next()) scalar(i.s0);
    if (f.next()) scalar(i.s1);
    if (f.next()) access_pattern(i.dst);
    if (f.next()) access_pattern(i.dst1);
    if (f.next()) io.list(i.src, [&](AccessPattern& ap) { access_pattern(ap); });
    if (f.next()) io.list(i.waits, [&](Signal& s) { signal(s); });
    if (f.next()) io.list(i.posts, [&](Signal& s) { signal(s); });
  }

  void kernel_instruction(KernelInstruction& k) {
    io.enumeration(k.op, KernelOp::bitcast);
    io.enumeration(k.type, KernelType::f64);
    io.enumeration(k.from, KernelType::f64);
    for (uint8_t* reg : {&k.dst, &k.a, &k.b, &k.c}) io.integer(*reg);
    Fields<IO> f(io);
    f.present(k.imm != 0 || std::signbit(k.imm));
    f.present(k.imm_int != 0);
    f.begin();
    if (f.next()) io.real(k.imm);
    if (f.next()) io.integer(k.imm_int);
  }

  void core(CoreProgram& c) {
    io.list(c.pools, [&](Pool& p) {
      io.text(p.name);
      io.enumeration(p.memory, Memory::psum);
      io.integer(p.offset);
      io.integer(p.bytes);
      io.integer(p.depth);
    });
    io.list(c.semaphores, [&](Semaphore& s) {
      io.text(s.name);
      io.integer(s.initial);
    });
    io.integer(c.loop_registers);
    io.integer(c.slot_registers);
    io.list(c.code, [&](Instruction& i) { instruction(i); });
  }

  void program(Program& p) {
    io.text(p.name);
    io.text(p.chip);
    io.integer(p.model_flops);
    io.list(p.buffers, [&](Buffer& b) {
      io.enumeration(b.kind, Buffer::Kind::constant);
      io.text(b.name);
      io.integer(b.bytes);
      io.integer(b.alias);
      io.blob(b.data);
    });
    io.list(p.scalars, [&](ScalarArgument& s) {
      io.text(s.name);
      io.enumeration(s.dtype, DType::c128);
    });
    io.list(p.kernels, [&](GpsimdKernel& k) {
      io.text(k.name);
      for (auto* code : {&k.prologue, &k.body, &k.epilogue})
        io.list(*code, [&](KernelInstruction& i) { kernel_instruction(i); });
    });
    io.list(p.cores, [&](CoreProgram& c) { core(c); });
  }
};

void write_header_and_body(Writer& writer, const Program& program) {
  writer.raw(kMagic, sizeof kMagic);
  const uint32_t version = Program::kVersion;
  writer.raw(&version, sizeof version);
  // One codec serves both directions, so it takes references; writing changes nothing.
  Codec<Writer>{writer}.program(const_cast<Program&>(program));
}

}  // namespace

std::vector<std::byte> serialize(const Program& program) {
  Writer writer(true);
  write_header_and_body(writer, program);
  const uint64_t checksum = hash128(writer.bytes).low;
  writer.raw(&checksum, sizeof checksum);
  return std::move(writer.bytes);
}

Program deserialize(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes + kChecksumBytes || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    throw UserError("these bytes are not a serialised program");
  uint32_t version;
  std::memcpy(&version, bytes.data() + sizeof kMagic, sizeof version);
  if (version != Program::kVersion)
    throw UserError(
        fmt::format("the serialised program has version {}, this opentrn reads version {}; compile it again", version,
                    Program::kVersion));
  const auto covered = bytes.first(bytes.size() - kChecksumBytes);
  uint64_t checksum;
  std::memcpy(&checksum, covered.data() + covered.size(), sizeof checksum);
  if (hash128(covered).low != checksum) Reader::torn("its checksum is wrong");
  Reader reader(covered.subspan(kHeaderBytes));
  Program program;
  Codec<Reader>{reader}.program(program);
  if (!reader.done()) Reader::torn("there are bytes behind its end");
  return program;
}

std::string digest(const Program& program) {
  Writer writer(false);
  write_header_and_body(writer, program);
  return hex(hash128(writer.bytes));
}

}  // namespace opentrn::isa
