// Passes over tensors in files: of odd sizes, by several threads, with weights that cannot be encoded,
// with files that end early or cannot be written, and ended in the middle.
#include <fcntl.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>

#include "stream/compare.h"
#include "stream/pass.h"
#include "support.h"

using namespace pyquant::kernels;
using namespace pyquant::stream;

namespace {

const auto kNoTick = [](int64_t) {};

struct Shape {
    int64_t n_rows, n_per_row, rows_per_expert;
};
// The last of several chunks is short; experts end within what would be a chunk.
constexpr Shape kShapes[] = {{1, 32, 0}, {7, 96, 0}, {3000, 96, 0}, {1300, 256, 650}, {9001, 32, 9001}};

std::vector<float> weights(std::mt19937 & random, const Shape & shape) {
    std::normal_distribution<float> normal;
    std::vector<float> x(size_t(shape.n_rows * shape.n_per_row));
    for (float & weight : x) {
        weight = normal(random);
    }
    return x;
}

Scheme q4_0_scheme() {
    Scheme scheme{Grid::q4_0, Storage::q4_0, {}, {}};
    for (int code = 0; code < 256; ++code) {
        scheme.value[size_t(code)] = int8_t(std::clamp(int(int8_t(code)), -8, 7));
    }
    return scheme;
}

// A tensor in a file, behind bytes that are not its own; source: how it is stored there.
class Tensor {
public:
    Tensor(const Shape & shape, ggml_type type, const std::vector<float> & x)
        : shape_(shape),
          encoder_(ggml_encoder(type)) {
        std::vector<char> stored(size_t(encoder_->row_bytes(shape.n_per_row) * shape.n_rows));
        encoder_->encode(x.data(), 0, shape.n_rows, shape.n_per_row, nullptr, stored.data());
        file_.write(stored, kOffset);
    }

    Pass pass(const Encoder * target) const {
        Pass pass{file_.descriptor(), kOffset, shape_.n_rows, shape_.n_per_row, encoder_.get()};
        pass.target = target;
        pass.rows_per_expert = shape_.rows_per_expert;
        pass.check = pass.measure = true;
        return pass;
    }

    StoredTensor stored() const { return {file_.descriptor(), kOffset, encoder_.get()}; }

    void cut(int64_t n_bytes) const {
        expect(ftruncate(file_.descriptor(), file_.size() - n_bytes) == 0, "a file can be cut");
    }

    static constexpr int64_t kOffset = 37;

private:
    Shape shape_;
    std::unique_ptr<Encoder> encoder_;
    ScratchFile file_;
};

void convert(std::mt19937 & random) {
    const auto scheme = scheme_encoder(q4_0_scheme());
    const auto stock = ggml_encoder(GGML_TYPE_Q8_0), halves = ggml_encoder(GGML_TYPE_F16);
    for (const Shape & shape : kShapes) {
        const std::vector<float> x = weights(random, shape);
        const int64_t n_experts = shape.rows_per_expert ? shape.n_rows / shape.rows_per_expert : 1;
        const auto importance = exactly(std::vector<float>(size_t(n_experts * shape.n_per_row), 0.5f).data(),
                                        size_t(n_experts * shape.n_per_row));
        for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16}) {
            const Tensor tensor(shape, type, x);
            for (const Encoder * target :
                 {scheme.get(), stock.get(), halves.get(), static_cast<Encoder *>(nullptr)}) {
                Pass pass = tensor.pass(target);
                pass.count = target == scheme.get() || target == stock.get();
                pass.nibbles = target == scheme.get();
                pass.zero_code = pass.nibbles ? 8 : 0;
                if (shape.rows_per_expert && target == scheme.get()) {
                    pass.importance = importance.get();
                }
                std::vector<char> first;
                for (const int n_threads : {1, 2, 5}) {
                    const ScratchFile out;
                    pass.out_file = out.descriptor(), pass.out_offset = 11, pass.n_threads = n_threads;
                    int64_t told = 0;
                    const PassResult result = run(pass, [&](int64_t bytes) { told = bytes; });
                    expect(told == shape.n_rows * pass.source->row_bytes(shape.n_per_row),
                           "all of it is read");
                    uint64_t n_codes = 0;
                    for (const uint64_t n : result.counts.codes) {
                        n_codes += n;
                    }
                    expect(!pass.count || n_codes == x.size(), "every code is counted");
                    const std::vector<char> bytes = out.bytes();
                    first = first.empty() ? bytes : first;
                    expect(bytes == first, "threads change nothing");
                }
            }
        }
    }
}

