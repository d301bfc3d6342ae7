#include "calibrate/accumulators.h"

#include <algorithm>
#include <numeric>

namespace pyquant::calibrate {

Accumulators::Accumulators(std::vector<int64_t> sizes, int64_t memory, Spool spool)
    : sizes_(std::move(sizes)),
      spool_(std::move(spool)),
      visits_(sizes_.size()),
      counts_(sizes_.size()),
      in_memory_(sizes_.size()) {
    const int64_t all = std::accumulate(sizes_.begin(), sizes_.end(), int64_t(0));
    const int64_t largest = sizes_.empty() ? 0 : *std::max_element(sizes_.begin(), sizes_.end());
    int64_t room = memory / int64_t(sizeof(float));
    if (room < all) {
        room -= largest;
        visited_.resize(size_t(largest));
    }
    for (size_t i = 0; i < sizes_.size(); ++i) {
        const Spool::Entry & entry = spool_.entry(int64_t(i));
        visits_[i] = entry.visits;
        counts_[i] = entry.count;
        if (sizes_[i] > room) {
            continue;
        }
        room -= sizes_[i];
        in_memory_[i].resize(size_t(sizes_[i]));
        if (entry.visits > 0) {
            spool_.read(int64_t(i), sizes_[i], in_memory_[i].data());
        }
    }
}

void Accumulators::visit(int64_t record, uint64_t visit, double count,
                         const std::function<void(float *)> & add) {
    const auto i = size_t(record);
    if (holds(record, visit)) {
        return;
    }
    float * sums = in_memory_[i].data();
    if (in_memory_[i].empty()) {
        sums = visited_.data();
        read(record, sizes_[i], sums);
    }
    add(sums);
    visits_[i] = visit + 1;
    counts_[i] += count;
    if (in_memory_[i].empty()) {
        spool_.write(record, sums, visits_[i], counts_[i]);
    }
}

void Accumulators::checkpoint(const Spool::Progress & progress) {
    for (size_t i = 0; i < sizes_.size(); ++i) {
        if (visits_[i] > spool_.entry(int64_t(i)).visits) {
            spool_.write(int64_t(i), in_memory_[i].data(), visits_[i], counts_[i]);
        }
    }
    spool_.set_progress(progress);
}

void Accumulators::read(int64_t record, int64_t n, float * sums) const {
    const auto i = size_t(record);
    if (!in_memory_[i].empty()) {
        std::copy_n(in_memory_[i].begin(), n, sums);
    } else if (visits_[i] > 0) {
        spool_.read(record, n, sums);
    } else {
        std::fill_n(sums, n, 0.0f);  // an expert that no token came to
    }
}

}  // namespace pyquant::calibrate
