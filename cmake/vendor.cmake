# vendor(<variable> llama|llama_cpp|zstd [<patch>]): the folder of a library's source, patched or as it comes.

set(PYQUANT_LLAMA_SDIST "" CACHE FILEPATH
    "A local copy of llama-cpp-python's sdist, for builds without network; also read from the environment")
set(PYQUANT_ZSTD_SDIST "" CACHE FILEPATH "As PYQUANT_LLAMA_SDIST, of zstandard")
set(vendor_script ${CMAKE_CURRENT_LIST_DIR}/vendor.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${vendor_script})

# llama.cpp asks git for its commit and, inside this repository's folder, would be told ours.
get_filename_component(vendor_folder ${CMAKE_CURRENT_LIST_DIR}/../build/vendor ABSOLUTE)
set(ENV{GIT_CEILING_DIRECTORIES} ${vendor_folder})

function(vendor result library)
    set(arguments ${ARGN})
    list(TRANSFORM arguments PREPEND "--patch=")
    string(TOUPPER ${library} name)
    string(REPLACE _CPP "" name ${name})  # of the same sdist
    if(PYQUANT_${name}_SDIST)
        list(APPEND arguments --sdist=${PYQUANT_${name}_SDIST})
    endif()
    execute_process(
        COMMAND ${Python_EXECUTABLE} ${vendor_script} ${library} ${arguments}
        OUTPUT_VARIABLE source
        OUTPUT_STRIP_TRAILING_WHITESPACE
        ERROR_VARIABLE error
        RESULT_VARIABLE failed)
    if(failed)
        message(FATAL_ERROR "${error}")
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
    set(${result} ${source} PARENT_SCOPE)
endfunction()
