#include <Python.h>
// The interpreter's frame layout is internal and differs between versions; other versions take the slow, public way.
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000
#define OPENTRN_READ_FRAMES 1
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#endif

#include "torch/origin.h"

#include <ATen/SequenceNumber.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace opentrn::bridge {
namespace {

// One captured place. The code object is kept alive for ever, so its address stays unique.
struct Place {
  PyCodeObject* code = nullptr;
  int32_t instruction = 0;  // byte offset, as PyCode_Addr2Line takes it
  bool backward = false;
  bool operator==(const Place&) const = default;
};
struct PlaceHash {
  size_t operator()(const Place& p) const {
    return (reinterpret_cast<uintptr_t>(p.code) >> 4) * 0x9E3779B97F4A7C15ull + static_cast<size_t>(p.instruction) * 2 +
           p.backward;
  }
};

struct Table {
  std::mutex mutex;
  std::vector<Place> places;
  std::vector<Origin> origins;  // of `places`; filled at once, so that reading them never needs the GIL
  std::unordered_map<Place, int32_t, PlaceHash> ids;
  std::unordered_map<PyCodeObject*, bool> library;  // whether a code object's file lies in a library folder
  std::vector<std::string> folders;
};
Table& table() {
  static auto* t = new Table;
  return *t;
}

class GilLock {
 public:
  GilLock() : state_(PyGILState_Ensure()) {}
  ~GilLock() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

// ---- the innermost frame outside library folders ------------------------------------------------
template <typename Value, size_t N>
struct DirectMap {
  struct Slot {
    Place key;
    Value value{};
  };
  std::array<Slot, N> slots;
  Slot& slot(const Place& key) { return slots[(PlaceHash{}(key) >> 7) & (N - 1)]; }
};

bool classify(PyCodeObject* code) {
  GilLock gil;
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (!file) PyErr_Clear();
  Table& t = table();
  std::lock_guard lock(t.mutex);
  auto [entry, inserted] = t.library.try_emplace(code, false);
  if (inserted) {
    Py_INCREF(reinterpret_cast<PyObject*>(code));
    for (const std::string& folder : t.folders)
      entry->second |= file && std::string_view(file).starts_with(folder);
  }
  return entry->second;
}

bool in_library(PyCodeObject* code) {
  thread_local DirectMap<bool, 1024> known;
  auto& slot = known.slot({code, 0, false});
  if (slot.key.code != code) {
    slot.value = classify(code);
    slot.key.code = code;
  }
  return slot.value;
}

Origin look_up(const Place& place) {
  GilLock gil;
  Origin result;
  if (const char* file = PyUnicode_AsUTF8(place.code->co_filename)) result.file = file;
  if (const char* name = PyUnicode_AsUTF8(place.code->co_qualname)) result.function = name;
  PyErr_Clear();
  result.line = PyCode_Addr2Line(place.code, place.instruction);
  result.backward = place.backward;
  return result;
}

int32_t add(const Place& place) {
  Table& t = table();
  Origin found;
  bool known = false;
  {
    std::lock_guard lock(t.mutex);
    if (auto entry = t.ids.find(place); entry != t.ids.end()) return entry->second;
    Place forward = place;
    forward.backward = false;
    if (auto entry = t.ids.find(forward); place.backward && entry != t.ids.end()) {
      found = t.origins[entry->second];
      found.backward = known = true;
    }
  }
  if (!known) found = look_up(place);
  std::lock_guard lock(t.mutex);
  auto [entry, inserted] = t.ids.try_emplace(place, static_cast<int32_t>(t.places.size()));
  if (inserted) {
    t.places.push_back(place);
    t.origins.push_back(std::move(found));
  }
  return entry->second;
}

int32_t intern(const Place& place) {
  thread_local DirectMap<int32_t, 2048> known;
  auto& slot = known.slot(place);
  if (slot.key != place) {
    slot.value = add(place);
    slot.key = place;
  }
  return slot.value;
}

#if OPENTRN_READ_FRAMES
#if PY_VERSION_HEX >= 0x030D0000
_PyInterpreterFrame* current_frame(PyThreadState* state) { return state->current_frame; }
PyCodeObject* code_of(_PyInterpreterFrame* frame) {
  PyObject* code = frame->f_executable;
  return code && PyCode_Check(code) ? reinterpret_cast<PyCodeObject*>(code) : nullptr;
}
int32_t instruction_of(_PyInterpreterFrame* frame, PyCodeObject* code) {
  return static_cast<int32_t>(reinterpret_cast<char*>(frame->instr_ptr) - code->co_code_adaptive);
}
#else
_PyInterpreterFrame* current_frame(PyThreadState* state) { return state->cframe->current_frame; }
PyCodeObject* code_of(_PyInterpreterFrame* frame) {
#if PY_VERSION_HEX >= 0x030C0000
  if (frame->owner == FRAME_OWNED_BY_CSTACK) return nullptr;
#endif
  return frame->f_code;
}
int32_t instruction_of(_PyInterpreterFrame* frame, PyCodeObject* code) {
  return static_cast<int32_t>(reinterpret_cast<char*>(frame->prev_instr) - code->co_code_adaptive);
}
#endif

// The thread's own frames cannot change while it is here, so they may be read without the GIL.
bool find_place(Place& place) {
  PyThreadState* state = PyGILState_GetThisThreadState();
  if (!state) return false;
  Place innermost;
  int depth = 0;
  for (_PyInterpreterFrame* frame = current_frame(state); frame && depth < 100; frame = frame->previous, ++depth) {
    PyCodeObject* code = code_of(frame);
    if (!code) continue;
    bool library = in_library(code);
    if (!library || !innermost.code) {
      Place found{code, instruction_of(frame, code), false};
      if (!library) {
        place = found;
        return true;
      }
      innermost = found;
    }
  }
  place = innermost;
  return place.code != nullptr;
}
#else
bool find_place(Place& place) {
  PyThreadState* state = PyGILState_GetThisThreadState();
  if (!state || Py_IsFinalizing()) return false;
  GilLock gil;
  PyFrameObject* frame = PyThreadState_GetFrame(state);
  Place innermost;
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    bool library = in_library(code);
    Place found{code, PyFrame_GetLasti(frame), false};
    Py_DECREF(reinterpret_cast<PyObject*>(code));  // kept alive by `in_library`
    if (!innermost.code || !library) innermost = found;
    PyFrameObject* back = library ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(reinterpret_cast<PyObject*>(frame));
    frame = back;
  }
  place = innermost;
  return place.code != nullptr;
}
#endif

// ---- backward: the forward operator's line, by sequence number -----------------------------------
struct Remembered {
  std::atomic<uint64_t> sequence{~0ull};
  std::atomic<int32_t> origin{-1};
};
constexpr uint64_t kRemembered = 1 << 17;

Remembered* remembered() {
  static auto* all = new std::array<Remembered, kRemembered>;
  return all->data();
}

int32_t origin_of_backward() {
  auto node = torch::autograd::get_current_node();
  if (!node) return -1;
  uint64_t sequence = node->sequence_nr();
  // A node of a view runs no operator in forward: its origin is that of the next operator that did.
  for (uint64_t s = sequence; s < sequence + 8; ++s) {
    Remembered& entry = remembered()[s % kRemembered];
    if (entry.sequence.load(std::memory_order_relaxed) != s) continue;
    int32_t id = entry.origin.load(std::memory_order_relaxed);
    if (id < 0) return -1;
    Place place;
    {
      Table& t = table();
      std::lock_guard lock(t.mutex);
      place = t.places[id];
    }
    place.backward = true;
    return intern(place);
  }
  return -1;
}

}  // namespace

