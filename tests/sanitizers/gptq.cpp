// Rounding with errors passed on, by every format: rows of ordinary and of odd weights, of inputs with and
// without Hessian statistics; and what a table is learned from.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "gptq/encoders.h"
#include "gptq/learn.h"
#include "gptq/row_feedback.h"
#include "support.h"

using namespace pyquant;
using namespace pyquant::gptq;
using namespace pyquant::stream;

namespace {

constexpr int64_t kColumns = 512;  // two super-blocks

std::vector<float> hessian(std::mt19937 & random, int64_t n) {
    std::normal_distribution<float> normal;
    std::vector<float> x(size_t(2 * n * n)), h(size_t(n * n));
    for (int64_t t = 0; t < 2 * n; ++t) {
        const float shared = normal(random);
        for (int64_t i = 0; i < n; ++i) {
            x[size_t(t * n + i)] = (normal(random) + shared) * float(1 + i % 7);
        }
    }
    for (int64_t t = 0; t < 2 * n; ++t) {
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t j = 0; j < n; ++j) {
                h[size_t(i * n + j)] += x[size_t(t * n + i)] * x[size_t(t * n + j)] / float(2 * n);
            }
        }
    }
    return h;
}

// Rows whose scales are ordinary, 0, subnormal, without an inverse, and of one sign.
std::vector<float> rows_of_weights(std::mt19937 & random, int64_t n_rows) {
    std::normal_distribution<float> normal;
    std::vector<float> x(size_t(n_rows * kColumns));
    for (int64_t row = 0; row < n_rows; ++row) {
        const float size[] = {0.1f, 0, 0x1p-24f, 1e-30f, 1e-42f, 1e4f};
        for (int64_t k = 0; k < kColumns; ++k) {
            const float weight = normal(random) * size[row % 6];
            x[size_t(row * kColumns + k)] = row % 5 == 4 ? std::fabs(weight) : weight;
        }
    }
    return x;
}

// The same bytes whether rows come alone or with others, and nothing beside them is touched.
void encode_rows(const Encoder & encoder, const std::vector<float> & x) {
    const int64_t n_rows = int64_t(x.size()) / kColumns, row_bytes = encoder.row_bytes(kColumns);
    std::unique_ptr<char[]> all(new char[size_t(n_rows * row_bytes)]);
    encoder.encode(exactly(x.data(), x.size()).get(), 0, n_rows, kColumns, nullptr, all.get());
    for (const int64_t n : {int64_t(1), int64_t(17), n_rows - 1}) {
        const auto first = exactly(x.data(), size_t(n * kColumns));
        std::unique_ptr<char[]> some(new char[size_t(n * row_bytes)]);
        encoder.encode(first.get(), 0, n, kColumns, nullptr, some.get());
        expect(std::memcmp(all.get(), some.get(), size_t(n * row_bytes)) == 0,
               "rows do not know of each other");
        std::unique_ptr<float[]> values(new float[size_t(n * kColumns)]);
        encoder.decode(some.get(), n, kColumns, values.get());
        for (int64_t k = 0; k < n * kColumns; ++k) {
            expect(std::isfinite(values[size_t(k)]), "what is stored is finite");
        }
    }
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        std::vector<float> damaged = x;
        damaged[size_t(2 * kColumns + 300)] = bad;
        try {
            encoder.encode(damaged.data(), 0, n_rows, kColumns, nullptr, all.get());
            expect(false, "weights that are not finite are refused");
        } catch (const BadWeight & error) {
            expect(error.index == 2 * kColumns + 300, "the bad weight is named");
        }
    }
    std::vector<float> huge = x;
    huge[5] = 1e35f;
    try {
        encoder.encode(huge.data(), 0, n_rows, kColumns, nullptr,
                       all.get());  // uniform codes have room for all
    } catch (const BadWeight & error) {
        expect(error.index == 5, "the weight that is too large is named");
    }
}

void encode_by_every_format(const std::shared_ptr<const Factor> & factor, Together together,
                            const std::vector<float> & x) {
    for (const ggml_type type : gptq_types()) {
        const Together of_type = columns_together(type);
        if (of_type.group == together.group && of_type.scale == together.scale &&
            of_type.block == together.block) {
            std::vector<float> rows = x;
            for (float & weight : rows) {  // NVFP4 holds none that are larger
                weight = type == GGML_TYPE_NVFP4 ? std::clamp(weight, -2688.0f, 2688.0f) : weight;
            }
            encode_rows(*gptq_encoder(type, factor), rows);
        }
    }
    if (together.block != kSub) {
        return;
    }
    encode_rows(*ecsq_encoder({kernels::float_to_half(0.0123f)}, factor), x);
    std::vector<uint16_t> steps;
    for (int64_t row = 0; row < int64_t(x.size()) / kColumns; ++row) {
        steps.push_back(kernels::float_to_half(0.01f * float(1 + row % 3)));
    }
    encode_rows(*ecsq_encoder(steps, factor), x);
    const int8_t values[] = {-8, -7, -6, -3, 0, 1, 3, 5, 7};
    const uint8_t codes[] = {0, 1, 2, 5, 8, 9, 11, 13, 15};
    kernels::Table table{};
    for (int i = 0; i < 16; ++i) {
        table[i] = int8_t(8 * i - 60);
    }
    const auto n_values = int(std::size(values));
    for (const int n : {1, 2, n_values}) {
        for (const kernels::Storage storage :
             {kernels::Storage::q4_0, kernels::Storage::q8_0, kernels::Storage::q4_t}) {
            const auto some = exactly(values, size_t(n));
            const auto their_codes = exactly(codes, size_t(n));
            encode_rows(*gptq_table_encoder(storage, some.get(), their_codes.get(), n, table, factor), x);
        }
    }
}

