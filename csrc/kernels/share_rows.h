// Rows of work, shared among threads.
#pragma once

#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace pyquant::kernels {

// Gives each thread its share: work(begin, end). One thread is the caller's own.
template <class Work>
void share_rows(int64_t n_rows, int n_threads, const Work & work) {
    std::vector<std::thread> threads;
    threads.reserve(size_t(n_threads));
    const auto part = [=, &work](int t) { work(n_rows * t / n_threads, n_rows * (t + 1) / n_threads); };
    int started = 1;
    try {
        for (; started < n_threads; ++started) {
            threads.emplace_back(part, started);
        }
    } catch (const std::system_error &) {  // no room for another stack: the caller does its share
    }
    part(0);
    for (int t = started; t < n_threads; ++t) {
        part(t);
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
}

}  // namespace pyquant::kernels
