// Cholesky's decomposition, shared among threads.
#pragma once

#include <cstdint>

namespace pyquant::stream {

// A symmetric matrix, (n, n) by columns, of which the lower triangle is kept, becomes its Cholesky factor,
// tile by tile. Each tile's sums are made by one thread, column of tiles after column, so that bytes do not
// depend on the number of threads, as they do where LAPACK shares work. False: it is not positive definite.
bool decompose(double * matrix, int64_t n, int n_threads);
bool decompose(float * matrix, int64_t n, int n_threads);

}  // namespace pyquant::stream
