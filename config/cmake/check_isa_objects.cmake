# cmake -DNM=... -DLIBRARY=... -P check_isa_objects.cmake
#
# Objects built for an instruction set must not define weak symbols: an inline function that the
# compiler emitted there could be the copy the linker keeps, and would then run on machines without
# the set.
execute_process(COMMAND ${NM} -A -C --defined-only ${LIBRARY}
  OUTPUT_VARIABLE symbols RESULT_VARIABLE failed ERROR_VARIABLE problem)
if(failed)
  message(FATAL_ERROR "${NM} ${LIBRARY}: ${problem}")
endif()
string(REPLACE ";" "," symbols "${symbols}")
string(REPLACE "\n" ";" symbols "${symbols}")
set(objects 0)
set(found)
foreach(line IN LISTS symbols)
  if(line MATCHES "_avx2\\.cpp\\.o:")
    math(EXPR objects "${objects} + 1")
    if(line MATCHES " [WVuwv] ")
      list(APPEND found "${line}")
    endif()
  endif()
endforeach()
if(objects EQUAL 0)
  message(FATAL_ERROR "${LIBRARY}: no symbols of *_avx2.cpp")
endif()
if(found)
  list(JOIN found "\n" text)
  message(FATAL_ERROR "weak symbols in objects of an instruction set:\n${text}")
endif()
