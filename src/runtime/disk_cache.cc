#include "runtime/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "isa/serialize.h"

#ifndef OPENTRN_VERSION
#define OPENTRN_VERSION "0"
#endif

namespace opentrn::runtime {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'o', 'p', 'e', 'n', 't', 'r', 'n', 'p'};
constexpr uint32_t kFileVersion = 1;
constexpr const char* kExtension = ".trnprog";
constexpr const char* kTemporary = ".tmp";

struct Header {
  char magic[8];
  uint32_t file_version = kFileVersion;
  uint32_t isa_version = isa::Program::kVersion;
  Key key;
  uint64_t program_bytes = 0, time_bytes = 0;
};
static_assert(sizeof(Header) == 48);

// ---- ProgramTime as a list of integers
template <typename T, typename Visit>
void visit_core(T& core, Visit visit) {
  visit(core.end_ps);
  for (auto& engine : core.engines) {
    visit(engine.busy_ps);
    visit(engine.wait_ps);
    visit(engine.instructions);
  }
  visit(core.dma_active_ps);
  visit(core.dma_bytes);
  visit(core.hbm_read_bytes);
  visit(core.hbm_write_bytes);
  visit(core.dma_transfers);
  visit(core.matmul_flops);
  visit(core.throttled_ps);
}

std::vector<int64_t> pack(const cost::ProgramTime& time) {
  std::vector<int64_t> words{time.total_ps, time.events, time.skipped_events, static_cast<int64_t>(time.cores.size())};
  for (const cost::CoreTime& core : time.cores) visit_core(core, [&](int64_t value) { words.push_back(value); });
  return words;
}

bool unpack(std::span<const int64_t> words, cost::ProgramTime& time) {
  size_t next = 4;
  if (words.size() < next || words[3] < 0 || words[3] > 64) return false;
  time.total_ps = words[0];
  time.events = words[1];
  time.skipped_events = words[2];
  time.cores.resize(static_cast<size_t>(words[3]));
  for (cost::CoreTime& core : time.cores)
    visit_core(core, [&](int64_t& value) { value = next < words.size() ? words[next] : 0, ++next; });
  return next == words.size();
}

Key checksum(std::span<const std::byte> bytes) {
  Hash hash;
  hash.add(bytes);
  return hash.finish();
}

std::vector<std::byte> encode(const Key& key, const DiskEntry& entry) {
  const std::vector<std::byte> program = isa::serialize(*entry.program);
  const std::vector<int64_t> time = pack(entry.time);
  Header header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key = key;
  header.program_bytes = program.size();
  header.time_bytes = time.size() * sizeof(int64_t);
  std::vector<std::byte> bytes;
  auto append = [&](const void* data, size_t size) {
    const auto* first = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), first, first + size);
  };
  append(&header, sizeof header);
  append(time.data(), header.time_bytes);
  append(program.data(), program.size());
  const Key sum = checksum(bytes);
  append(&sum, sizeof sum);
  return bytes;
}

std::optional<DiskEntry> decode(const Key& key, std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof header + sizeof(Key)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  const uint64_t payload = bytes.size() - sizeof header - sizeof(Key);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.file_version != kFileVersion ||
      header.isa_version != isa::Program::kVersion || !(header.key == key) || header.time_bytes > payload ||
      header.time_bytes % sizeof(int64_t) != 0 || header.program_bytes != payload - header.time_bytes)
    return std::nullopt;
  Key sum;
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  if (!(sum == checksum(bytes.first(bytes.size() - sizeof sum)))) return std::nullopt;
  std::vector<int64_t> words(header.time_bytes / sizeof(int64_t));
  std::memcpy(words.data(), bytes.data() + sizeof header, header.time_bytes);
  DiskEntry entry;
  if (!unpack(words, entry.time)) return std::nullopt;
  try {
    entry.program = std::make_shared<const isa::Program>(
        isa::deserialize(bytes.subspan(sizeof header + header.time_bytes, header.program_bytes)));
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return entry;
}

// The whole file; false with errno set.
bool read_file(const std::string& path, std::vector<std::byte>& bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat info {};
  bool ok = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (ok) {
    bytes.resize(static_cast<size_t>(info.st_size));
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t got = read(fd, bytes.data() + done, bytes.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    bytes.resize(done);
    futimens(fd, nullptr);  // its last use; without the right to do so the file only looks older
  }
  close(fd);
  return ok;
}

// Returns 0 or an errno.
int write_file(const std::string& path, std::span<const std::byte> bytes) {
  static std::atomic<uint64_t> counter{0};
  const fs::path target(path);
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  if (error) return error.value();
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string temporary = fmt::format("{}/.{}.{}.{:x}.{}{}", target.parent_path().string(),
                                            target.stem().string().substr(0, 8), getpid(), now, counter++, kTemporary);
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return errno;
  int failure = 0;
  size_t done = 0;
  while (done < bytes.size() && !failure) {
    const ssize_t wrote = write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote >= 0) done += static_cast<size_t>(wrote);
    else if (errno != EINTR) failure = errno;
  }
  if (close(fd) != 0 && !failure) failure = errno;
  if (!failure && rename(temporary.c_str(), path.c_str()) != 0) failure = errno;
  if (failure) unlink(temporary.c_str());
  return failure;
}

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

struct File {
  fs::path path;
  int64_t bytes = 0;
  fs::file_time_type used;
};

