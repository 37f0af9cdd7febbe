# Read by CMake right after llama.cpp's own project() line (CMAKE_PROJECT_<name>_INCLUDE). Its "common" library serves
# its command-line tools only, yet takes half of the compile time; the Python package forces it on in the cache, and
# this variable stands before the cache.
set(LLAMA_BUILD_COMMON OFF)

# What scripts/compiler_options.py found this compiler to need; it comes behind all flags of the user's.
foreach(language C CXX)
    if(SPECPAIR_${language}_OPTIONS)
        add_compile_options("$<$<COMPILE_LANGUAGE:${language}>:${SPECPAIR_${language}_OPTIONS}>")
    endif()
endforeach()
