#include "stream/pass.h"

#include <algorithm>
#include <vector>

#include "stream/chunks.h"
#include "stream/file.h"

namespace pyquant::stream {

using namespace kernels;

namespace {

int64_t rows_together(const Pass & pass) {
    return pass.target ? pass.target->rows_together() : 1;
}

// State of one thread while it takes chunk after chunk.
class Worker {
public:
    explicit Worker(const Pass & pass) : pass_(pass), counter_(pass.nibbles, pass.zero_code) {}

    CodeCounts counts;

    Error process(int64_t first_row, int64_t n_rows) {
        const int64_t n_per_row = pass_.n_per_row;
        const int64_t in_row = pass_.source->row_bytes(n_per_row);
        const char * in = read(first_row * in_row, n_rows * in_row);
        const char * result = in;
        int64_t out_row = in_row;
        Error error;
        if (pass_.target) {
            out_row = pass_.target->row_bytes(n_per_row);
            out_.resize(size_t(n_rows * out_row));
            result = out_.data();
        }
        if (pass_.target || pass_.check) {
            const int64_t tile = std::max(rows_together(pass_), kTileWeights / n_per_row);
            for (int64_t row = 0; row < n_rows; row += tile) {
                const int64_t index = (first_row + row) * n_per_row;
                try {
                    transform(first_row + row, std::min(tile, n_rows - row), in + row * in_row,
                              pass_.target ? out_.data() + row * out_row : nullptr, error);
                } catch (const BadWeight & bad) {
                    throw BadWeight(index + bad.index, bad.value);
                }
            }
        }
        if (pass_.count) {
            counter_.count(result, n_rows, n_per_row / kBlock, counts);
        }
        if (pass_.out_file >= 0) {
            write_fully(pass_.out_file, result, n_rows * out_row, pass_.out_offset + first_row * out_row);
        }
        return error;
    }

private:
    const char * read(int64_t begin, int64_t n_bytes) {
        if (pass_.in_memory) {
            return static_cast<const char *>(pass_.in_memory) + begin;
        }
        in_.resize(size_t(n_bytes));
        read_fully(pass_.in_file, in_.data(), n_bytes, pass_.in_offset + begin);
        return in_.data();
    }

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
        pass_.target->encode(weights_.data(), row, n_rows, n_per_row, importance, out);
        if (!pass_.measure && !pass_.copy) {
            return;
        }
        values_.resize(size_t(n));
        pass_.target->decode(out, n_rows, n_per_row, values_.data());
        if (pass_.measure) {
            measure(weights_.data(), values_.data(), n, row * n_per_row, error);
        }
        if (pass_.copy) {
            char * copy = static_cast<char *>(pass_.copy) + row * pass_.copy_as->row_bytes(n_per_row);
            pass_.copy_as->encode(values_.data(), row, n_rows, n_per_row, nullptr, copy);
        }
    }

    const Pass & pass_;
    CodeCounter counter_;
    std::vector<char> in_, out_;
    std::vector<float> weights_, values_;
};

}  // namespace

PassResult run(const Pass & pass, const std::function<void(int64_t)> & tick) {
    const Chunks chunks(pass.n_rows, pass.source->row_bytes(pass.n_per_row), pass.rows_per_expert,
                        rows_together(pass));
    std::vector<Worker> workers(size_t(chunks.n_threads(pass.n_threads)), Worker(pass));
    PassResult result;
    for (const Error & error : process_all(chunks, workers, tick)) {
        result.error += error;
    }
    for (const Worker & worker : workers) {
        result.counts += worker.counts;
    }
    return result;
}

}  // namespace pyquant::stream