// Rows that are in memory, and the values they get put where they are wanted.
void convert_in_memory(std::mt19937 & random) {
    const auto target = scheme_encoder(q4_0_scheme()), copy_as = ggml_encoder(GGML_TYPE_F16);
    const auto floats = ggml_decoder(GGML_TYPE_F32);
    for (const Shape & shape : kShapes) {
        const std::vector<float> x = weights(random, shape);
        const auto rows = exactly(x.data(), x.size());
        const Tensor tensor(shape, GGML_TYPE_F32, x);
        const ScratchFile expected, out;
        Pass from_file = tensor.pass(target.get());
        from_file.out_file = expected.descriptor();
        run(from_file, kNoTick);
        std::vector<float> values(x.size());
        target->decode(expected.bytes().data(), shape.n_rows, shape.n_per_row, values.data());
        std::vector<char> halves(size_t(copy_as->row_bytes(shape.n_per_row) * shape.n_rows));
        copy_as->encode(values.data(), 0, shape.n_rows, shape.n_per_row, nullptr, halves.data());

        const std::unique_ptr<char[]> copy(new char[halves.size()]);
        Pass pass{-1, 0, shape.n_rows, shape.n_per_row, floats.get(), rows.get()};
        pass.target = target.get(), pass.n_threads = 3, pass.out_file = out.descriptor();
        pass.copy = copy.get(), pass.copy_as = copy_as.get();
        run(pass, kNoTick);
        expect(out.bytes() == expected.bytes(), "rows in memory become what rows of a file become");
        expect(std::equal(halves.begin(), halves.end(), copy.get()),
               "the copy has the values of what was written");
    }
}

void compare_tensors(std::mt19937 & random) {
    for (const Shape & shape : kShapes) {
        const std::vector<float> x = weights(random, shape);
        const Tensor base(shape, GGML_TYPE_F32, x), other(shape, GGML_TYPE_Q4_0, x);
        Comparison comparison{shape.n_rows, shape.n_per_row, base.stored(), other.stored()};
        const int64_t rows = shape.rows_per_expert ? shape.rows_per_expert : shape.n_rows;
        const std::vector<float> half(size_t(shape.n_rows / rows * shape.n_per_row), 0.5f);
        const auto importance = exactly(half.data(), half.size());
        comparison.importance = importance.get(), comparison.rows_per_expert = rows;
        comparison.count = comparison.nibbles = true, comparison.zero_code = 8;
        double squared_error = 0;
        for (const int n_threads : {1, 2, 5}) {
            comparison.n_threads = n_threads;
            const ComparisonResult result = compare(comparison, kNoTick);
            squared_error = n_threads == 1 ? result.error.squared_error : squared_error;
            expect(result.error.squared_error == squared_error && squared_error > 0, "threads change no sum");
        }
        other.cut(1);
        expect_error<ReadError>([&] { compare(comparison, kNoTick); }, "a tensor that is cut is named");
    }
}

// The first of several bad weights is named, whoever comes upon it.
void find_bad_weights(std::mt19937 & random) {
    const Shape shape{9001, 96, 0};
    std::vector<float> x = weights(random, shape);
    const int64_t first = 5000 * shape.n_per_row + 17;
    const auto scheme = scheme_encoder(q4_0_scheme());
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), 1e35f}) {
        x[size_t(first)] = x[size_t(8000 * shape.n_per_row)] = bad;
        const ScratchFile in;
        write_fully(in.descriptor(), x.data(), int64_t(x.size() * sizeof(float)), 0);
        const auto source = ggml_encoder(GGML_TYPE_F32);
        for (const Encoder * target : {scheme.get(), static_cast<Encoder *>(nullptr)}) {
            if (!target && std::isfinite(bad)) {
                continue;  // nothing has to be encoded
            }
            for (const int n_threads : {1, 2, 5}) {
                Pass pass{in.descriptor(), 0, shape.n_rows, shape.n_per_row, source.get()};
                pass.target = target, pass.check = true, pass.n_threads = n_threads;
                try {
                    run(pass, kNoTick);
                    expect(false, "a weight without an encoding is refused");
                } catch (const BadWeight & error) {
                    expect(error.index == first, "the first bad weight is named");
                }
            }
        }
    }
}

void fail(std::mt19937 & random) {
    const Shape shape{3000, 96, 0};
    const Tensor tensor(shape, GGML_TYPE_F32, weights(random, shape));
    const auto target = scheme_encoder(q4_0_scheme());
    const int full = open("/dev/full", O_WRONLY), read_only = open("/dev/null", O_RDONLY);
    for (const int n_threads : {1, 2, 5}) {
        Pass pass = tensor.pass(target.get());
        pass.n_threads = n_threads;
        for (const int out : {full, read_only}) {
            if (out >= 0) {
                pass.out_file = out;
                expect_error<WriteError>([&] { run(pass, kNoTick); }, "what cannot be written is named");
            }
        }
        pass.out_file = -1;
        expect_error<std::runtime_error>(
            [&] { run(pass, [](int64_t) { throw std::runtime_error("stop"); }); },
            "what a tick throws ends the pass");
        pass.in_file = 1 << 20;
        expect_error<ReadError>([&] { run(pass, kNoTick); }, "what cannot be read is named");
    }
    close(full), close(read_only);
    for (const int64_t left_out : {int64_t(1), int64_t(96 * 4 * 2990)}) {
        tensor.cut(left_out);
        for (const int n_threads : {1, 5}) {
            Pass pass = tensor.pass(nullptr);
            pass.n_threads = n_threads;
            expect_error<ReadError>([&] { run(pass, kNoTick); }, "a file that ends early is named");
        }
    }
    const ScratchFile room;
    reserve(room.descriptor(), 12345);
    expect(room.size() == 12345, "there is room");
    expect_error<WriteError>([] { reserve(-1, 1); }, "where there is none is named");
}

}  // namespace

int main() {
    std::mt19937 random(1);
    convert(random);
    convert_in_memory(random);
    compare_tensors(random);
    find_bad_weights(random);
    fail(random);
}
