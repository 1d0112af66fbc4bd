# Installs the client library into PREFIX, builds SOURCE against it and runs the program where no
# node answers: it must say so.
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX} --component client
  RESULT_VARIABLE failed OUTPUT_QUIET)
if(failed)
  message(FATAL_ERROR "the installation failed")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${PREFIX}/build
  -DCMAKE_PREFIX_PATH=${PREFIX} RESULT_VARIABLE failed OUTPUT_QUIET)
if(failed)
  message(FATAL_ERROR "the package is not found, or not whole")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${PREFIX}/build RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "the program does not build")
endif()
execute_process(COMMAND ${PREFIX}/build/external_client 1 "In the beginning"
  RESULT_VARIABLE code ERROR_VARIABLE said)
if(NOT code EQUAL 1 OR NOT said MATCHES "no connection to the node at 127.0.0.1:1")
  message(FATAL_ERROR "the program ended with ${code} and said '${said}'")
endif()
