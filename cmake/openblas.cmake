# BLAS and LAPACK: OpenBLAS out of the PyPI package scipy-openblas32, headers and library.
#
# It is a dependency at run time too: wheels are installed side by side, so the extension, which
# stands in site-packages/pyquant, finds the library by an RPATH beside itself. In an isolated build
# the copy that was compiled against is gone by then; the one that pip installed takes its place.

# Found without importing it, as that loads the library, which may be of another architecture.
execute_process(
    COMMAND ${Python_EXECUTABLE} -c
        "from importlib.util import find_spec; print(find_spec('scipy_openblas32').submodule_search_locations[0], end='')"
    OUTPUT_VARIABLE openblas_package COMMAND_ERROR_IS_FATAL ANY)
find_library(openblas_library scipy_openblas PATHS ${openblas_package}/lib NO_DEFAULT_PATH NO_CACHE REQUIRED)

add_library(openblas SHARED IMPORTED)
set_target_properties(openblas PROPERTIES
    IMPORTED_LOCATION ${openblas_library}
    INTERFACE_COMPILE_DEFINITIONS BLAS_SYMBOL_PREFIX=scipy_)
target_include_directories(openblas SYSTEM INTERFACE ${openblas_package}/include)
get_filename_component(openblas_name ${openblas_package} NAME)
set(openblas_rpath ../${openblas_name}/lib)  # from pyquant/
