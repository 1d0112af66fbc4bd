# Build speed: ccache is used when it is there.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths relative to the source tree, so that several build folders share one cache.
  set(DI_CCACHE ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
                CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${DI_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${DI_CCACHE})
endif()
