// Runs every kernel, products in BF16 and the sharing of work between threads over buffers of exactly
// the size they may touch; compiled with sanitizers by test_sanitizers.py. Weights come from the first
// argument (blocks of 32 floats of any bits); what the kernels make of them goes to the second, for Python
// to compare with the build under test: for every block Q4_0 (18 bytes) and Q8_0 (34), zeros where it has
// no encoding, then all 65536 halves as floats and these back as halves.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "calibrate/bf16_strips.h"
#include "calibrate/token_products.h"
#include "kernels/block.h"
#include "kernels/count.h"
#include "kernels/error.h"
#include "kernels/half.h"
#include "kernels/kld.h"
#include "kernels/scheme.h"
#include "kernels/table_product.h"
#include "stream/chunks.h"
#include "support.h"

using namespace pyquant::calibrate;
using namespace pyquant::kernels;
using namespace pyquant::stream;

namespace {

std::vector<char> read(const char * path) {
    std::FILE * file = std::fopen(path, "rb");
    expect(file != nullptr, "the weights can be read");
    std::vector<char> bytes;
    for (int c; (c = std::fgetc(file)) != EOF;) {
        bytes.push_back(char(c));
    }
    std::fclose(file);
    return bytes;
}

Scheme stock(Grid grid) {
    Scheme scheme{grid, grid == Grid::q4_0 ? Storage::q4_0 : Storage::q8_0, {}, {}};
    for (int code = 0; code < 256; ++code) {
        const int value = int8_t(code);
        scheme.value[size_t(code)] = int8_t(grid == Grid::q4_0 ? std::min(std::max(value, -8), 7) : value);
    }
    return scheme;
}

std::vector<char> encode_blocks(const float * x, int64_t n_blocks, Grid grid) {
    Scheme scheme = stock(grid);
    const int64_t size = storage_bytes(scheme.storage, 1);
    std::vector<char> all;
    std::vector<bool> encodes;
    for (int64_t i = 0; i < n_blocks; ++i) {
        const auto weights = exactly(x + i * kBlock, kBlock);
        std::unique_ptr<char[]> block(new char[size_t(size)]());
        encodes.push_back(encode(scheme, weights.get(), 1, block.get()) == 1);
        if (!encodes.back()) {
            std::fill_n(block.get(), size, char(0));
        }
        all.insert(all.end(), block.get(), block.get() + size);
    }
    for (int64_t begin = 0, n = 1; begin + n <= n_blocks; begin += n, n = n % 7 + 1) {  // several at once
        const auto weights = exactly(x + begin * kBlock, size_t(n * kBlock));
        std::unique_ptr<char[]> blocks(new char[size_t(n * size)]);
        const int64_t n_encoded = encode(scheme, weights.get(), n, blocks.get());
        expect(std::equal(blocks.get(), blocks.get() + n_encoded * size, all.data() + begin * size),
               "blocks are encoded alike alone and together");
        expect(n_encoded == n || !encodes[size_t(begin + n_encoded)], "the first bad block is named");
        std::unique_ptr<float[]> values(new float[size_t(n * kBlock)]);
        decode(scheme.storage, blocks.get(), n_encoded, values.get());
        for (int8_t & value : scheme.value) {  // a fold, and blocks of any bits
            value = int8_t(value / 2);
        }
        const auto any = exactly(reinterpret_cast<const char *>(x + begin * kBlock), size_t(n * size));
        fold(scheme, any.get(), n);
        encode(scheme, weights.get(), n, blocks.get());
        decode(scheme.storage, any.get(), n, values.get());
        scheme.storage = Storage::q4_t;
        for (int8_t & value : scheme.value) {
            value = value & 15;
        }
        std::unique_ptr<BlockQ4_0[]> q4_t(new BlockQ4_0[size_t(n)]);
        expect(encode(scheme, weights.get(), n, q4_t.get()) == n_encoded,
               "with a table or without, the same blocks encode");
        scheme = stock(grid);
    }
    return all;
}

void measure_all(const float * x, int64_t n_weights) {
    for (int64_t n = 0; n < 70 && 2 * n <= n_weights; ++n) {
        const auto a = exactly(x, size_t(n)), b = exactly(x + n, size_t(n));
        Error error;
        WeightedError weighted;
        if (n > 0) {
            measure(a.get(), b.get(), n, 5, error);
            expect(error.largest_at >= 5 && error.largest_at < n + 5, "the largest error has a place");
        }
        measure_weighted(a.get(), b.get(), a.get(), n, weighted);
    }
}

// Codes and scales of any bits, in blocks of exactly the size, on every path of this CPU.
void multiply_all(const char * bytes) {
    Table table;
    std::copy_n(bytes, 16, table);
    for (int n_rows = 1; n_rows <= kGroup; n_rows += 3) {
        for (int64_t n_blocks = 1; n_blocks < 4; ++n_blocks) {
            const auto rows = exactly(reinterpret_cast<const BlockQ4_0 *>(bytes), size_t(n_rows * n_blocks));
            std::unique_ptr<TableGroup[]> group(new TableGroup[size_t(n_blocks)]);
            interleave(rows.get(), n_rows, n_blocks, group.get());
            std::unique_ptr<float[]> values(new float[size_t(n_blocks * kBlock)]);
            decode_table(table, rows.get(), n_blocks, values.get());
            std::unique_ptr<BlockQ8_0[]> expanded(new BlockQ8_0[size_t(n_blocks)]);
            expand(table, Storage::q8_0, rows.get(), n_blocks, expanded.get());
            for (int n_columns = 1; n_columns <= kTile; ++n_columns) {
                std::unique_ptr<Activations[]> x(new Activations[size_t(n_columns * n_blocks)]);
                for (int64_t i = 0; i < n_columns * n_blocks; ++i) {
                    x[size_t(i)] = activations(expanded[size_t(i % n_blocks)]);
                }
                std::unique_ptr<float[]> y(new float[size_t(n_columns * kGroup)]);
                for (const Path path : {Path::portable, Path::avx2, Path::avx512_vnni, Path::neon_dotprod}) {
                    if (has_path(path)) {
                        multiply(path)(group.get(), table, x.get(), n_columns, n_blocks, n_columns, y.get());
                    }
                }
            }
        }
    }
}

// Threads round tokens' numbers and sum up their products, and those with a matrix's rows.
void multiply_tokens(const float * x, int64_t n_weights) {
    if (!Bf16Strips::supported()) {
        return;
    }
    for (const int64_t n_y : {1, 63, 64, 66, 257, 600}) {
        for (const int64_t n : {1, 2, 5}) {
            const int64_t n_z = n_y / 2 + 1;
            expect(n * n_y <= n_weights, "there are enough weights");
            const auto y = exactly(x, size_t(n * n_y)), z = exactly(x, size_t(n * n_z));
            std::vector<float> hessian(size_t(n_y * n_y)), moved(size_t(n_z * n_y)), product(size_t(n * n));
            auto row = std::vector<float>(size_t(n_y));
            const Rows of_y{y.get(), n, n_y}, of_z{z.get(), n, n_z};
            add_token_products(of_y, n_y, of_z, n_z, 2, hessian.data(), moved.data());
            multiply_rows(of_y, of_y, n_y, 2, product.data());
            multiply_columns({y.get(), 1, n}, of_y, n_y, 2, row.data());
        }
    }
}

void count_all(const char * bytes, int64_t size) {
    for (const bool nibbles : {true, false}) {
        const int64_t block_bytes = nibbles ? sizeof(BlockQ4_0) : sizeof(BlockQ8_0);
        CodeCounter counter(nibbles, 8);
        for (const int64_t blocks_per_row : {1, 2, 3, 4, 5, 9, 3, 1}) {  // shorter rows after longer ones
            const int64_t n_rows = std::min<int64_t>(5, size / (block_bytes * blocks_per_row));
            const auto blocks = exactly(bytes, size_t(n_rows * blocks_per_row * block_bytes));
            CodeCounts counts;
            counter.count(blocks.get(), n_rows, blocks_per_row, counts);
            uint64_t n_codes = 0;
            for (const uint64_t n : counts.codes) {
                n_codes += n;
            }
            expect(n_codes == uint64_t(n_rows * blocks_per_row * kBlock), "every code is counted");
        }
    }
}

void score_all(const float * x, int64_t n_weights) {
    for (int64_t n_vocab = 1; n_vocab < 70; n_vocab += 3) {
        const int64_t n_rows = std::min<int64_t>(7, n_weights / n_vocab);
        std::vector<float> finite(x, x + n_rows * n_vocab);
        for (float & logit : finite) {
            logit = std::isfinite(logit) ? logit : 0;
        }
        const auto logits = exactly(finite.data(), finite.size());
        std::vector<int32_t> last(size_t(n_rows), int32_t(n_vocab - 1));
        const auto targets = exactly(last.data(), last.size());
        const size_t n = size_t(n_rows);
        std::unique_ptr<double[]> nll(new double[n]), kld(new double[n]), overlap(new double[n]);
        std::unique_ptr<uint8_t[]> same_top(new uint8_t[n]);
        for (const int n_threads : {1, 3, 20}) {
            negative_log_likelihood(logits.get(), n_rows, n_vocab, targets.get(), nll.get(), n_threads);
            compare_logits(logits.get(), logits.get(), n_rows, n_vocab, targets.get(),
                           {nll.get(), kld.get(), same_top.get(), overlap.get()}, n_threads);
        }
    }
}

void share_all() {
    const Chunks chunks(1000, 1 << 17, 500);  // 126 chunks, of 8 rows but for the last of each half
    for (const int n_threads : {1, 2, 8}) {
        std::vector<int64_t> rows(size_t(chunks.n_threads(n_threads)));
        std::vector<int64_t> done(size_t(chunks.size()));
        int64_t ticks = 0, bytes = 0;
        share(
            chunks, n_threads,
            [&](int thread, int64_t chunk) {
                rows[size_t(thread)] += chunks.n_rows(chunk);
                ++done[size_t(chunk)];
            },
            [&](int64_t n_bytes) { ++ticks, bytes = n_bytes; });
        int64_t sum = 0;
        for (const int64_t n : rows) {
            sum += n;
        }
        expect(sum == 1000 && bytes == 1000 << 17 && ticks > 0, "every row is worked on");
        expect(std::count(done.begin(), done.end(), 1) == chunks.size(), "every chunk is done once");
        try {
            share(
                chunks, n_threads,
                [&](int, int64_t chunk) {
                    if (chunk >= 40) {
                        throw std::runtime_error(std::to_string(chunk));
                    }
                },
                [](int64_t) {});
            expect(false, "a failure is told");
        } catch (const std::runtime_error & error) {
            expect(error.what() == std::string("40"), "the first failure is told");
        }
    }
}

}  // namespace

