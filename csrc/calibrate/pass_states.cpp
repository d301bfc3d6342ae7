#include "calibrate/pass_states.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "stream/file.h"

namespace pyquant::calibrate {

using namespace stream;

PassStates::PassStates(int64_t n_states, int64_t n_bytes, int64_t memory, int file)
    : n_bytes_(n_bytes),
      in_memory_(size_t(std::min(n_states, memory / std::max<int64_t>(n_bytes, 1)))),
      file_(file) {
    for (auto & state : in_memory_) {
        state.resize(size_t(n_bytes));
    }
    const int64_t spooled = (n_states - int64_t(in_memory_.size())) * n_bytes;
    if (spooled > 0) {
        reserve(file_, spooled);
    }
}

int64_t PassStates::in_file(int64_t state, int64_t offset, int64_t n) const {
    if (offset + n > n_bytes_) {
        throw std::runtime_error("its graph changes from batch to batch");
    }
    return (state - int64_t(in_memory_.size())) * n_bytes_ + offset;
}

void PassStates::read(int64_t state, int64_t offset, void * data, int64_t n) const {
    const int64_t at = in_file(state, offset, n);
    if (at < 0) {
        std::memcpy(data, in_memory_[size_t(state)].data() + offset, size_t(n));
    } else {
        read_fully(file_, data, n, at);
    }
}

void PassStates::write(int64_t state, int64_t offset, const void * data, int64_t n) {
    const int64_t at = in_file(state, offset, n);
    if (at < 0) {
        std::memcpy(in_memory_[size_t(state)].data() + offset, data, size_t(n));
    } else {
        write_fully(file_, data, n, at);
    }
}

}  // namespace pyquant::calibrate
