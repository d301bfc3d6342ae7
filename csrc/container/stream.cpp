#define ZSTD_STATIC_LINKING_ONLY  // for ZSTD_c_literalCompressionMode
#include "container/stream.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <new>
#include <numeric>

#include "container/bytes.h"

namespace pyquant {
namespace {

enum Method : uint8_t { kZstd = 0, kGroups = 1 };

constexpr int kLiteralsOnly = 0;  // as a level: no search for repetitions
constexpr size_t kLongestGroup = 4;
constexpr size_t kTableSize = 1 << 16;  // groups that can have a symbol

// Huffman's code words are at most 11 bits long in zstd: rarer groups make all the others longer, and
// are cheaper escaped.
constexpr int kLongestWord = 11;

// Single symbols with escapes are slower to decode than without: they have to save this share, inverse.
constexpr size_t kLeastGain = 100;

// Groups whose entropy is beyond this have too many values for 255 symbols.
constexpr double kMostBits = 7.5;

// Different bytes that a group may be made of, so that kTableSize covers all such groups.
constexpr std::array<size_t, kLongestGroup + 1> kMostBytes = {0, 256, 256, 40, 16};

double bits_per_symbol(const Histogram & counts, size_t n) {
    double bits = 0;
    for (const uint64_t count : counts) {
        bits -= count ? double(count) * std::log2(double(count) / double(n)) : 0;
    }
    return bits / double(n);
}

void set(ZSTD_CCtx * context, ZSTD_cParameter parameter, int value) {
    if (ZSTD_isError(ZSTD_CCtx_setParameter(context, parameter, value))) {
        throw std::logic_error("zstd knows a parameter otherwise");
    }
}

// The number of the group of bytes at data among all groups, kTableSize if it cannot have a symbol.
size_t index_of(const uint8_t * data, size_t length, const std::array<size_t, 256> & rank, size_t n_ranks) {
    size_t index = 0;
    for (size_t i = 0; i < length; ++i) {
        if (rank[data[i]] >= n_ranks) {
            return kTableSize;
        }
        index = index * n_ranks + rank[data[i]];
    }
    return index;
}

template <size_t kLength>
void look_up(const uint8_t * table, const uint8_t * symbols, size_t n, uint8_t * data) {
    for (size_t i = 0; i < n; ++i) {
        std::memcpy(data + i * kLength, table + symbols[i] * kLength, kLength);
    }
}

}  // namespace

StreamEncoder::StreamEncoder() : context_(ZSTD_createCCtx()) {
    if (!context_) {
        throw std::bad_alloc();
    }
}

void StreamEncoder::encode(const uint8_t * data, size_t n, const Histogram & counts, Content content,
                           Bytes & out) {
    best_.assign(1, kZstd);
    compress(data, n, kLiteralsOnly, best_);
    const auto keep_if_below = [this](size_t size) {
        if (other_.size() < size) {
            best_.swap(other_);
        }
    };
    if (content != Content::codes) {
        other_.assign(1, kZstd);
        compress(data, n, content == Content::text ? 19 : 1, other_);
        keep_if_below(best_.size());
    }
    if (content != Content::text && n > 0) {
        const double bits = bits_per_symbol(counts, n);
        for (size_t length = 1; length <= kLongestGroup && double(length) * bits < kMostBits; ++length) {
            other_.assign(1, kGroups);
            if (bits > 0 && group(data, n, counts, length, other_)) {
                keep_if_below(best_.size() - (length == 1 ? best_.size() / kLeastGain : 0));
            }
        }
    }
    out.insert(out.end(), best_.begin(), best_.end());
}

void StreamEncoder::compress(const uint8_t * data, size_t n, int level, Bytes & out) {
    ZSTD_CCtx * context = context_.get();
    ZSTD_CCtx_reset(context, ZSTD_reset_session_and_parameters);
    set(context, ZSTD_c_compressionLevel, std::max(level, 1));
    if (level == kLiteralsOnly) {
        set(context, ZSTD_c_strategy, ZSTD_fast);
        set(context, ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
        set(context, ZSTD_c_minMatch, 7);
        set(context, ZSTD_c_hashLog, ZSTD_HASHLOG_MIN);
        set(context, ZSTD_c_targetLength, ZSTD_TARGETLENGTH_MAX);  // the steps of the search
    }
    const size_t at = out.size();
    out.resize(at + ZSTD_compressBound(n));
    const size_t size = ZSTD_compress2(context, out.data() + at, out.size() - at, data, n);
    if (ZSTD_isError(size)) {
        throw std::runtime_error(ZSTD_getErrorName(size));
    }
    out.resize(at + size);
}

// Appends groups of `length` bytes; false if that cannot pay.
bool StreamEncoder::group(const uint8_t * data, size_t n, const Histogram & counts, size_t length,
                          Bytes & out) {
    std::array<int, 256> by_count;
    std::iota(by_count.begin(), by_count.end(), 0);
    std::stable_sort(by_count.begin(), by_count.end(), [&](int a, int b) { return counts[a] > counts[b]; });
    std::array<size_t, 256> rank;
    size_t n_ranks = 0;
    for (size_t i = 0; i < by_count.size(); ++i) {
        rank[size_t(by_count[i])] = i;
        n_ranks += counts[by_count[i]] > 0;
    }
    n_ranks = std::min(n_ranks, kMostBytes[length]);

    const size_t n_groups = n / length;
    group_counts_.assign(kTableSize + 1, 0);
    for (size_t i = 0; i < n_groups; ++i) {
        ++group_counts_[index_of(data + i * length, length, rank, n_ranks)];
    }
    std::vector<std::pair<uint32_t, size_t>> frequent;
    for (size_t index = 0; index < kTableSize; ++index) {
        if (group_counts_[index] > n_groups >> kLongestWord) {
            frequent.emplace_back(group_counts_[index], index);
        }
    }
    std::stable_sort(frequent.begin(), frequent.end(), [](auto & a, auto & b) { return a.first > b.first; });
    frequent.resize(std::min<size_t>(frequent.size(), 255));
    if (frequent.empty()) {
        return false;
    }
    const uint8_t escape = uint8_t(frequent.size());
    symbol_of_group_.assign(kTableSize + 1, escape);
    out.push_back(uint8_t(length));
    out.push_back(escape);
    for (size_t symbol = 0; symbol < frequent.size(); ++symbol) {
        size_t index = frequent[symbol].second;
        symbol_of_group_[index] = uint8_t(symbol);
        std::array<uint8_t, kLongestGroup> bytes{};
        for (size_t i = length; i-- > 0; index /= n_ranks) {
            bytes[i] = uint8_t(by_count[index % n_ranks]);
        }
        out.insert(out.end(), bytes.begin(), bytes.begin() + length);
    }
    symbols_.resize(n_groups);
    escaped_.clear();
    for (size_t i = 0; i < n_groups; ++i) {
        const uint8_t * bytes = data + i * length;
        symbols_[i] = symbol_of_group_[index_of(bytes, length, rank, n_ranks)];
        if (symbols_[i] == escape) {
            escaped_.insert(escaped_.end(), bytes, bytes + length);
        }
    }
    escaped_.insert(escaped_.end(), data + n_groups * length, data + n);
    const size_t size_at = out.size();
    append_u32(out, 0);
    compress(symbols_.data(), symbols_.size(), kLiteralsOnly, out);
    write_u32(out.data() + size_at, uint32_t(out.size() - size_at - 4));
    compress(escaped_.data(), escaped_.size(), kLiteralsOnly, out);
    return true;
}

StreamDecoder::StreamDecoder() : context_(ZSTD_createDCtx()) {
    if (!context_) {
        throw std::bad_alloc();
    }
}

void StreamDecoder::decode(const uint8_t * coded, size_t n_coded, uint8_t * data, size_t n) {
    if (n_coded == 0 || coded[0] > kGroups) {
        throw Damaged("a stream is of no known method");
    }
    coded[0] == kZstd ? expand(coded + 1, n_coded - 1, data, n) : ungroup(coded + 1, n_coded - 1, data, n);
}

void StreamDecoder::expand(const uint8_t * coded, size_t n_coded, uint8_t * data, size_t n) {
    if (ZSTD_decompressDCtx(context_.get(), data, n, coded, n_coded) != n) {
        throw Damaged("zstd cannot expand a stream");
    }
}

void StreamDecoder::ungroup(const uint8_t * coded, size_t n_coded, uint8_t * data, size_t n) {
    const size_t length = n_coded < 2 ? 0 : coded[0], escape = n_coded < 2 ? 0 : coded[1];
    const size_t table_end = 2 + escape * length;
    if (length < 1 || length > kLongestGroup || n_coded < table_end + 4) {
        throw Damaged("a table of groups is cut off");
    }
    std::array<uint8_t, 256 * kLongestGroup> table{};
    std::memcpy(table.data(), coded + 2, escape * length);
    const size_t size = read_u32(coded + table_end);
    coded += table_end + 4, n_coded -= table_end + 4;
    if (size > n_coded) {
        throw Damaged("groups are cut off");
    }
    const size_t n_groups = n / length;
    symbols_.resize(n_groups);
    expand(coded, size, symbols_.data(), n_groups);
    const size_t n_escaped = size_t(std::count(symbols_.begin(), symbols_.end(), uint8_t(escape)));
    escaped_.resize(n_escaped * length + n % length);
    expand(coded + size, n_coded - size, escaped_.data(), escaped_.size());

    switch (length) {
        case 1: look_up<1>(table.data(), symbols_.data(), n_groups, data); break;
        case 2: look_up<2>(table.data(), symbols_.data(), n_groups, data); break;
        case 3: look_up<3>(table.data(), symbols_.data(), n_groups, data); break;
        default: look_up<4>(table.data(), symbols_.data(), n_groups, data); break;
    }
    const uint8_t * bytes = escaped_.data();
    const uint8_t * symbol = symbols_.data();
    for (size_t i = 0; i < n_escaped; ++i, ++symbol, bytes += length) {
        const size_t left = n_groups - size_t(symbol - symbols_.data());
        symbol = static_cast<const uint8_t *>(std::memchr(symbol, int(escape), left));
        std::memcpy(data + size_t(symbol - symbols_.data()) * length, bytes, length);
    }
    std::copy_n(bytes, n % length, data + n_groups * length);
}

}  // namespace pyquant
