// A copy of a matrix's weights that llama.cpp multiplies by instead of the mapped ones: it can be changed,
// and the other matrices take no memory.
#pragma once

#include <cstdlib>
#include <memory>

struct ggml_tensor;

namespace pyquant::calibrate {

class WeightsCopy {
public:
    // Copies the weights, and has the matrix use the copy; on a device it keeps what it has there.
    // Throws std::bad_alloc.
    explicit WeightsCopy(ggml_tensor * matrix);

    ggml_tensor * matrix() const { return matrix_; }
    void * values() const { return values_.get(); }

    // Has the matrix use the model's weights again. Destroying the copy does not: the model may be gone.
    void restore() const;

private:
    ggml_tensor * matrix_;
    void * of_model_;
    std::unique_ptr<void, void (*)(void *)> values_;
};

}  // namespace pyquant::calibrate
