/// Which instruction sets the CPU kernels have twins for, and which this machine runs.
///
/// Chosen at run time: one binary serves every machine. Twins of one set go together, so that
/// results are comparable bit for bit; another set may round differently.
/// A new set: an entry here and in isa.cpp, files named after it (di_targets.cmake gives them their
/// flags), its tables in cpu_ops.cpp and peak/cpu_peak.cpp, a value of the setting `kernels`.
#pragma once

#include <cstdint>
#include <string_view>

namespace deepinfer::kernels {

enum class isa : std::uint8_t {
  reference,  ///< the readable definitions, on any machine
  avx2,       ///< AVX2, FMA and F16C
};

/// Whether this build and this machine have it.
bool runs(isa set);
/// The fastest set that runs.
isa best_isa();
std::string_view name_of(isa set);

}  // namespace deepinfer::kernels
