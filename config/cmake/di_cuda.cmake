# The CUDA toolchain: found and reported with ENGINE_CUDA=ON, so that sources (*.cu) can join the
# targets of their folders. There are none yet: the engine runs on the CPU, and says so.
include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)  # nvcc need not be on PATH
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "ENGINE_CUDA=ON, but no CUDA compiler was found: install the CUDA toolkit, "
                      "put nvcc on PATH, or configure with ENGINE_CUDA=OFF")
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a)
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
message(STATUS "CUDA ${CUDAToolkit_VERSION}, NCCL ${NCCL_LIBRARY}")
message(WARNING "This version has no CUDA device: the build is that of the CPU engine, and "
                "--device cuda ends with exit code 5.")
