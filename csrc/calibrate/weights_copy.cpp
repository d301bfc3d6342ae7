#include "calibrate/weights_copy.h"

#include <cstring>
#include <new>

#include "calibrate/host_values.h"
#include "ggml-backend.h"
#include "ggml.h"

namespace pyquant::calibrate {

WeightsCopy::WeightsCopy(ggml_tensor * matrix)
    : matrix_(matrix),
      of_model_(matrix->data),
      values_(nullptr, std::free) {
    constexpr size_t kAlignment = 64;  // of the widest vectors
    const size_t n_bytes = ggml_nbytes(matrix), size = (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
    values_.reset(std::aligned_alloc(kAlignment, size));
    if (!values_) {
        throw std::bad_alloc();
    }
    if (is_on_host(matrix)) {
        std::memcpy(values_.get(), matrix->data, n_bytes);
        matrix->data = values_.get();
    } else {
        ggml_backend_tensor_get(matrix, values_.get(), 0, n_bytes);
    }
}

void WeightsCopy::restore() const {
    matrix_->data = of_model_;
}

}  // namespace pyquant::calibrate
