# What belongs to the product as a whole: version facts, command-line tests, installation.
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${PROJECT_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    OUTPUT_VARIABLE di_git_describe OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set_source_files_properties(${PROJECT_SOURCE_DIR}/actors/product_version.cpp PROPERTIES
  COMPILE_DEFINITIONS "DI_VERSION=\"${PROJECT_VERSION}\";DI_GIT_DESCRIBE=\"${di_git_describe}\"")

# Black-box tests of the binary: they run it as a user would.
di_tests(cli di_base di_http di_model di_text)
if(TARGET cli_test)
  target_compile_definitions(cli_test PRIVATE
    DI_BINARY="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/deepinfer")
  add_dependencies(cli_test deepinfer)
endif()

install(TARGETS deepinfer RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/models/tiny-v41
  DESTINATION ${CMAKE_INSTALL_DATADIR}/deepinfer/models)

# Examples: each is one file over the public headers; running them is a test.
file(GLOB example_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.cpp)
add_custom_target(examples)
foreach(source ${example_sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(example_${name} ${source})
  target_link_libraries(example_${name} PRIVATE di_actors di_options)
  add_dependencies(examples example_${name})
  add_test(NAME "examples: ${name} says how to call it" COMMAND example_${name})
  set_tests_properties("examples: ${name} says how to call it"
    PROPERTIES PASS_REGULAR_EXPRESSION "^usage: [^\n]*example_${name} MODEL_DIR")
endforeach()
add_test(NAME "examples: 01_generate continues a text"
  COMMAND example_01_generate ${PROJECT_SOURCE_DIR}/examples/models/tiny-v41 "In the beginning")
add_test(NAME "examples: 02_stream_and_cancel answers one chat and cancels another"
  COMMAND example_02_stream_and_cancel ${PROJECT_SOURCE_DIR}/examples/models/tiny-v41)
set_tests_properties("examples: 02_stream_and_cancel answers one chat and cancels another"
  PROPERTIES PASS_REGULAR_EXPRESSION "sum: 7 [+] 5 = 12.*story: [^\n]*.abort.")

add_test(NAME "examples: 03_launch_node answers over the network"
  COMMAND example_03_launch_node ${PROJECT_SOURCE_DIR}/examples/models/tiny-v41)
set_tests_properties("examples: 03_launch_node answers over the network"
  PROPERTIES PASS_REGULAR_EXPRESSION "node example is ready\n16 tokens: ")
add_test(NAME "examples: 04_watch_actor sees requests come and go"
  COMMAND example_04_watch_actor ${PROJECT_SOURCE_DIR}/examples/models/tiny-v41)
set_tests_properties("examples: 04_watch_actor sees requests come and go"
  PROPERTIES PASS_REGULAR_EXPRESSION "health: ready.*4 requests have ended")
include(di_client)  # the client library for others

# An installed binary finds its model beside it.
add_test(NAME "install: the installed binary answers with the installed model"
  COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR} -DPREFIX=${PROJECT_BINARY_DIR}/installed
          -P ${PROJECT_SOURCE_DIR}/config/cmake/check_install.cmake)
