// Rows of work, shared among threads.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace pyquant::kernels {

// Takes what a thread's first exception takes. Where that is taken only when memory has ended, and an
// exception is to say so, the C library ends the process.
inline void make_room_for_exceptions() {
    static_cast<void>(std::uncaught_exceptions());
}

// Gives each thread its share: work(begin, end). One thread is the caller's own.
// What a share throws, as where memory ends, is thrown again when all threads have ended.
template <class Work>
void share_rows(int64_t n_rows, int n_threads, const Work & work) {
    std::mutex mutex;
    std::exception_ptr failure;
    const auto part = [&](int t) {
        make_room_for_exceptions();
        try {
            work(n_rows * t / n_threads, n_rows * (t + 1) / n_threads);
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex);
            failure = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    threads.reserve(size_t(n_threads));
    int started = 1;
    try {
        for (; started < n_threads; ++started) {
            threads.emplace_back(part, started);
        }
    } catch (const std::exception &) {  // no room for another stack: the caller does its share
    }
    part(0);
    for (int t = started; t < n_threads; ++t) {
        part(t);
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

}  // namespace pyquant::kernels
