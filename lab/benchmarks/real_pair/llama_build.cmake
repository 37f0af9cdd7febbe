# As backends/llama_cpp/build.cmake, which the Python package is compiled with, but with the "common" library: the
# server needs it.
include("${CMAKE_CURRENT_LIST_DIR}/../../../backends/llama_cpp/build.cmake")
set(LLAMA_BUILD_COMMON ON)
