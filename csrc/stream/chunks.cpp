#include "stream/chunks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "kernels/share_rows.h"

namespace pyquant::stream {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

}  // namespace

Chunks::Chunks(int64_t n_rows, int64_t row_bytes, int64_t rows_per_expert, int64_t rows_together)
    : row_bytes(row_bytes) {
    if (rows_per_expert == 0) {
        rows_per_expert = n_rows;
    }
    int64_t rows = rows_together > 1 ? rows_together : kChunkBytes / std::max<int64_t>(row_bytes, 1);
    rows = std::clamp<int64_t>(rows, 1, std::max<int64_t>(rows_per_expert, 1));
    for (int64_t expert = 0; expert < n_rows; expert += rows_per_expert) {
        for (int64_t row = 0; row < rows_per_expert; row += rows) {
            first_row.push_back(expert + row);
        }
    }
    first_row.push_back(n_rows);
}

int Chunks::n_threads(int asked) const {
    return int(std::clamp<int64_t>(asked, 1, std::max<int64_t>(size(), 1)));
}

void share(const Chunks & chunks, int n_threads, const std::function<void(int, int64_t)> & work,
           const std::function<void(int64_t)> & tick) {
    std::atomic<int64_t> next{0};
    std::vector<std::atomic<int64_t>> at(static_cast<size_t>(n_threads));  // each thread's chunk
    std::atomic<bool> stop{false};
    std::mutex mutex;
    std::condition_variable finished;
    int n_running = 0;
    std::exception_ptr failure;
    int64_t failed_chunk = chunks.size();

    // All chunks before the first that a thread is at are done: a thread says a chunk after it has taken it.
    const auto rows_done = [&] { return chunks.first_row[size_t(*std::min_element(at.begin(), at.end()))]; };
    auto run = [&](int thread) {
        kernels::make_room_for_exceptions();
        // A thread goes on to the end of the chunk it has, so of several bad chunks the first is named.
        while (!stop) {
            const int64_t chunk = next++;
            if (chunk >= chunks.size()) {
                break;
            }
            at[size_t(thread)] = chunk;
            try {
                work(thread, chunk);
            } catch (...) {
                const std::lock_guard<std::mutex> lock(mutex);
                stop = true;
                if (chunk < failed_chunk) {
                    failed_chunk = chunk;
                    failure = std::current_exception();
                }
            }
        }
        at[size_t(thread)] = chunks.size();
        const std::lock_guard<std::mutex> lock(mutex);
        --n_running;
        finished.notify_one();
    };

    std::vector<std::thread> threads;
    threads.reserve(size_t(n_threads));
    for (int t = 0; t < n_threads; ++t) {
        try {
            const std::lock_guard<std::mutex> lock(mutex);
            threads.emplace_back(run, t);
            ++n_running;
        } catch (const std::exception &) {  // no room for another stack: fewer do the same work
            at[size_t(t)] = chunks.size();
        }
    }
    if (threads.empty()) {
        throw std::bad_alloc();
    }
    {
        std::unique_lock<std::mutex> lock(mutex);
        while (!finished.wait_for(lock, std::chrono::milliseconds(100), [&] { return n_running == 0; })) {
            lock.unlock();
            try {
                tick(rows_done() * chunks.row_bytes);
            } catch (...) {
                stop = true;
                lock.lock();
                failure = std::current_exception();
                failed_chunk = -1;
                continue;
            }
            lock.lock();
        }
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
    tick(chunks.first_row.back() * chunks.row_bytes);
}

void share_each(int64_t n, int n_threads, const std::function<void(int64_t)> & work) {
    const Chunks each(n, kChunkBytes, 0);
    share(each, each.n_threads(n_threads), [&](int, int64_t i) { work(i); }, [](int64_t) {});
}

}  // namespace pyquant::stream
