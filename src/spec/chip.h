// A chip as data: clocks, sizes, rates, start-up costs, limits and dispatch costs of one Trainium generation,
// read from chips/<name>.json. Every number carries its unit (in the field's name), source and grade.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <string>
#include <vector>

namespace opentrn::spec {

enum class Grade : uint8_t { documented, measured, estimated };
std::string_view name_of(Grade grade);

// Where a number comes from: its path in the chip file ("tensor.ghz"), value, unit, source and grade.
struct Parameter {
  std::string path, unit, source, note;
  double value = 0;
  Grade grade = Grade::estimated;
};

// completion_ns = startup_ns + slope_cycles * N / clock; issue occupancy = max(min_issue_cycles, slope_cycles * N) / clock.
struct Law {
  double startup_ns = 0;
  double cycles_per_element = 1;
};

struct EngineSpec {
  double ghz = 0;
  double min_issue_cycles = 64;  // MIN_II
};

struct Chip {
  std::string name;        // "trn1", "trn2", "trn3"
  std::string title;       // "Trainium2 (NeuronCore-v3)"
  std::string hash;        // of the chip file's contents; enters every program's key
  int cores_per_chip = 8;  // physical NeuronCores
  std::vector<int> lnc_allowed;
  int lnc_default = 2;

  // Memories
  int partitions = 128;
  int64_t sbuf_bytes_per_partition = 0;  // usable by programs
  int64_t psum_bytes_per_partition = 0;
  int64_t psum_bank_bytes = 2048;
  int psum_banks = 8;
  int64_t hbm_bytes_per_core = 0;        // physical core's share: chip capacity / cores
  double hbm_gb_s_per_core = 0;          // share of the chip's bandwidth
  int semaphores = 256;
  int engine_registers = 64;

  // Engines, indexed by isa::Engine's order: tensor, vector, scalar, gpsimd, sync
  std::array<EngineSpec, 5> engines;

  // Tensor engine
  int tensor_rows = 128, tensor_columns = 128;
  int moving_free_max = 512;
  double fp32_passes = 4;
  double matmul_latency_ns = 0;           // from the last column in to the result visible, full rate
  double load_stationary_columns_per_cycle = 1;
  double load_stationary_startup_ns = 0;
  double throttle_rate = 0.5;             // share of the full rate while cold
  double throttle_ramp_ns = 3000;         // window of the power ramp; 0: none
  double throttle_utilisation = 0.5;      // busy share of a window below which the engine is cold again

  // Costs of vector, scalar and gpsimd instructions: "vector.tensor_tensor.f32", ... (see cost/cost.h)
  std::map<std::string, Law> laws;
  double act_table_load_ns = 0;
  std::vector<std::vector<std::string>> act_table_sets;  // functions of one set need no reload between them
  double event_semaphore_ns = 0;
  double barrier_ns = 0;                  // all engines of one core
  double core_barrier_ns = 0;             // across the cores of an LNC pair
  double semaphore_latency_ns = 0;        // from a post to the waiting engine's start
  double gpsimd_cycles_per_vector_op = 1; // a register operation on 16 lanes of 32 bits, one of 8 cores
  double gpsimd_special_op_factor = 1;    // multiplies transcendental functions
  int gpsimd_lanes_32 = 128;              // 32-bit lanes over all cores
  int gpsimd_cores = 8;                   // each tied to partitions / cores neighbouring partitions

  // DMA
  int dma_engines = 16;
  double dma_bytes_per_ns_per_engine = 0;   // practical rate
  double dma_peak_bytes_per_ns_per_engine = 0;  // denominator of utilisation
  double dma_descriptor_ns = 0;             // least time of one descriptor (contiguous run) on one engine
  double dma_transfer_overhead_ns = 0;      // per transfer and engine
  double dma_start_ns = 0;                  // trigger to first byte, static descriptors
  double dma_start_dynamic_ns = 0;          // trigger to first byte, descriptors built by GpSimd (indirect)
  double dma_issue_ns = 0;                  // engine time of a trigger
  double dma_issue_dynamic_ns = 0;
  double dma_complete_ns = 0;               // last byte to the waiting engine
  double dma_transpose_fraction = 0.9;      // of the plain rate
  double dma_transpose_sbuf_fraction = 0.5; // of the plain rate when both sides are on chip
  double dma_accumulate_fraction = 0.5;
  int64_t dma_split_bytes = 512;            // a long contiguous run is split over engines in pieces of at least this
  // Descriptors built by GpSimd: per descriptor and engine, and the payload's time over that of the practical rate.
  double dma_gather_descriptor_ns = 0, dma_gather_payload_factor = 1;
  double dma_scatter_descriptor_ns = 0, dma_scatter_payload_factor = 1;
  int dma_dynamic_batch = 128;              // descriptors that one dma_issue_dynamic_ns builds
  int64_t dma_max_descriptor_bytes = 65536;

  // Features
  bool vector_perf_modes = true;
  bool vector_gpsimd_share_port = true;  // while the vector engine is in a performance mode
  bool fp8_perf_modes = false;           // 8-bit floats run at the rate of the 16-bit ones (vector, scalar)
  bool hardware_dge = true;              // hardware descriptor generators
  double strided_access_bytes = 0;       // innermost stride above which an SBUF access slows down; 0: never
  double strided_access_factor = 1;      // ... by this factor

  // Host side (inputs to the model)
  double dispatch_eager_us = 55;        // host time of one eager operator on the real stack
  double dispatch_eager_min_us = 45, dispatch_eager_max_us = 65;
  double launch_us = 0;                 // device-side cost of starting one program
  double launch_compiled_us = 100;      // host time of one compiled graph's launch
  double host_to_device_gb_s = 14;
  double host_transfer_latency_us = 0;

  std::map<std::string, double> peak_tflops;  // per physical core: "bf16", "fp32", "fp8", ...

  std::vector<Parameter> parameters;    // every number above with its source
  // The distinct grades of the numbers used for timing, for report footers.
  std::map<std::string, int> grade_counts() const;
};

// Names of the chip files found, sorted.
std::vector<std::string> chip_names();

// Loads chips/<name>.json from $OPENTRN_CHIPS (a folder), else the installed folder, else the source tree.
// Results are cached. Throws UserError naming the known chips when there is no such file, or the JSON path
// and what is wrong when a value is missing, of the wrong type or out of range.
const Chip& chip(const std::string& name);

}  // namespace opentrn::spec
