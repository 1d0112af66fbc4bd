# di_isa_sources(list): files named after an instruction set (*_avx2.cpp) are built for it, each on
# its own; which twins run is chosen at run time. Left out where the processor cannot have them.
function(di_isa_sources list)
  set(avx2 ${${list}})
  list(FILTER avx2 INCLUDE REGEX "_avx2\\.cpp$")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set_source_files_properties(${avx2} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
  else()
    list(REMOVE_ITEM ${list} ${avx2})
    set(${list} ${${list}} PARENT_SCOPE)
  endif()
endfunction()

# di_library(name folder PUBLIC ... PRIVATE ... PRECOMPILE ...): every .cpp below `folder` is in the
# target, so no file can be forgotten. main.cpp is a program's, never a library's.
function(di_library name folder)
  cmake_parse_arguments(arg "" "" "PUBLIC;PRIVATE;PRECOMPILE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  if(NOT sources)
    file(WRITE ${PROJECT_BINARY_DIR}/empty/${name}.cpp "namespace deepinfer {}\n")
    set(sources ${PROJECT_BINARY_DIR}/empty/${name}.cpp)
  endif()
  di_isa_sources(sources)
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE} di_options)
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  di_precompile(${name} ${arg_PRECOMPILE})
endfunction()

# di_protobuf(name pattern): generated code, compiled without our warnings.
function(di_protobuf name pattern)
  file(GLOB protos CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${pattern})
  if(NOT protos)
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE protobuf::libprotobuf)
    return()
  endif()
  set(generated)
  foreach(proto ${protos})
    get_filename_component(stem ${proto} NAME_WE)
    set(base ${PROJECT_BINARY_DIR}/generated/messages/${stem}.pb)
    add_custom_command(OUTPUT ${base}.cc ${base}.h
      COMMAND protobuf::protoc --proto_path=${PROJECT_SOURCE_DIR}
              --cpp_out=${PROJECT_BINARY_DIR}/generated ${proto}
      DEPENDS ${protos} COMMENT "protoc ${stem}.proto")
    list(APPEND generated ${base}.cc)
  endforeach()
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/generated)
  add_library(${name} STATIC ${generated})
  target_include_directories(${name} SYSTEM PUBLIC ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf)
endfunction()

# di_program(name main libraries...)
function(di_program name main)
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/${main})
    return()
  endif()
  add_executable(${name} ${main})
  target_link_libraries(${name} PRIVATE ${ARGN} di_options)
endfunction()

# di_tests(folder libraries... [PRECOMPILE headers...]): one binary from tests/<folder>/*_test.cpp and tests/support, one
# ctest per test case.
function(di_tests folder)
  cmake_parse_arguments(arg "" "" "PRECOMPILE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${folder}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(${folder}_test ${sources} ${PROJECT_SOURCE_DIR}/tests/support/doctest_main.cpp)
  target_link_libraries(${folder}_test PRIVATE ${arg_UNPARSED_ARGUMENTS} doctest::doctest di_options)
  target_compile_definitions(${folder}_test PRIVATE DI_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # What is tested is optimised as the product is; the tests themselves need not be, and build faster.
  target_compile_options(${folder}_test PRIVATE -O1)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/support/doctest_main.cpp PROPERTIES
    SKIP_PRECOMPILE_HEADERS ON)
  di_precompile(${folder}_test <doctest/doctest.h> ${arg_PRECOMPILE})
  doctest_discover_tests(${folder}_test TEST_PREFIX "${folder}: "
                         PROPERTIES TIMEOUT 1200 LABELS ${folder})
endfunction()
