#include "runtime/build_id.h"

#include <link.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>

#include <fmt/format.h>

namespace opentrn::runtime {
namespace {

struct Search {
  uintptr_t address = 0;
  std::string id;
  std::string path;
};

int visit(dl_phdr_info* info, size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  bool holds = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const uintptr_t start = info->dlpi_addr + segment.p_vaddr;
    holds |= segment.p_type == PT_LOAD && search.address >= start && search.address < start + segment.p_memsz;
  }
  if (!holds) return 0;
  search.path = info->dlpi_name && *info->dlpi_name ? info->dlpi_name : "/proc/self/exe";
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    auto* note = reinterpret_cast<const unsigned char*>(info->dlpi_addr + segment.p_vaddr);
    const unsigned char* end = note + segment.p_memsz;
    while (note + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) header;
      std::memcpy(&header, note, sizeof header);
      const unsigned char* name = note + sizeof header;
      const unsigned char* data = name + (header.n_namesz + 3) / 4 * 4;
      if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        for (uint32_t k = 0; k < header.n_descsz; ++k) search.id += fmt::format("{:02x}", data[k]);
        return 1;
      }
      note = data + (header.n_descsz + 3) / 4 * 4;
    }
  }
  return 1;
}

}  // namespace

const std::string& build_id() {
  static const std::string& id = *new std::string([] {
    Search search{reinterpret_cast<uintptr_t>(&visit), {}, {}};
    dl_iterate_phdr(visit, &search);
    struct stat file {};
    if (search.id.empty() && stat(search.path.c_str(), &file) == 0)
      search.id = fmt::format("{}-{}.{}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
    return search.id;
  }());
  return id;
}

}  // namespace opentrn::runtime