// Programs of all versions below the cache's folder, and temporary files that no process has renamed for an hour.
// Only names of our making are touched: the folder may be one that the user keeps other things in.
void scan(const fs::path& folder, std::vector<File>& programs, std::vector<fs::path>& leftovers) {
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator version(folder, error), end; !error && version != end; version.increment(error)) {
    if (version->path().filename().string().rfind("v", 0) != 0) continue;
    std::error_code inner;
    for (fs::directory_iterator part(version->path(), inner); !inner && part != end; part.increment(inner)) {
      const std::string name = part->path().filename().string();
      if (name.size() != 2 || !is_hex(name)) continue;
      std::error_code innermost;
      for (fs::directory_iterator file(part->path(), innermost); !innermost && file != end; file.increment(innermost)) {
        std::error_code gone;
        const fs::path& path = file->path();
        const auto used = fs::last_write_time(path, gone);
        const auto bytes = gone ? 0 : fs::file_size(path, gone);
        if (gone) continue;
        if (path.extension() == kExtension) programs.push_back({path, static_cast<int64_t>(bytes), used});
        else if (path.extension() == kTemporary && now - used > std::chrono::hours(1)) leftovers.push_back(path);
      }
    }
  }
}

}  // namespace

struct DiskCache::State {
  std::string folder;
  int64_t max_bytes = 0;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<Key, DiskEntry>> pending;
  bool busy = false, stopping = false, disabled = false;
  int64_t unchecked_bytes = 0;  // written since the size was last checked
  bool checked = false;
  DiskStats stats;
  std::thread writer;

  std::string path(const Key& key) const {
    const std::string hex = key.hex();
    return fmt::format("{}/v{}/{}/{}{}", folder, OPENTRN_VERSION, hex.substr(0, 2), hex, kExtension);
  }

  void write(const Key& key, const DiskEntry& entry) {
    std::vector<std::byte> bytes;
    try {
      bytes = encode(key, entry);
    } catch (const std::exception& error) {
      disable(fmt::format("a program cannot be serialized ({})", error.what()));
      return;
    }
    if (static_cast<int64_t>(bytes.size()) > max_bytes) return;
    if (const int failure = write_file(path(key), bytes)) {
      disable(std::strerror(failure));
      return;
    }
    bool check = false;
    {
      std::lock_guard lock(mutex);
      ++stats.writes;
      unchecked_bytes += static_cast<int64_t>(bytes.size());
      check = !checked || unchecked_bytes > max_bytes / 16;
      if (check) unchecked_bytes = 0;
      checked = true;
    }
    if (check) limit_size();
  }

  void disable(const std::string& reason) {
    {
      std::lock_guard lock(mutex);
      if (disabled) return;
      disabled = true;
    }
    fmt::print(stderr,
               "opentrn: cannot write to the program cache {}: {}; every process compiles its programs anew. "
               "Set OPENTRN_CACHE_DIR to a writable folder with space, or OPENTRN_CACHE=0 to do without.\n",
               folder, reason);
  }

  void limit_size() {
    std::vector<File> programs;
    std::vector<fs::path> leftovers;
    scan(folder, programs, leftovers);
    std::error_code error;
    for (const fs::path& path : leftovers) fs::remove(path, error);
    int64_t total = 0;
    for (const File& file : programs) total += file.bytes;
    if (total <= max_bytes) return;
    std::sort(programs.begin(), programs.end(), [](const File& a, const File& b) { return a.used < b.used; });
    int64_t removed = 0;
    for (const File& file : programs) {
      if (total <= max_bytes - max_bytes / 10) break;
      if (fs::remove(file.path, error)) ++removed;
      total -= file.bytes;
    }
    std::lock_guard lock(mutex);
    stats.evicted += removed;
  }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stopping || !pending.empty(); });
      if (pending.empty()) return;
      auto [key, entry] = std::move(pending.front());
      pending.pop_front();
      busy = true;
      const bool skip = disabled;
      lock.unlock();
      if (!skip) write(key, entry);
      entry = {};
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }
};

DiskCache::DiskCache(std::string folder, int64_t max_bytes) : state_(std::make_unique<State>()) {
  state_->folder = std::move(folder);
  state_->max_bytes = max_bytes;
}

DiskCache::~DiskCache() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
  }
  if (state_->writer.joinable()) state_->writer.join();
}

std::string DiskCache::path(const Key& key) const { return state_->path(key); }

std::optional<DiskEntry> DiskCache::load(const Key& key) {
  const std::string path = state_->path(key);
  std::vector<std::byte> bytes;
  if (!read_file(path, bytes)) return std::nullopt;
  std::optional<DiskEntry> entry = decode(key, bytes);
  if (!entry) unlink(path.c_str());
  std::lock_guard lock(state_->mutex);
  ++(entry ? state_->stats.hits : state_->stats.rejected);
  return entry;
}

void DiskCache::store(const Key& key, DiskEntry entry) {
  std::lock_guard lock(state_->mutex);
  if (state_->disabled || state_->stopping) return;
  state_->pending.emplace_back(key, std::move(entry));
  if (!state_->writer.joinable()) state_->writer = std::thread([state = state_.get()] { state->run(); });
  state_->changed.notify_all();
}

void DiskCache::flush() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->pending.empty() && !state_->busy; });
}

void DiskCache::clear() {
  flush();
  std::vector<File> programs;
  std::vector<fs::path> leftovers;
  scan(state_->folder, programs, leftovers);
  std::error_code error;
  for (const File& file : programs) fs::remove(file.path, error);
}

DiskStats DiskCache::stats() const {
  std::lock_guard lock(state_->mutex);
  return state_->stats;
}

}  // namespace opentrn::runtime
