# zstd from python-zstandard's sdist, as a static library with nothing to be seen from outside.

vendor(zstd_source zstd)
add_library(pyquant_zstd STATIC ${zstd_source}/zstd.c)
target_include_directories(pyquant_zstd SYSTEM PUBLIC ${zstd_source})
target_compile_options(pyquant_zstd PRIVATE -O3 -w -fvisibility=hidden)
install(FILES ${zstd_source}/LICENSE DESTINATION ${SKBUILD_METADATA_DIR}/licenses/zstd)
