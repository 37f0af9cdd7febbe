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

# A pass over a few tokens reads the weights once, as a pass over one token does. But llama.cpp's product of matrices of
# floats waits for each tile of rows when it gets there, so reading and computing take turns. Here it asks for the next
# tile while it computes this one: passes of models in bfloat16 over 2 to 16 tokens take up to half the time
# (docs/performance.md). Shown on x86-64 alone; -DSPECPAIR_PREFETCH=OFF leaves it out.
option(SPECPAIR_PREFETCH "Prefetch weights in products of matrices of floats" ON)
set(SPECPAIR_KERNEL "${CMAKE_CURRENT_SOURCE_DIR}/ggml/src/ggml-cpu/llamafile/sgemm.cpp")
set(SPECPAIR_LOAD "load<V>(A + lda * (ii + i) + l)")
set(SPECPAIR_AHEAD "__builtin_prefetch(A + lda * (ii + i + RM) + l, 0, 2)")
if(SPECPAIR_PREFETCH AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND NOT MSVC)
    set(SPECPAIR_TEXT "")
    if(EXISTS "${SPECPAIR_KERNEL}")
        file(READ "${SPECPAIR_KERNEL}" SPECPAIR_TEXT)
    endif()
    string(FIND "${SPECPAIR_TEXT}" "${SPECPAIR_LOAD}" SPECPAIR_FOUND)
    string(FIND "${SPECPAIR_TEXT}" "${SPECPAIR_AHEAD}" SPECPAIR_DONE)
    if(SPECPAIR_FOUND EQUAL -1)
        message(WARNING "${SPECPAIR_KERNEL} is not as expected: nothing is prefetched, passes over 2 to 16 tokens of a model in bfloat16 take longer")
    elseif(SPECPAIR_DONE EQUAL -1)
        string(REPLACE "${SPECPAIR_LOAD}" "(${SPECPAIR_AHEAD}, ${SPECPAIR_LOAD})" SPECPAIR_TEXT "${SPECPAIR_TEXT}")
        file(WRITE "${SPECPAIR_KERNEL}" "${SPECPAIR_TEXT}")
    endif()
endif()
