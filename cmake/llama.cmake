# llama.cpp from llama-cpp-python's sdist, with pyquant's call sites in it. One compile serves the
# extension and, through LLAMA_CPP_LIB_PATH, llama_cpp.

include(${CMAKE_CURRENT_LIST_DIR}/vendor.cmake)
vendor(llama_source llama ${CMAKE_CURRENT_SOURCE_DIR}/csrc/ggml/llama.cpp.patch)
file(STRINGS ${vendor_script} llama_cpp_python_version REGEX "^LLAMA_VERSION = ")
string(REGEX REPLACE ".*\"(.*)\".*" "\\1" llama_cpp_python_version "${llama_cpp_python_version}")

set(BUILD_SHARED_LIBS ON)
set(GGML_NATIVE ${PYQUANT_NATIVE})
foreach(part COMMON TESTS TOOLS EXAMPLES SERVER APP)
    set(LLAMA_BUILD_${part} OFF)
endforeach()
add_subdirectory(${llama_source} llama.cpp EXCLUDE_FROM_ALL)

set(llama_libraries llama ggml ggml-base ggml-cpu)
foreach(library IN LISTS llama_libraries)
    # Wheels hold no symlinks, so libraries have one name each.
    set_property(TARGET ${library} PROPERTY VERSION)
    set_property(TARGET ${library} PROPERTY SOVERSION)
    set_property(TARGET ${library} PROPERTY PUBLIC_HEADER)  # nor are headers installed
endforeach()
