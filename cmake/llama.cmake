# llama.cpp from llama-cpp-python's sdist, with pyquant's call sites in it. One compile serves the
# extension and, through LLAMA_CPP_LIB_PATH, llama_cpp.

set(llama_cpp_python_version 0.3.36)
set(llama_patch ${CMAKE_CURRENT_SOURCE_DIR}/csrc/ggml/llama.cpp.patch)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${llama_patch})

set(vendor_arguments --into ${CMAKE_CURRENT_SOURCE_DIR}/build/vendor --patch ${llama_patch})
if(PYQUANT_LLAMA_SDIST)
    list(APPEND vendor_arguments --sdist ${PYQUANT_LLAMA_SDIST})
endif()
execute_process(
    COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/vendor.py ${vendor_arguments}
    OUTPUT_VARIABLE llama_source
    OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_VARIABLE vendor_error
    RESULT_VARIABLE vendor_failed)
if(vendor_failed)
    message(FATAL_ERROR "${vendor_error}")
endif()

set(BUILD_SHARED_LIBS ON)
set(GGML_NATIVE ${PYQUANT_NATIVE})
set(LLAMA_CURL OFF)
foreach(part COMMON TESTS TOOLS EXAMPLES SERVER APP)
    set(LLAMA_BUILD_${part} OFF)
endforeach()
add_subdirectory(${llama_source} llama.cpp EXCLUDE_FROM_ALL)

set(llama_libraries llama ggml ggml-base ggml-cpu)
foreach(library IN LISTS llama_libraries)
    # Wheels hold no symlinks, so libraries have one name each.
    set_property(TARGET ${library} PROPERTY VERSION)
    set_property(TARGET ${library} PROPERTY SOVERSION)
endforeach()
