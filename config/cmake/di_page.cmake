# di_page(target file): the page becomes a C++ literal that `target` includes as <file>.inc, so that
# the binary brings it along.
function(di_page target file)
  set(source ${PROJECT_SOURCE_DIR}/${file})
  set(made ${PROJECT_BINARY_DIR}/generated/${file}.inc)
  set(script ${PROJECT_SOURCE_DIR}/config/cmake/make_literal.cmake)
  add_custom_command(OUTPUT ${made}
    COMMAND ${CMAKE_COMMAND} -DFROM=${source} -DTO=${made} -P ${script}
    DEPENDS ${source} ${script} COMMENT "literal of ${file}" VERBATIM)
  target_sources(${target} PRIVATE ${made})
  target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/generated)
endfunction()
