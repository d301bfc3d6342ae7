#include "stream/pass.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

namespace pyquant {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;  // one read: long enough for the disk, short enough for L2
constexpr int64_t kTileWeights = 1 << 13; // one conversion to float: 32 KiB

void read_fully(int file, void * data, int64_t size, int64_t offset) {
    char * at = static_cast<char *>(data);
    while (size > 0) {
        const ssize_t n = pread(file, at, size_t(size), off_t(offset));
        if (n < 0 && errno != EINTR) {
            throw std::system_error(errno, std::generic_category(), "read");
        }
        if (n == 0) {
            throw std::system_error(EIO, std::generic_category(), "the file ends early");
        }
        if (n > 0) {
            at += n, size -= n, offset += n;
        }
    }
}

void write_fully(int file, const void * data, int64_t size, int64_t offset) {
    const char * at = static_cast<const char *>(data);
    while (size > 0) {
        const ssize_t n = pwrite(file, at, size_t(size), off_t(offset));
        if (n < 0 && errno != EINTR) {
            throw std::system_error(errno, std::generic_category(), "write");
        }
        if (n > 0) {
            at += n, size -= n, offset += n;
        }
    }
}

// The chunks of a pass: whole rows of one expert.
struct Chunks {
    explicit Chunks(const Pass & pass) {
        const int64_t row_bytes = pass.source->row_bytes(pass.n_per_row);
        const int64_t rows_per_expert = pass.rows_per_expert ? pass.rows_per_expert : pass.n_rows;
        const int64_t rows = std::clamp<int64_t>(kChunkBytes / std::max<int64_t>(row_bytes, 1), 1,
                                                 std::max<int64_t>(rows_per_expert, 1));
        for (int64_t expert = 0; expert < pass.n_rows; expert += rows_per_expert) {
            for (int64_t row = 0; row < rows_per_expert; row += rows) {
                first_row.push_back(expert + row);
            }
        }
        first_row.push_back(pass.n_rows);
    }

    int64_t size() const { return int64_t(first_row.size()) - 1; }

    std::vector<int64_t> first_row;
};

// What one thread holds while it takes chunk after chunk.
class Worker {
public:
    explicit Worker(const Pass & pass) : pass_(pass), counter_(pass.nibbles, pass.zero_code) {}

    CodeCounts counts;

    Error process(int64_t first_row, int64_t n_rows) {
        const int64_t n_per_row = pass_.n_per_row;
        const int64_t in_row = pass_.source->row_bytes(n_per_row);
        in_.resize(size_t(n_rows * in_row));
        read_fully(pass_.in_file, in_.data(), n_rows * in_row, pass_.in_offset + first_row * in_row);
        const std::vector<char> * result = &in_;
        int64_t out_row = in_row;
        Error error;
        if (pass_.target) {
            out_row = pass_.target->row_bytes(n_per_row);
            out_.resize(size_t(n_rows * out_row));
            result = &out_;
        }
        if (pass_.target || pass_.check) {
            const int64_t tile = std::max<int64_t>(1, kTileWeights / n_per_row);
            for (int64_t row = 0; row < n_rows; row += tile) {
                const int64_t index = (first_row + row) * n_per_row;
                try {
                    transform(first_row + row, std::min(tile, n_rows - row), in_.data() + row * in_row,
                              pass_.target ? out_.data() + row * out_row : nullptr, error);
                } catch (const BadWeight & bad) {
                    throw BadWeight(bad.kind, index + bad.index, bad.value);
                }
            }
        }
        if (pass_.count) {
            counter_.count(result->data(), n_rows, n_per_row / kBlock, counts);
        }
        if (pass_.out_file >= 0) {
            write_fully(pass_.out_file, result->data(), n_rows * out_row,
                        pass_.out_offset + first_row * out_row);
        }
        return error;
    }

private:
    void transform(int64_t row, int64_t n_rows, const char * in, char * out, Error & error) {
        const int64_t n_per_row = pass_.n_per_row, n = n_rows * n_per_row;
        weights_.resize(size_t(n));
        pass_.source->decode(in, n_rows, n_per_row, weights_.data());
        if (!pass_.target) {
            check_finite(weights_.data(), n);
            return;
        }
        const float * importance =
            pass_.importance ? pass_.importance + row / pass_.rows_per_expert * n_per_row : nullptr;
        pass_.target->encode(weights_.data(), n_rows, n_per_row, importance, out);
        if (pass_.measure) {
            values_.resize(size_t(n));
            pass_.target->decode(out, n_rows, n_per_row, values_.data());
            measure(weights_.data(), values_.data(), n, row * n_per_row, error);
        }
    }

    const Pass & pass_;
    CodeCounter counter_;
    std::vector<char> in_, out_;
    std::vector<float> weights_, values_;
};

}  // namespace

PassResult run(const Pass & pass, const std::function<void(int64_t)> & tick) {
    const Chunks chunks(pass);
    const int64_t row_bytes = pass.source->row_bytes(pass.n_per_row);
    std::vector<Error> errors(size_t(chunks.size()));  // summed in order, whoever did them

    std::atomic<int64_t> next{0}, rows_done{0};
    std::atomic<bool> stop{false};
    std::mutex mutex;
    std::condition_variable finished;
    CodeCounts counts;
    int n_running = 0;
    std::exception_ptr failure;
    int64_t failed_chunk = chunks.size();

    auto work = [&] {
        Worker worker(pass);
        // A thread goes on to the end of the chunk it has, so of several bad chunks the first is named.
        while (!stop) {
            const int64_t chunk = next++;
            if (chunk >= chunks.size()) {
                break;
            }
            const int64_t first = chunks.first_row[size_t(chunk)];
            const int64_t n_rows = chunks.first_row[size_t(chunk) + 1] - first;
            try {
                errors[size_t(chunk)] = worker.process(first, n_rows);
            } catch (...) {
                const std::lock_guard<std::mutex> lock(mutex);
                stop = true;
                if (chunk < failed_chunk) {
                    failed_chunk = chunk;
                    failure = std::current_exception();
                }
            }
            rows_done += n_rows;
        }
        const std::lock_guard<std::mutex> lock(mutex);
        counts += worker.counts;
        --n_running;
        finished.notify_one();
    };

    const int n_threads = int(std::clamp<int64_t>(pass.n_threads, 1, std::max<int64_t>(chunks.size(), 1)));
    std::vector<std::thread> threads;
    n_running = n_threads;
    for (int t = 0; t < n_threads; ++t) {
        threads.emplace_back(work);
    }
    {
        std::unique_lock<std::mutex> lock(mutex);
        while (!finished.wait_for(lock, std::chrono::milliseconds(100), [&] { return n_running == 0; })) {
            lock.unlock();
            try {
                tick(rows_done * row_bytes);
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
    tick(pass.n_rows * row_bytes);

    PassResult result;
    for (const Error & error : errors) {
        result.error += error;
    }
    result.counts = counts;
    return result;
}

}  // namespace pyquant
