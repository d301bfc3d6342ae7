// Types whose codes stand for the levels of several columns at once: a point of a grid, which has their
// magnitudes, and signs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "gptq/scale_search.h"

namespace pyquant::gptq {

// Points of kPoint columns. even: each 8 columns have an even number of minuses.
template <int n_columns, bool even>
class Grid {
public:
    static constexpr int kPoint = n_columns;
    static constexpr int kGroup = even ? 8 : kPoint;  // columns that are rounded together
    using Point = std::array<uint8_t, kPoint>;

    // points: in the order of their numbers.
    explicit Grid(const std::vector<Point> & points) : number_(points.size()) {
        std::iota(number_.begin(), number_.end(), uint16_t(0));
        std::sort(number_.begin(), number_.end(),
                  [&](uint16_t a, uint16_t b) { return points[a] < points[b]; });
        for (const uint16_t number : number_) {
            const Point & point = points[number];
            int common = 0;
            while (!sorted_.empty() && point[size_t(common)] == sorted_.back()[size_t(common)]) {
                ++common;
            }
            for (int k = common; k < kPoint; ++k) {
                nodes_[k].push_back({float(point[size_t(k)]), n_nodes(k + 1)});
            }
            sorted_.push_back(point);
        }
        for (int k = 0; k < kPoint; ++k) {
            nodes_[k].push_back({0, n_nodes(k + 1)});
        }
    }

    // Levels of single columns, those of whatever points.
    TableLevels of_one() const {
        std::set<int> values;
        for (const Point & point : sorted_) {
            for (const int magnitude : point) {
                values.insert({-magnitude, magnitude});
            }
        }
        const std::vector<int8_t> ascending(values.begin(), values.end());
        return TableLevels(ascending.data(), std::vector<uint8_t>(values.size()).data(), int(values.size()));
    }

    // The number of the point that has these magnitudes.
    uint16_t number(const Point & point) const {
        return number_[size_t(std::lower_bound(sorted_.begin(), sorted_.end(), point) - sorted_.begin())];
    }

    Ints code(Floats level) const { return __builtin_convertvector(level, Ints); }

    // Any levels of n columns.
    void start(Floats * level, int n) const {
        for (int k = 0; k < n; ++k) {
            level[k] = all(sorted_[0][size_t(k % kPoint)]);
        }
    }

    // Changes levels of kGroup columns to those of the least cost that is found: the sum of
    // d[k] (aim[k] - value[k])^2, where the error weight[k] - value[k] moves later aims by u[k][j], in rows
    // of 32.
    void round(const Floats * aim, const Floats * weight, const float * d, const float * u, Floats scale,
               Floats * level) const {
        const Floats least = cost(aim, weight, d, u, scale, level);
        if constexpr (kGroup == kPoint) {
            Search search(*this, scale, least);
            search.run(aim, weight, d, u, Floats{}, 0, 1);
            search.levels(0, level);
        } else {
            // The first half with either parity, the second with the one that makes the whole even.
            Search first(*this, scale, least);
            first.run(aim, weight, d, u, Floats{}, 0, 2);
            Floats bound = least;
            for (int parity = 0; parity < 2; ++parity) {
                Floats half[kPoint]{}, rest[kPoint];
                first.levels(parity, half);
                std::copy_n(aim + kPoint, kPoint, rest);
                for (int k = 0; k < kPoint; ++k) {
                    const Floats error = weight[k] - scale * half[k];
                    for (int j = 0; j < kPoint; ++j) {
                        rest[j] = fma(u[k * kSub + kPoint + j], error, rest[j]);
                    }
                }
                // No first half: its cost is still `least`, and nothing is found.
                Search second(*this, scale, bound);
                second.run(rest, weight + kPoint, d + kPoint, u + kPoint * kSub + kPoint, first.least[parity],
                           parity, 1);
                const Ints better = second.least[0] < bound;
                for (int k = 0; k < kPoint; ++k) {
                    level[k] = better ? half[k] : level[k];
                }
                second.levels(0, level + kPoint);
                bound = second.least[0];
            }
        }
    }

    // Moves the levels of kGroup columns to where e H e^T is least with everything else as it is. h: of these
    // columns and those that follow, n in all, in rows of 32; gradient: (n), e H.
    void descend(const float * h, int n, Floats scale, Floats * gradient, Floats * level) const {
        // H = U D U^T of the group.
        double upper[kGroup][kGroup], diagonal[kGroup];
        float u[kGroup * kSub], d[kGroup];
        for (int k = kGroup - 1; k >= 0; --k) {
            for (int j = 0; j <= k; ++j) {
                double left = h[j * kSub + k];
                for (int m = k + 1; m < kGroup; ++m) {
                    left -= upper[j][m] * upper[k][m] * diagonal[m];
                }
                (j == k ? diagonal[k] : upper[j][k]) = left;
            }
            for (int j = 0; j < k; ++j) {
                upper[j][k] /= diagonal[k];
                u[j * kSub + k] = float(upper[j][k]);
            }
            d[k] = float(diagonal[k]);
        }
        // Any values may move by x, x H = gradient: backwards through U^T, then through D and U.
        Floats value[kGroup], aim[kGroup], x[kGroup];
        for (int k = kGroup - 1; k >= 0; --k) {
            x[k] = gradient[k];
            for (int m = k + 1; m < kGroup; ++m) {
                x[k] = fma(-u[k * kSub + m], x[m], x[k]);
            }
        }
        for (int k = 0; k < kGroup; ++k) {
            x[k] = x[k] * (1.0f / d[k]);
        }
        for (int k = 0; k < kGroup; ++k) {
            for (int j = 0; j < k; ++j) {
                x[k] = fma(-u[j * kSub + k], x[j], x[k]);
            }
            value[k] = scale * level[k];
            aim[k] = value[k] + x[k];
        }
        round(aim, aim, d, u, scale, level);
        for (int k = 0; k < kGroup; ++k) {
            const Floats step = value[k] - scale * level[k];
            for (int j = kGroup; j < n; ++j) {
                gradient[j] = fma(h[k * kSub + j], step, gradient[j]);
            }
        }
    }

private:
    static constexpr int kStates = even ? 2 : 1;  // even and odd numbers of minuses, or all as one

