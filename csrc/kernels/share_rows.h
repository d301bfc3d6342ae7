// Rows of work, shared among threads.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

namespace pyquant::kernels {

// Gives each thread its share: work(begin, end). One thread is the caller's own.
template <class Work>
void share_rows(int64_t n_rows, int n_threads, const Work & work) {
    std::vector<std::thread> threads;
    for (int t = 1; t < n_threads; ++t) {
        threads.emplace_back([=, &work] { work(n_rows * t / n_threads, n_rows * (t + 1) / n_threads); });
    }
    work(0, n_rows / n_threads);
    for (std::thread & thread : threads) {
        thread.join();
    }
}

}  // namespace pyquant::kernels
