# Installs into PREFIX and asks the installed binary a question.
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX}
  RESULT_VARIABLE failed OUTPUT_QUIET)
if(failed)
  message(FATAL_ERROR "the installation failed")
endif()
execute_process(COMMAND ${PREFIX}/bin/deepinfer chat --temperature 0 "What is 7 + 5?"
  WORKING_DIRECTORY / RESULT_VARIABLE failed OUTPUT_VARIABLE answer)
if(failed OR NOT answer STREQUAL "7 + 5 = 12\n")
  message(FATAL_ERROR "the installed binary answered '${answer}'")
endif()
