// Room of its own for a matrix that llama.cpp runs: there it can be changed, where the model is mapped from
// its file, and the others take no memory.
#pragma once

#include <cstdlib>
#include <memory>

struct ggml_tensor;

namespace pyquant::calibrate {

class OwnRoom {
public:
    // Copies the matrix's values, and has it use the copy; on a device the matrix goes on with its own.
    // Throws std::bad_alloc.
    explicit OwnRoom(ggml_tensor * matrix);

    ggml_tensor * matrix() const { return matrix_; }
    void * values() const { return values_.get(); }

    // Has the matrix use the model's values again. Destroying the room does not: the model may be gone.
    void give_back() const;

private:
    ggml_tensor * matrix_;
    void * of_model_;
    std::unique_ptr<void, void (*)(void *)> values_;
};

}  // namespace pyquant::calibrate