int main(int argc, char ** argv) {
    expect(argc == 3, "arguments are a file of weights and one for results");
    const std::vector<char> bytes = read(argv[1]);
    const int64_t n_weights = int64_t(bytes.size() / sizeof(float)), n_blocks = n_weights / kBlock;
    std::vector<float> x(static_cast<size_t>(n_weights));
    std::memcpy(x.data(), bytes.data(), bytes.size());

    std::FILE * out = std::fopen(argv[2], "wb");
    expect(out != nullptr, "results can be written");
    for (const Grid grid : {Grid::q4_0, Grid::q8_0}) {
        const std::vector<char> blocks = encode_blocks(x.data(), n_blocks, grid);
        std::fwrite(blocks.data(), 1, blocks.size(), out);
    }
    std::vector<uint16_t> halves(1 << 16);
    for (size_t i = 0; i < halves.size(); ++i) {
        halves[i] = uint16_t(i);
    }
    std::vector<float> floats(halves.size());
    halves_to_floats(halves.data(), int64_t(halves.size()), floats.data());
    std::fwrite(floats.data(), sizeof(float), floats.size(), out);
    for (const float value : x) {
        const uint16_t half = float_to_half(value);
        std::fwrite(&half, sizeof half, 1, out);
    }
    std::fclose(out);

    measure_all(x.data(), n_weights);
    count_all(bytes.data(), int64_t(bytes.size()));
    multiply_all(bytes.data());
    multiply_tokens(x.data(), n_weights);
    score_all(x.data(), n_weights);
    share_all();
}