    // Points with the same magnitudes up to a column.
    struct Node {
        float magnitude;
        int first_child;
    };

    // Walks through the tree of points, past what costs too much in all lanes.
    struct Search {
        const Grid & grid;
        const Floats scale;
        Floats least[kStates];
        Ints found[kStates];  // the number among the sorted points, and bits of minuses
        Ints found_minuses[kStates]{};

        const Floats * weight{};
        const float *d{}, *u{};
        int n_wanted{};
        Floats cost[kPoint + 1][kStates]{};
        Ints minuses[kPoint + 1][kStates]{};
        Floats aim[kPoint][kStates][kPoint]{};

        Search(const Grid & points, Floats step, Floats bound) : grid(points), scale(step) {
            std::fill_n(least, kStates, bound);
            std::fill_n(found, kStates, Ints{} - 1);
        }

        void run(const Floats * aims, const Floats * weights, const float * diagonal, const float * upper,
                 Floats cost_so_far, int parity, int wanted) {
            weight = weights, d = diagonal, u = upper, n_wanted = wanted;
            for (int state = 0; state < kStates; ++state) {
                cost[0][state] = state == parity ? cost_so_far : all(INFINITY);
                std::copy_n(aims, kPoint, aim[0][state]);
            }
            visit<0>(0, int(grid.nodes_[0].size()) - 1);
        }

        template <int k>
        void visit(int begin, int end) {
            for (int at = begin; at < end; ++at) {
                const Node & node = grid.nodes_[k][size_t(at)];
                const Floats size = scale * node.magnitude;
                Ints negative[kStates], promising{};
                for (int state = 0; state < kStates; ++state) {
                    const int other = kStates - 1 - state;  // becomes this one by a minus
                    if constexpr (even) {
                        const Floats missed[] = {aim[k][state][k] - size, aim[k][other][k] + size};
                        const Floats plus = fma(d[k] * missed[0], missed[0], cost[k][state]);
                        const Floats minus = fma(d[k] * missed[1], missed[1], cost[k][other]);
                        negative[state] = minus < plus;
                        cost[k + 1][state] = negative[state] ? minus : plus;
                    } else {
                        negative[state] = aim[k][state][k] < 0;
                        const Floats missed = aim[k][state][k] - (negative[state] ? -size : size);
                        cost[k + 1][state] = fma(d[k] * missed, missed, cost[k][state]);
                    }
                    minuses[k + 1][state] = negative[state] ? minuses[k][other] | 1 << k : minuses[k][state];
                }
                if constexpr (k + 1 == kPoint) {
                    for (int state = 0; state < n_wanted; ++state) {
                        const Ints better = cost[kPoint][state] < least[state];
                        least[state] = better ? cost[kPoint][state] : least[state];
                        found[state] = better ? Ints{} + at : found[state];
                        found_minuses[state] = better ? minuses[kPoint][state] : found_minuses[state];
                    }
                } else {
                    for (int state = 0; state < kStates; ++state) {
                        for (int wanted = 0; wanted < n_wanted; ++wanted) {
                            promising |= cost[k + 1][state] < least[wanted];
                        }
                    }
                    if (!any(promising)) {
                        continue;
                    }
                    for (int state = 0; state < kStates; ++state) {
                        const int other = kStates - 1 - state;
                        const Floats error = weight[k] - (negative[state] ? -size : size);
                        for (int j = k + 1; j < kPoint; ++j) {
                            const Floats before = negative[state] ? aim[k][other][j] : aim[k][state][j];
                            aim[k + 1][state][j] = fma(u[k * kSub + j], error, before);
                        }
                    }
                    visit<k + 1>(node.first_child, grid.nodes_[k][size_t(at) + 1].first_child);
                }
            }
        }

        // Those that were found; where none were, as they are.
        void levels(int state, Floats * level) const {
            for (int row = 0; row < kLanes; ++row) {
                for (int k = 0; k < kPoint && found[state][row] >= 0; ++k) {
                    const float magnitude = grid.sorted_[size_t(found[state][row])][size_t(k)];
                    level[k][row] = found_minuses[state][row] >> k & 1 ? -magnitude : magnitude;
                }
            }
        }
    };

    static Floats cost(const Floats * aim, const Floats * weight, const float * d, const float * u,
                       Floats scale, const Floats * level) {
        Floats moved[kGroup], cost{};
        std::copy_n(aim, kGroup, moved);
        for (int k = 0; k < kGroup; ++k) {
            const Floats value = scale * level[k];
            const Floats missed = moved[k] - value;
            cost = fma(d[k] * missed, missed, cost);
            for (int j = k + 1; j < kGroup; ++j) {
                moved[j] = fma(u[k * kSub + j], weight[k] - value, moved[j]);
            }
        }
        return cost;
    }

    int n_nodes(int k) const { return k < kPoint ? int(nodes_[k].size()) : 0; }

    std::vector<Point> sorted_;
    std::vector<uint16_t> number_;     // of the sorted points
    std::vector<Node> nodes_[kPoint];  // by columns, with an end
};

}  // namespace pyquant::gptq
