#include "stream/compare.h"

#include <algorithm>
#include <vector>

#include "kernels/block.h"
#include "stream/chunks.h"
#include "stream/file.h"

namespace pyquant::stream {

using namespace kernels;

namespace {

struct Sums {
    Error error;
    WeightedError weighted;
};

// A chunk of one of the two tensors: its bytes, and a tile of them as floats.
class Side {
public:
    Side(const StoredTensor & tensor, int64_t n_per_row)
        : tensor_(tensor),
          n_per_row_(n_per_row),
          row_bytes_(tensor.decoder->row_bytes(n_per_row)) {}

    void read(int64_t first_row, int64_t n_rows) {
        bytes_.resize(size_t(n_rows * row_bytes_));
        read_fully(tensor_.file, bytes_.data(), n_rows * row_bytes_, tensor_.offset + first_row * row_bytes_);
    }

    const float * decode(int64_t row, int64_t n_rows) {
        weights_.resize(size_t(n_rows * n_per_row_));
        tensor_.decoder->decode(bytes_.data() + row * row_bytes_, n_rows, n_per_row_, weights_.data());
        return weights_.data();
    }

    const char * bytes() const { return bytes_.data(); }

private:
    StoredTensor tensor_;
    int64_t n_per_row_, row_bytes_;
    std::vector<char> bytes_;
    std::vector<float> weights_;
};

// State of one thread while it takes chunk after chunk.
class Worker {
public:
    explicit Worker(const Comparison & comparison)
        : comparison_(comparison),
          base_(comparison.base, comparison.n_per_row),
          other_(comparison.other, comparison.n_per_row),
          counter_(comparison.nibbles, comparison.zero_code) {}

    CodeCounts counts;

    Sums process(int64_t first_row, int64_t n_rows) {
        const int64_t n_per_row = comparison_.n_per_row;
        base_.read(first_row, n_rows);
        other_.read(first_row, n_rows);
        const float * importance =
            comparison_.importance
                ? comparison_.importance + first_row / comparison_.rows_per_expert * n_per_row
                : nullptr;
        Sums sums;
        const int64_t tile = std::max<int64_t>(1, kTileWeights / n_per_row);
        for (int64_t row = 0; row < n_rows; row += tile) {
            const int64_t n = std::min(tile, n_rows - row);
            const float * x = base_.decode(row, n);
            const float * y = other_.decode(row, n);
            measure(x, y, n * n_per_row, (first_row + row) * n_per_row, sums.error);
            for (int64_t i = 0; importance && i < n; ++i) {
                measure_weighted(x + i * n_per_row, y + i * n_per_row, importance, n_per_row, sums.weighted);
            }
        }
        if (comparison_.count) {
            counter_.count(other_.bytes(), n_rows, n_per_row / kBlock, counts);
        }
        return sums;
    }

private:
    const Comparison & comparison_;
    Side base_, other_;
    CodeCounter counter_;
};

}  // namespace

ComparisonResult compare(const Comparison & comparison, const std::function<void(int64_t)> & tick) {
    const int64_t n_per_row = comparison.n_per_row;
    const int64_t row_bytes =
        comparison.base.decoder->row_bytes(n_per_row) + comparison.other.decoder->row_bytes(n_per_row);
    const Chunks chunks(comparison.n_rows, row_bytes, comparison.rows_per_expert);
    std::vector<Worker> workers(size_t(chunks.n_threads(comparison.n_threads)), Worker(comparison));
    ComparisonResult result;
    for (const Sums & chunk : process_all(chunks, workers, tick)) {
        result.error += chunk.error;
        result.weighted += chunk.weighted;
    }
    for (const Worker & worker : workers) {
        result.counts += worker.counts;
    }
    return result;
}

}  // namespace pyquant::stream