// Rows that absorb the errors of those before them, of a factor that is filled up to 64.
void absorb(const Encoder & encoder, const std::vector<float> & h, const std::vector<float> & x) {
    const int64_t n_rows = int64_t(x.size()) / kColumns, filled_up = (n_rows + kSub - 1) / kSub * kSub;
    std::vector<float> of_outputs(size_t(filled_up * filled_up));
    for (int64_t i = 0; i < n_rows; ++i) {
        std::copy_n(&h[size_t(i * kColumns)], n_rows, &of_outputs[size_t(i * filled_up)]);
    }
    const Factor rows = factorize(of_outputs.data(), filled_up, 1, {1, 1, 1}, 2);
    const auto size = size_t(n_rows * encoder.row_bytes(kColumns));
    const auto weights = exactly(x.data(), x.size());
    std::unique_ptr<uint8_t[]> alone(new uint8_t[size]), shared(new uint8_t[size]);
    std::unique_ptr<float[]> values(new float[x.size()]);
    for (const int64_t together : {int64_t(kSub), filled_up}) {
        round_rows(weights.get(), n_rows, kColumns, rows, together, encoder, 1, alone.get(), values.get());
        round_rows(weights.get(), n_rows, kColumns, rows, together, encoder, 3, shared.get(), values.get());
        expect(std::memcmp(alone.get(), shared.get(), size) == 0, "rows do not depend on threads");
    }
}

void refuse(const std::vector<float> & h) {
    std::vector<float> negative = h, not_a_number = h;
    negative[0] = -1e9f;
    not_a_number[kColumns + 1] = std::numeric_limits<float>::quiet_NaN();
    for (const std::vector<float> & bad : {negative, not_a_number}) {
        expect_error<std::domain_error>([&] { factorize(bad.data(), kColumns, 0.01f, {1, kSub, kSub}, 2); },
                                        "hessian that are not positive definite are refused");
    }
    const auto factor =
        std::make_shared<const Factor>(factorize(h.data(), kColumns, 0.01f, {1, kSub, kSub}, 2));
    expect_error<std::invalid_argument>([&] { gptq_encoder(GGML_TYPE_Q4_K, factor); },
                                        "a factor that parts columns is refused");
    expect_error<std::invalid_argument>([&] { gptq_encoder(GGML_TYPE_F32, factor); },
                                        "a type without a format is refused");
    const auto encoder = gptq_encoder(GGML_TYPE_Q4_0, factor);
    std::vector<float> x(kColumns / 2);
    std::vector<char> out(size_t(encoder->row_bytes(kColumns)));
    expect_error<std::invalid_argument>(
        [&] { encoder->encode(x.data(), 0, 1, kColumns / 2, nullptr, out.data()); },
        "rows of another length are refused");
}

void learn(std::mt19937 & random) {
    const int64_t n_rows = 2500;  // three chunks, the last with fewer rows than there are lanes
    std::vector<float> x = rows_of_weights(random, n_rows);
    const ScratchFile file;
    write_fully(file.descriptor(), x.data(), int64_t(x.size() * sizeof(float)), 64);
    const auto weights = exactly(std::vector<float>(kColumns, 0.5f).data(), kColumns);
    const auto source = ggml_decoder(GGML_TYPE_F32);
    LearnPass pass{file.descriptor(), 64, n_rows, kColumns, source.get(), weights.get(), {}, 1};
    for (int i = 0; i < 16; ++i) {
        pass.values[i] = int8_t(16 * i - 120);
    }
    const Positions alone = find_positions(pass, [](int64_t) {});
    pass.n_threads = 3;
    expect(find_positions(pass, [](int64_t) {}) == alone, "positions do not depend on threads");
    pass.offset = 65 * 64;
    expect_error<ReadError>([&] { find_positions(pass, [](int64_t) {}); }, "a file that ends early is named");
}

}  // namespace

int main() {
    std::mt19937 random(1);
    const std::vector<float> h = hessian(random, kColumns), x = rows_of_weights(random, 35);
    const auto exact_h = exactly(h.data(), h.size());
    const auto weights = exactly(h.data(), kColumns);
    std::vector<float> dead = h;  // an input that is always 0
    for (int64_t i = 0; i < kColumns; ++i) {
        dead[size_t(70 * kColumns + i)] = dead[size_t(i * kColumns + 70)] = 0;
    }
    for (const Together together :
         {Together{1, 32, 32}, Together{1, 32, 256}, Together{1, 16, 64}, Together{1, 16, 256},
          Together{4, 32, 256}, Together{8, 32, 256}, Together{8, 16, 256}}) {
        for (const float * known : {exact_h.get(), dead.data()}) {
            const auto factor =
                std::make_shared<const Factor>(factorize(known, kColumns, 0.01f, together, 2));
            encode_by_every_format(factor, together, x);
        }
        encode_by_every_format(std::make_shared<const Factor>(independent(weights.get(), kColumns)), together,
                               x);
    }
    const auto factor =
        std::make_shared<const Factor>(factorize(h.data(), kColumns, 0.01f, {1, kSub, kSub}, 2));
    absorb(*gptq_encoder(GGML_TYPE_Q4_0, factor), h, x);
    refuse(h);
    learn(random);
}
