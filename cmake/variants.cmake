# The extension, compiled for several kinds of CPU: pyquant/_core.py loads the best that runs.

# As CMake has it, without --push-state, which zig's linker does not take.
if(NOT APPLE)
    set(CMAKE_CXX_LINK_LIBRARY_USING_WHOLE_ARCHIVE_SUPPORTED TRUE)
    set(CMAKE_CXX_LINK_LIBRARY_USING_WHOLE_ARCHIVE
        "LINKER:--whole-archive" "<LINK_ITEM>" "LINKER:--no-whole-archive")
endif()

# add_variant(<name> <option>...): pyquant/_core_<name>, which holds llama.cpp, too. One file, so that nothing that
# another package brings (its own llama.cpp, its C++ library) can come between its parts.
function(add_variant name)
    # What the CPU's instructions matter to, and Python does not: compiled once for all versions of Python.
    get_target_property(folder ggml-cpu SOURCE_DIR)
    get_target_property(sources ggml-cpu SOURCES)
    list(TRANSFORM sources PREPEND ${folder}/)
    set(backend ggml_cpu_${name})
    add_library(${backend} OBJECT ${sources})
    foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_FEATURES COMPILE_OPTIONS LINK_LIBRARIES)
        get_target_property(values ggml-cpu ${property})
        set_target_properties(${backend} PROPERTIES ${property} "${values}")
    endforeach()
    get_directory_property(definitions DIRECTORY ${folder} COMPILE_DEFINITIONS)
    target_compile_definitions(${backend} PRIVATE ${definitions})
    target_compile_options(${backend} PRIVATE ${ARGN})

    set(parts pyquant_${name})
    add_library(${parts} OBJECT ${parts_sources})
    set_target_properties(${parts} PROPERTIES CXX_VISIBILITY_PRESET hidden)
    target_compile_options(${parts} PRIVATE ${warnings} ${kernel_options} ${ARGN})
    target_link_libraries(${parts} PRIVATE pyquant_headers)

    set(module _core_${name})
    pybind11_add_module(${module} NO_EXTRAS ${bindings_sources} $<TARGET_OBJECTS:${parts}> $<TARGET_OBJECTS:${backend}>)
    target_compile_options(${module} PRIVATE ${warnings} ${kernel_options} ${ARGN})
    target_compile_definitions(${module} PRIVATE
        PYQUANT_VERSION="${SKBUILD_PROJECT_VERSION}"
        PYQUANT_LLAMA_CPP_PYTHON_VERSION="${llama_cpp_python_version}"
        PYQUANT_BUILD_TYPE="${CMAKE_BUILD_TYPE}"
        PYQUANT_COMPILER="${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
        PYQUANT_VARIANT="${name}"
        PYQUANT_GPU_BACKENDS="${gpu_backends}")
    # Whole: ctypes asks for functions that nothing here calls. llama links to the others by itself: before 3.30
    # CMake wants to be told that they are whole there, too.
    target_link_libraries(${module} PRIVATE
        pyquant_headers "$<LINK_LIBRARY:WHOLE_ARCHIVE,llama,ggml,ggml-base>" pyquant_zstd)
    set_target_properties(${module} PROPERTIES LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,llama,ggml,ggml-base")
    if(NOT APPLE)
        target_link_options(${module} PRIVATE -Wl,-Bsymbolic)  # its own functions, whoever else has some of that name
    endif()
    set_target_properties(${module} PROPERTIES INSTALL_RPATH "${here}/${openblas_rpath}")
    install(TARGETS ${module} LIBRARY DESTINATION pyquant)
endfunction()
