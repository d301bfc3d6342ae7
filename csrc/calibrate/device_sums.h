// Hessians that a device sums up where it has the activations, by GGML's products in F32.
//
// Sums go on there, also behind a checkpoint: so they do not depend on when there was one. The CPU takes what
// a device has no memory for, or cannot multiply well: whether it can shows each product's diagonal, as sums
// of squares are made without products too.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "calibrate/hessian.h"
#include "ggml-cpp.h"

namespace pyquant::calibrate {

class DeviceSums {
public:
    // What one input has summed up to.
    struct Sum {
        ggml_context_ptr context;
        ggml_backend_buffer_ptr buffer;  // null: nothing yet
        ggml_tensor * hessian = nullptr;
        std::vector<float> squares, first_tokens;
        double count = 0;    // of tokens since it was fetched
        uint64_t visit = 0;  // the last
        bool of_cpu = false;
    };

    Sum & of(size_t input) { return sums_[input]; }
    // Why some are of the CPU, of the last one; empty: none is.
    const std::string & why_of_cpu() const { return why_of_cpu_; }

    // Makes room where x is for sums of tokens like those. Returns false if the CPU is to do it.
    bool make_room(Sum & sum, const ggml_tensor * x);

    // Adds tokens x, (n_in, n_tokens) on a device, times weight; of those that n_begun chunks begin with also
    // the sum. Returns false, and has added nothing, if the CPU is to do it.
    bool add(Sum & sum, ggml_tensor * x, float weight, int64_t n_begun, uint64_t visit);

    // Copy from and to an input's sums, as layout has them, with those of first tokens behind.
    static void load(Sum & sum, const Layout & layout, const float * sums);
    static void fetch(Sum & sum, const Layout & layout, float * sums);

private:
    struct Device {
        ggml_backend_ptr backend;
        ggml_gallocr_ptr scratch;
    };

    bool leave_to_cpu(Sum & sum, std::string why);

    std::map<ggml_backend_dev_t, Device> devices_;
    std::map<size_t, Sum> sums_;
    std::string why_of_cpu_;
};

}  // namespace pyquant::calibrate
