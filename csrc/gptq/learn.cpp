#include "gptq/learn.h"

#include <algorithm>

#include "gptq/scale_search.h"
#include "stream/chunks.h"
#include "stream/file.h"

namespace pyquant::gptq {

using namespace stream;

namespace {

TableLevels levels_of(const int8_t values[16]) {
    const uint8_t unused[16] = {};
    return TableLevels(values, unused, 16);
}

// x: kLanes rows, as floats; rows past n_rows are as good as zero.
void add_rows(const LearnPass & pass, const TableLevels & levels, const float * x, int64_t n_rows,
              Positions & sums) {
    for (int64_t first = 0; first < pass.n_per_row; first += kSub) {
        Floats block[kSub];
        for (int64_t k = 0; k < kSub; ++k) {
            for (int64_t row = 0; row < kLanes; ++row) {
                block[k][row] = row < n_rows ? x[row * pass.n_per_row + first + k] : 0.0f;
            }
        }
        const float * w = pass.weights + first;
        const Floats scale = search_scale(block, w, levels);
        const Floats inv = inverse(scale);
        for (int k = 0; k < kSub; ++k) {
            const Floats position = minimum(maximum(block[k] * inv, all(-127.99f)), all(127.99f));
            const Ints bin = __builtin_convertvector((position + 128.0f) * float(kBinsPerLevel), Ints);
            const Floats cost = w[k] * (scale * scale);
            for (int row = 0; row < kLanes; ++row) {
                sums[size_t(bin[row])] += double(cost[row]);
            }
        }
    }
}

}  // namespace

Positions find_positions(const LearnPass & pass, const std::function<void(int64_t)> & tick) {
    const int64_t row_bytes = pass.source->row_bytes(pass.n_per_row);
    const Chunks chunks(pass.n_rows, row_bytes, 0);
    const TableLevels levels = levels_of(pass.values);
    std::vector<Positions> found(size_t(chunks.size()), Positions{});  // summed in order, whoever did them
    share(
        chunks, chunks.n_threads(pass.n_threads),
        [&](int, int64_t chunk) {
            const int64_t first = chunks.first_row[size_t(chunk)], n_rows = chunks.n_rows(chunk);
            std::vector<char> bytes(size_t(n_rows * row_bytes));
            read_fully(pass.file, bytes.data(), n_rows * row_bytes, pass.offset + first * row_bytes);
            std::vector<float> x(size_t(kLanes * pass.n_per_row));
            for (int64_t row = 0; row < n_rows; row += kLanes) {
                const int64_t n = std::min<int64_t>(kLanes, n_rows - row);
                pass.source->decode(bytes.data() + row * row_bytes, n, pass.n_per_row, x.data());
                check_finite(x.data(), n * pass.n_per_row, (first + row) * pass.n_per_row);
                add_rows(pass, levels, x.data(), n, found[size_t(chunk)]);
            }
        },
        tick);
    Positions sums{};
    for (const Positions & part : found) {
        std::transform(sums.begin(), sums.end(), part.begin(), sums.begin(), std::plus<>());
    }
    return sums;
}

}  // namespace pyquant::gptq
