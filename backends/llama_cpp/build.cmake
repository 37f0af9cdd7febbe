# CMake reads this file right after llama.cpp's project() line (CMAKE_PROJECT_<name>_INCLUDE). Only llama.cpp's
# command-line tools use its "common" library, which takes half of the compile time. The Python package forces the
# library on in CMake's cache; this variable takes precedence over the cache.
set(LLAMA_BUILD_COMMON OFF)

# The options that scripts/compiler_options.py found this compiler to need, after all flags of the user.
foreach(language C CXX)
    if(SPECPAIR_${language}_OPTIONS)
        add_compile_options("$<$<COMPILE_LANGUAGE:${language}>:${SPECPAIR_${language}_OPTIONS}>")
    endif()
endforeach()
