# di_precompile(target extra...): the headers that nearly every file of a target reads, parsed once.
# They are the standard's and third parties', so that a change of ours rebuilds only what includes
# it. header_check is built without them: a header may not lean on this list.
option(DI_PRECOMPILE "Parse common headers once per target" ON)

set(di_common_headers
  <algorithm> <array> <chrono> <cmath> <cstdint> <functional> <limits> <map> <memory> <numeric>
  <optional> <set> <span> <string> <string_view> <utility> <vector>
  <fmt/format.h> <fmt/ranges.h> <tl/expected.hpp>)

function(di_precompile target)
  if(NOT DI_PRECOMPILE)
    return()
  endif()
  # GCC 12 forgets that precompiled headers are the system's, and warns inside the standard's.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overread)
  endif()
  target_precompile_headers(${target} PRIVATE ${di_common_headers} ${ARGN})
  # Other machine options than the target's can't use its parsed headers.
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "_avx2\\.cpp$")
  if(sources)
    set_source_files_properties(${sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()
