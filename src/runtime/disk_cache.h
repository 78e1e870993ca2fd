// Programs on disk: one file per key, written in the background, shared by any number of processes.
//
// A file is written under another name in its own folder and renamed, so that readers see it whole or not at all;
// there are no locks. A file that is torn, of another version or of another key is removed and counted. When the files
// exceed the size limit, those that were used least recently go. Whatever fails here costs only a compilation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cost/timing.h"
#include "isa/program.h"
#include "runtime/hash.h"

namespace opentrn::runtime {

struct DiskEntry {
  std::shared_ptr<const isa::Program> program;
  cost::ProgramTime time;
};

struct DiskStats {
  int64_t hits = 0, writes = 0, rejected = 0, evicted = 0;
};

class DiskCache {
 public:
  // `folder` is made when the first file is written.
  DiskCache(std::string folder, int64_t max_bytes);
  ~DiskCache();  // writes what is pending
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  std::optional<DiskEntry> load(const Key& key);
  void store(const Key& key, DiskEntry entry);  // returns at once
  void flush();                                 // until pending writes are done
  void clear();                                 // removes all programs of all versions
  DiskStats stats() const;
  // <folder>/v<version>/<2 hex>/<key>.trnprog
  std::string path(const Key& key) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace opentrn::runtime
