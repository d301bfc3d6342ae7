# BLAS and LAPACK: OpenBLAS out of the PyPI package scipy-openblas32, headers and library.
#
# It is a dependency at run time too: wheels are installed side by side, so the extension, which
# stands in site-packages/pyquant, finds the library by an RPATH beside itself. In an isolated build
# the copy that was compiled against is gone by then; the one that pip installed takes its place.

execute_process(
    COMMAND ${Python_EXECUTABLE} -c
        "import scipy_openblas32 as b; print(b.get_include_dir(), b.get_lib_dir(), b.get_library(), sep=';', end='')"
    OUTPUT_VARIABLE openblas COMMAND_ERROR_IS_FATAL ANY)
list(GET openblas 0 openblas_include)
list(GET openblas 1 openblas_folder)
list(GET openblas 2 openblas_name)

add_library(openblas SHARED IMPORTED)
set_target_properties(openblas PROPERTIES
    IMPORTED_LOCATION
        ${openblas_folder}/${CMAKE_SHARED_LIBRARY_PREFIX}${openblas_name}${CMAKE_SHARED_LIBRARY_SUFFIX}
    INTERFACE_COMPILE_DEFINITIONS BLAS_SYMBOL_PREFIX=scipy_)
target_include_directories(openblas SYSTEM INTERFACE ${openblas_include})
get_filename_component(openblas_package ${openblas_folder} DIRECTORY)
get_filename_component(openblas_package ${openblas_package} NAME)
set(openblas_rpath ../${openblas_package}/lib)  # from pyquant/
