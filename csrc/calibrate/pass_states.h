// States from which passes that were left go on: in memory as far as a bound allows, else in a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyquant::calibrate {

class PassStates {
public:
    // n_bytes: of each at most. memory: bytes. file: one that is open, for those that do not fit.
    // Takes its room at once. Throws WriteError (stream/file.h).
    PassStates(int64_t n_states, int64_t n_bytes, int64_t memory, int file);

    void read(int64_t state, int64_t offset, void * data, int64_t n) const;
    void write(int64_t state, int64_t offset, const void * data, int64_t n);

private:
    int64_t in_file(int64_t state, int64_t offset, int64_t n) const;

    int64_t n_bytes_;
    std::vector<std::vector<char>> in_memory_;
    int file_;
};

}  // namespace pyquant::calibrate
