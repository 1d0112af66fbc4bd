# Target di_options: warnings and sanitizers for our own code. Third party headers are SYSTEM.
add_library(di_options INTERFACE)
target_include_directories(di_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(di_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
  -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # At -O3 GCC 12 sees overflows in fmt's joined lists and the like that cannot happen.
  target_compile_options(di_options INTERFACE -Wno-stringop-overflow -Wno-restrict
                         -Wno-maybe-uninitialized)
endif()
if(DI_WERROR)
  target_compile_options(di_options INTERFACE -Werror)
endif()
if(DI_SANITIZE_ADDRESS)
  # null and vptr: two known false alarms inside CAF's headers.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=null,vptr
                      -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
if(DI_SANITIZE_THREAD)
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()
