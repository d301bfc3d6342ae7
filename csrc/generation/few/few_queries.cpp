#include "generation/few/few_queries.h"

#include <algorithm>
#include <limits>

#include "kernels/half.h"
#include "kernels/softmax.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define PYQUANT_FEW_QUERIES 1
#include "generation/few/floats_x86.h"
#endif

namespace pyquant::kernels {

#if PYQUANT_FEW_QUERIES
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr int kSumRegisters = 16;  // that keep sums of values

// Weights of some cells for each query.
template <int n_queries>
struct Weights {
    float of[n_queries][kCellsAtOnce];
    bool any[kCellsAtOnce];  // whether a query may look at the cell: the values of others may be anything
};

template <int n_parts, int n_queries>
class Attention {
public:
    Attention(const Cells & cells, const Query * queries, float scale)
        : cells_(cells),
          queries_(queries),
          scale_(scale) {
        std::fill_n(largest_, n_queries, kNever);
    }

    void run() {
        Floats sums[n_queries * n_parts] = {};
        for (int64_t first = 0; first < cells_.n; first += kCellsAtOnce) {
            Weights<n_queries> weights;
            if (!read_masks(first, weights)) {
                continue;
            }
            score(first, weights);
            float corrections[n_queries];
            for (int q = 0; q < n_queries; ++q) {
                corrections[q] = weigh(q, weights.of[q]);
            }
            add_values(first, weights, corrections, sums);
        }
        for (int q = 0; q < n_queries; ++q) {
            const Floats share = broadcast(total_[q] == 0 ? 0 : 1 / total_[q]);
            for (int part = 0; part < n_parts; ++part) {
                store(queries_[q].out + part * kFloatLanes, multiply(sums[q * n_parts + part], share));
            }
        }
    }

private:
    // Whether a query may look at any of the cells.
    bool read_masks(int64_t first, Weights<n_queries> & weights) const {
        bool any = false;
        for (int c = 0; c < kCellsAtOnce; ++c) {
            weights.any[c] = false;
            for (int q = 0; q < n_queries; ++q) {
                const uint16_t * mask = queries_[q].mask;
                weights.of[q][c] = mask ? half_to_float(mask[first + c]) : 0;
                weights.any[c] = weights.any[c] || weights.of[q][c] != kNever;
            }
            any = any || weights.any[c];
        }
        return any;
    }

    void score(int64_t first, Weights<n_queries> & weights) const {
        for (int c = 0; c < kCellsAtOnce; ++c) {
            const auto * key =
                reinterpret_cast<const uint16_t *>(cells_.keys + size_t(first + c) * cells_.key_bytes);
            Floats products[n_queries] = {};
#pragma GCC unroll 32
            for (int part = 0; part < n_parts; ++part) {
                const Floats k = load_halves(key + part * kFloatLanes);
#pragma GCC unroll 16
                for (int q = 0; q < n_queries; ++q) {
                    products[q] = multiply_add(k, load(queries_[q].x + part * kFloatLanes), products[q]);
                }
            }
            float scores[n_queries];
            sum_each<n_queries>(products, scores);
            for (int q = 0; q < n_queries; ++q) {
                weights.of[q][c] = weights.any[c] ? scores[q] * scale_ + weights.of[q][c] : kNever;
            }
        }
    }

    // Makes scores weights; returns what sums so far have to be multiplied with.
    float weigh(int q, float * weights) {
        float largest = largest_[q];
        for (int c = 0; c < kCellsAtOnce; ++c) {
            largest = weights[c] > largest ? weights[c] : largest;
        }
        if (largest == kNever) {
            std::fill_n(weights, kCellsAtOnce, 0.0f);
            return 1;
        }
        const float correction = exp_nonpositive(largest_[q] - largest);
        float sum[kCellsAtOnce];
        for (int c = 0; c < kCellsAtOnce; ++c) {
            sum[c] = weights[c] = exp_nonpositive(weights[c] - largest);
        }
        for (int half = kCellsAtOnce / 2; half > 0; half /= 2) {
            for (int c = 0; c < half; ++c) {
                sum[c] += sum[c + half];
            }
        }
        total_[q] = total_[q] * correction + sum[0];
        largest_[q] = largest;
        return correction;
    }

    void add_values(int64_t first, const Weights<n_queries> & weights, const float * corrections,
                    Floats * sums) const {
#pragma GCC unroll 16
        for (int q = 0; q < n_queries; ++q) {
            const Floats correction = broadcast(corrections[q]);
#pragma GCC unroll 32
            for (int part = 0; part < n_parts; ++part) {
                sums[q * n_parts + part] = multiply(sums[q * n_parts + part], correction);
            }
        }
        for (int c = 0; c < kCellsAtOnce; ++c) {
            if (!weights.any[c]) {
                continue;
            }
            const auto * value =
                reinterpret_cast<const uint16_t *>(cells_.values + size_t(first + c) * cells_.value_bytes);
#pragma GCC unroll 32
            for (int part = 0; part < n_parts; ++part) {
                const Floats v = load_halves(value + part * kFloatLanes);
#pragma GCC unroll 16
                for (int q = 0; q < n_queries; ++q) {
                    Floats & sum = sums[q * n_parts + part];
                    sum = multiply_add(v, broadcast(weights.of[q][c]), sum);
                }
            }
        }
    }

    const Cells & cells_;
    const Query * queries_;
    float scale_;
    float largest_[n_queries];
    float total_[n_queries] = {};
};

constexpr int at_once(int n_parts) {
    return n_parts > kSumRegisters ? 1 : std::min(kMostQueries, kSumRegisters / n_parts);
}

template <int size, int n_queries>
void attend_exactly(const Cells & cells, const Query * queries, float scale) {
    Attention<size / kFloatLanes, n_queries>(cells, queries, scale).run();
}

template <int size>
void attend(const Cells & cells, const Query * queries, int n_queries, float scale) {
    constexpr int most = at_once(size / kFloatLanes);
    for (; n_queries >= most; n_queries -= most, queries += most) {
        attend_exactly<size, most>(cells, queries, scale);
    }
    for (; n_queries > 0; --n_queries, ++queries) {
        attend_exactly<size, 1>(cells, queries, scale);
    }
}

}  // namespace

int few_queries(int64_t size) {
    switch (size) {
        case 64:
        case 96:
        case 128:
        case 256: return at_once(int(size) / kFloatLanes);
        default: return 0;
    }
}

int few_query_lanes() {
    return kFloatLanes;
}

void attend_few(const Cells & cells, int64_t size, const Query * queries, int n_queries, float scale) {
    switch (size) {
        case 64: attend<64>(cells, queries, n_queries, scale); break;
        case 96: attend<96>(cells, queries, n_queries, scale); break;
        case 128: attend<128>(cells, queries, n_queries, scale); break;
        case 256: attend<256>(cells, queries, n_queries, scale); break;
    }
}
#else
int few_queries(int64_t) {
    return 0;
}

int few_query_lanes() {
    return 0;
}

void attend_few(const Cells &, int64_t, const Query *, int, float) {}
#endif

}  // namespace pyquant::kernels
