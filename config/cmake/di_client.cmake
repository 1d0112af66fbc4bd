# The client library as others use it: headers, static libraries and a CMake package. Part of
# `cmake --install`, not of the .deb of the product.
set(di_client_libraries di_actors di_messages di_wire di_base)
set(di_client_headers
  actors/client.hpp messages/client.hpp messages/control.hpp messages/cluster.hpp
  messages/describe.hpp messages/request.hpp messages/wire.hpp runtime/base/error.hpp
  runtime/base/ids.hpp)
install(TARGETS ${di_client_libraries}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/deepinfer COMPONENT client)
foreach(header ${di_client_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header}
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/deepinfer/${folder} COMPONENT client)
endforeach()
set(di_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/deepinfer)
include(CMakePackageConfigHelpers)
configure_package_config_file(${PROJECT_SOURCE_DIR}/config/cmake/deepinferConfig.cmake.in
  ${PROJECT_BINARY_DIR}/deepinferConfig.cmake INSTALL_DESTINATION ${di_package_dir}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/deepinferConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/deepinferConfig.cmake
  ${PROJECT_BINARY_DIR}/deepinferConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/config/cmake/FindCAF.cmake
  DESTINATION ${di_package_dir} COMPONENT client)

# Somebody else's program, built against what was installed. Sanitized libraries would need its
# flags as well.
if(NOT DI_SANITIZE_ADDRESS AND NOT DI_SANITIZE_THREAD)
  add_test(NAME "install: a program builds against the installed client library"
    COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR}
            -DPREFIX=${PROJECT_BINARY_DIR}/installed_client
            -DSOURCE=${PROJECT_SOURCE_DIR}/examples/external_client
            -P ${PROJECT_SOURCE_DIR}/config/cmake/check_client.cmake)
endif()
