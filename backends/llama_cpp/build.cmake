# CMake reads this file right after llama.cpp's project() line (CMAKE_PROJECT_<name>_INCLUDE). Only llama.cpp's
# command-line tools use its "common" library, which takes half of the compile time. The Python package forces the
# library on in CMake's cache; this variable takes precedence over the cache.
set(LLAMA_BUILD_COMMON OFF)

# A wheel has no links, so it would hold each library three times, as libggml.so, .so.0 and .so.0.25.3, and a process
# would load ggml twice: by the name that llama_cpp opens, and by the one that libllama.so asks for. The second would have
# no GPUs and, with GGML_BACKEND_DL, no processors. So the libraries get no versions. Their targets do not exist yet.
function(specpair_one_name_for_each_library)
    foreach(target llama ggml ggml-base ${GGML_AVAILABLE_BACKENDS})
        if(TARGET ${target})
            set_property(TARGET ${target} PROPERTY VERSION)
            set_property(TARGET ${target} PROPERTY SOVERSION)
        endif()
    endforeach()
endfunction()
cmake_language(DEFER CALL specpair_one_name_for_each_library)

# The options that scripts/compiler_options.py found this compiler to need, after all flags of the user.
foreach(language C CXX)
    if(SPECPAIR_${language}_OPTIONS)
        add_compile_options("$<$<COMPILE_LANGUAGE:${language}>:${SPECPAIR_${language}_OPTIONS}>")
    endif()
endforeach()

# A pass over a few tokens reads the weights once, as a pass over one token does. But llama.cpp's products of matrices of
# floats, and of numbers in blocks (Q4_0, Q5_0, Q8_0), wait for each tile of rows when they get there, so reading and
# computing take turns. Here they ask for the next tile while they compute this one: passes over 2 to 16 tokens take up
# to half the time (docs/performance.md). Shown on x86-64 alone; -DSPECPAIR_PREFETCH=OFF leaves it out.
option(SPECPAIR_PREFETCH "Prefetch weights in products of matrices" ON)
set(SPECPAIR_KERNEL "${CMAKE_CURRENT_SOURCE_DIR}/ggml/src/ggml-cpu/llamafile/sgemm.cpp")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND NOT MSVC)
    set(SPECPAIR_BEFORE "")
    if(EXISTS "${SPECPAIR_KERNEL}")
        file(READ "${SPECPAIR_KERNEL}" SPECPAIR_BEFORE)
    endif()
    set(SPECPAIR_TEXT "${SPECPAIR_BEFORE}")
    # What loads numbers of a row, which row of the tile that is, and how many rows a tile has.
    foreach(SPECPAIR_TILE "load<V>, i, RM" "load, 0, 4" "load, 1, 4" "load, 2, 4" "load, 3, 4")
        string(REGEX MATCH "^(.+), (.+), (.+)$" SPECPAIR_PARTS "${SPECPAIR_TILE}")
        set(SPECPAIR_LOAD "${CMAKE_MATCH_1}(A + lda * (ii + ${CMAKE_MATCH_2}) + l)")
        set(SPECPAIR_AHEAD "__builtin_prefetch(A + lda * (ii + ${CMAKE_MATCH_2} + ${CMAKE_MATCH_3}) + l, 0, 2)")
        set(SPECPAIR_BOTH "(${SPECPAIR_AHEAD}, ${SPECPAIR_LOAD})")
        string(REPLACE "${SPECPAIR_BOTH}" "${SPECPAIR_LOAD}" SPECPAIR_TEXT "${SPECPAIR_TEXT}") # of an earlier run
        string(FIND "${SPECPAIR_TEXT}" "${SPECPAIR_LOAD}" SPECPAIR_FOUND)
        if(SPECPAIR_PREFETCH AND SPECPAIR_FOUND EQUAL -1)
            message(WARNING "${SPECPAIR_KERNEL} is not as expected: without ${SPECPAIR_LOAD} nothing is prefetched there, so passes over 2 to 16 tokens take longer")
        elseif(SPECPAIR_PREFETCH)
            string(REPLACE "${SPECPAIR_LOAD}" "${SPECPAIR_BOTH}" SPECPAIR_TEXT "${SPECPAIR_TEXT}")
        endif()
    endforeach()
    if(NOT SPECPAIR_TEXT STREQUAL SPECPAIR_BEFORE)
        file(WRITE "${SPECPAIR_KERNEL}" "${SPECPAIR_TEXT}")
    endif()
endif()
