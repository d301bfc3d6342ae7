# llama.cpp from llama-cpp-python's sdist, with pyquant's call sites in it, as static libraries. Its CPU backend is
# compiled for each of the extension's variants (cmake/variants.cmake), everything else once.

include(${CMAKE_CURRENT_LIST_DIR}/vendor.cmake)
vendor(llama_source llama ${CMAKE_CURRENT_SOURCE_DIR}/csrc/ggml/llama.cpp.patch)
file(STRINGS ${vendor_script} llama_cpp_python_version REGEX "^LLAMA_VERSION = ")
string(REGEX REPLACE ".*\"(.*)\".*" "\\1" llama_cpp_python_version "${llama_cpp_python_version}")

set(BUILD_SHARED_LIBS OFF)
set(GGML_NATIVE ${PYQUANT_NATIVE})
if(NOT PYQUANT_NATIVE)
    foreach(set SSE42 AVX AVX2 BMI2 FMA F16C)
        set(GGML_${set} OFF)  # each variant brings its own
    endforeach()
endif()
foreach(part COMMON TESTS TOOLS EXAMPLES SERVER APP)
    set(LLAMA_BUILD_${part} OFF)
endforeach()
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # OpenMP, which it finds, is for the variants too
add_subdirectory(${llama_source} llama.cpp EXCLUDE_FROM_ALL)

# Files must be the same to the last byte on every CPU: no multiplication is fused with an addition where blocks
# are made. On x86-64, where the baseline knows no such instruction, this changes nothing.
target_compile_options(ggml-base PRIVATE -ffp-contract=off)
# csrc/llama/abort_guard.h: failed assertions leave these as exceptions.
set_source_files_properties(${llama_source}/ggml/src/ggml.c ${llama_source}/ggml/src/ggml-quants.c
    TARGET_DIRECTORY ggml-base PROPERTIES COMPILE_OPTIONS -fexceptions)
foreach(patched ggml-base ggml-cpu llama)
    target_include_directories(${patched} PRIVATE ${csrc})
endforeach()

set(gpu_backends "")
foreach(backend CUDA HIP METAL SYCL VULKAN)
    if(GGML_${backend})
        list(APPEND gpu_backends ${backend})
    endif()
endforeach()
list(JOIN gpu_backends " " gpu_backends)
if(TARGET ggml-vulkan)
    target_compile_options(ggml-vulkan PRIVATE "SHELL:-include \"${csrc}/ggml/vulkan_layer_settings.h\"")
endif()

# The backend that GGML would link, and that each variant brings.
foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
    get_target_property(libraries ggml ${property})
    list(REMOVE_ITEM libraries ggml-cpu)
    set_target_properties(ggml PROPERTIES ${property} "${libraries}")
endforeach()

# The ctypes declarations of its functions, which reach them through pyquant/llama/shared_library.py.
vendor(declarations llama_cpp)
file(READ ${declarations}/llama_cpp/llama_cpp.py text)
string(REPLACE "llama_cpp._ctypes_extensions" "pyquant.llama.shared_library" text "${text}")
file(CONFIGURE OUTPUT _llama_cpp.py CONTENT "${text}" @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/_llama_cpp.py DESTINATION pyquant/llama)

# What is compiled in asks to be named beside it.
install(FILES ${declarations}/LICENSE.md DESTINATION ${SKBUILD_METADATA_DIR}/licenses/llama-cpp-python)
install(FILES ${llama_source}/LICENSE DESTINATION ${SKBUILD_METADATA_DIR}/licenses/llama.cpp)
install(FILES ${llama_source}/vendor/hash/xxhash/LICENSE DESTINATION ${SKBUILD_METADATA_DIR}/licenses/xxhash)
file(GLOB pybind11_licence "${pybind11_DIR}/../../../../pybind11-*.dist-info/licenses/LICENSE")
install(FILES ${pybind11_licence} DESTINATION ${SKBUILD_METADATA_DIR}/licenses/pybind11)
