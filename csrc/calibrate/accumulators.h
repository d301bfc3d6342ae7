// The sums of all inputs of a model, in memory as far as a bound allows, the others in a spool.
//
// A model is run layer by layer, so inputs are visited in the same order again and again: whichever
// were kept because they were used last would be gone before their turn. So the first ones stay in
// memory for good, and each visit of another reads it and writes it back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "calibrate/spool.h"

namespace pyquant::calibrate {

class Accumulators {
public:
    // sizes: in floats. memory: bytes, enough for the largest.
    Accumulators(std::vector<int64_t> sizes, int64_t memory, Spool spool);

    // The place where a run begins: at the first batch that not all of them hold.
    const Spool::Progress & progress() const { return spool_.progress(); }

    // Whether it holds this visit already, from a run that was interrupted.
    bool holds(int64_t record, uint64_t visit) const { return visit < visits_[size_t(record)]; }

    // Calls add(sums) and counts `count` tokens, unless the record holds this visit.
    void visit(int64_t record, uint64_t visit, double count, const std::function<void(float *)> & add);

    // Now they hold all visits before this batch's first one.
    void checkpoint(const Spool::Progress & progress);

    double count(int64_t record) const { return counts_[size_t(record)]; }
    // n: floats, from the first on.
    void read(int64_t record, int64_t n, float * sums) const;

private:
    std::vector<int64_t> sizes_;
    Spool spool_;
    std::vector<uint64_t> visits_;  // that each record holds
    std::vector<double> counts_;
    std::vector<std::vector<float>> in_memory_;  // empty: in the spool
    std::vector<float> visited_;                 // one that was read from there
};

}  // namespace pyquant::calibrate
