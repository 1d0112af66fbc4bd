/// Wrong decisions that tests must notice: a build with -DDI_MUTANT=n has the n-th of them.
///
/// Every other build has none, and the compiler removes the question. `tests/mutants/run.sh` runs
/// the tests with one after the other and says which found it; its table says what they are.
/// Numbers begin at 1. Errors: none.
#pragma once

#ifdef DI_MUTANT_HEADER
#include DI_MUTANT_HEADER  // defines DI_MUTANT where the number is chosen at run time
#endif
#ifndef DI_MUTANT
#define DI_MUTANT 0
#endif

namespace deepinfer {

constexpr bool mutant(int number) {
  return DI_MUTANT == number;
}

}  // namespace deepinfer
