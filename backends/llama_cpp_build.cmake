# Read by CMake right after llama.cpp's own project() line (CMAKE_PROJECT_<name>_INCLUDE). Its "common" library serves
# its command-line tools only, yet takes half of the compile time; the Python package forces it on in the cache, and
# this variable stands before the cache.
set(LLAMA_BUILD_COMMON OFF)
