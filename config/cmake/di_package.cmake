# The .deb: `cpack -G DEB` in the build folder. Its dependencies are read off the binary.
set(CPACK_PACKAGE_NAME deepinfer)
set(CPACK_PACKAGE_VENDOR "The DeepInfer authors")
set(CPACK_PACKAGE_CONTACT "The DeepInfer authors <deepinfer@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Inference engine for DeepSeek-V4.1-Flash-class models")
set(CPACK_PACKAGE_DESCRIPTION
"Serves language models over an OpenAI-style HTTP API and a C++ client API, with a batch scheduler
that costs the device nothing. A tiny model is included.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_GENERATOR DEB)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/config/packaging/conffiles)
set(CPACK_STRIP_FILES ON)

set(di_packaging ${PROJECT_SOURCE_DIR}/config/packaging)
install(FILES ${di_packaging}/deepinfer.service DESTINATION lib/systemd/system)
install(FILES ${di_packaging}/deepinfer.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md
  ${PROJECT_SOURCE_DIR}/config/flags.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
# A package for /usr has its settings in /etc; below another prefix they belong to that prefix.
install(CODE "
  set(etc \"\${CMAKE_INSTALL_PREFIX}/etc\")
  if(CMAKE_INSTALL_PREFIX MATCHES \"/usr\\$\")
    get_filename_component(etc \"\${CMAKE_INSTALL_PREFIX}/../etc\" ABSOLUTE)
  endif()
  file(INSTALL DESTINATION \"\${etc}/deepinfer\" TYPE FILE
    FILES \"${di_packaging}/serve.yaml\")")
# Headers and libraries of the client are for `cmake --install`.
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};${PROJECT_NAME};Unspecified;/")
include(CPack)