int32_t capture_origin() {
  Place place;
  return find_place(place) ? intern(place) : origin_of_backward();
}

int32_t capture_origin_for_autograd() {
  int32_t id = capture_origin();
  if (id >= 0 && c10::GradMode::is_enabled()) {
    uint64_t next = at::sequence_number::peek();
    if (next) {
      Remembered& entry = remembered()[(next - 1) % kRemembered];
      if (entry.sequence.load(std::memory_order_relaxed) != next - 1) {
        entry.origin.store(id, std::memory_order_relaxed);
        entry.sequence.store(next - 1, std::memory_order_relaxed);
      }
    }
  }
  return id;
}

Origin origin(int32_t id) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  if (id < 0 || id >= static_cast<int32_t>(t.origins.size())) return {};
  return t.origins[id];
}

std::string describe_origin(int32_t id) {
  Origin o = origin(id);
  if (o.file.empty()) return "unknown";
  return o.file + ":" + std::to_string(o.line) + " in " + o.function + (o.backward ? " (backward)" : "");
}

int32_t origin_count() {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  return static_cast<int32_t>(t.places.size());
}

void add_library_folder(const std::string& folder) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  t.folders.push_back(folder);
  // Code that was classified before keeps its answer; the folders are named before the first operator runs.
}

}  // namespace opentrn::bridge
