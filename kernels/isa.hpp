/// Which instruction sets the CPU kernels have twins for, and which this machine runs.
///
/// Chosen at run time: one binary serves every machine. Twins of one set go together, so that
/// results are comparable bit for bit; another set may round differently.
/// A new set: one entry here, files named after it, one table in cpu_ops.cpp.
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
