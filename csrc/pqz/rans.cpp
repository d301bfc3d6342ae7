#include "pqz/rans.h"

#include <algorithm>
#include <numeric>

#ifdef __AVX2__
#include "pqz/rans_lanes_x86.h"
#endif

namespace pyquant::pqz::rans {
namespace {

constexpr uint32_t kTwoBytes = 0x80;  // of a frequency: 7 bits, and another byte follows
constexpr int kWord = 2;              // bytes that a lane takes in at a time
constexpr int kGroup = kLanes * kWord;

// One symbol of one lane. words: where the next word is, which there must be.
inline uint8_t step(const uint32_t * table, uint32_t & state, const uint8_t *& words) {
    const uint32_t entry = table[state % kFrequencies];
    const uint32_t next = (entry >> 20) * (state >> kFrequencyBits) + (entry >> 8) % kFrequencies;
    const uint32_t is_low = next < kLeastState;  // not to be guessed, so not branched on
    state = next << 16 * is_low | (read_u16(words) & (0 - is_low));
    words += kWord * is_low;
    return uint8_t(entry);
}

#ifndef __AVX2__
void decode_groups(const uint32_t * table, uint32_t * states, const uint8_t *& words, uint8_t * data,
                   size_t n_groups) {
    const uint8_t * word = words;  // a pointer that no byte of data can be taken for
    for (size_t i = 0; i < n_groups * kLanes; ++i) {
        data[i] = step(table, states[i % kLanes], word);
    }
    words = word;
}
#endif

using Frequencies = std::array<uint32_t, 256>;

// Proportional to the counts of at least two different bytes: 1 or more for each that there is, and
// kFrequencies together.
Frequencies frequencies(const Histogram & counts) {
    const uint64_t n = std::accumulate(std::begin(counts), std::end(counts), uint64_t{0});
    Frequencies result{};
    uint32_t sum = 0;
    for (int symbol = 0; symbol < 256; ++symbol) {
        if (counts[symbol]) {
            const uint64_t share = (counts[symbol] * kFrequencies + n / 2) / n;
            result[symbol] = uint32_t(std::clamp<uint64_t>(share, 1, kFrequencies - 1));
            sum += result[symbol];
        }
    }
    // One up or down, where the loss is least: about count / (frequency + 1/2) from here to the next.
    for (; sum < kFrequencies; ++sum) {
        const auto gain = [&](int symbol) { return double(counts[symbol]) / (result[symbol] + 0.5); };
        int best = 0;
        for (int symbol = 1; symbol < 256; ++symbol) {
            best = gain(symbol) > gain(best) ? symbol : best;
        }
        ++result[best];
    }
    for (; sum > kFrequencies; --sum) {
        int best = -1;
        const auto loss = [&](int symbol) { return double(counts[symbol]) / (result[symbol] - 0.5); };
        for (int symbol = 0; symbol < 256; ++symbol) {
            if (result[symbol] > 1 && (best < 0 || loss(symbol) < loss(best))) {
                best = symbol;
            }
        }
        --result[best];
    }
    return result;
}

void append_frequencies(const Frequencies & frequency, Bytes & out) {
    for (size_t symbol = 0; symbol < frequency.size();) {
        const uint32_t f = frequency[symbol++];
        if (f >= kTwoBytes) {
            out.push_back(uint8_t(kTwoBytes | f % kTwoBytes));
            out.push_back(uint8_t(f / kTwoBytes));
        } else {
            out.push_back(uint8_t(f));
        }
        if (f == 0) {
            const size_t first = symbol;
            while (symbol < frequency.size() && frequency[symbol] == 0) {
                ++symbol;
            }
            out.push_back(uint8_t(symbol - first));
        }
    }
}

}  // namespace

void Encoder::encode(const uint8_t * data, size_t n, const Histogram & counts, Bytes & out) {
    const Frequencies frequency = frequencies(counts);
    std::array<uint32_t, 256> before;
    std::exclusive_scan(frequency.begin(), frequency.end(), before.begin(), 0u);
    append_frequencies(frequency, out);
    // Backwards, as a decoder undoes the last step first; words, too, from the last one on.
    uint32_t states[kLanes];
    std::fill(std::begin(states), std::end(states), kLeastState);
    words_.resize((n + 1) * kWord);  // and one that is written and not kept
    uint8_t * const end = words_.data() + words_.size();
    uint8_t * words = end;
    for (size_t i = n; i-- > 0;) {
        uint32_t & state = states[i % kLanes];
        const uint32_t f = frequency[data[i]];
        write_u16(words - kWord, state);
        const uint32_t is_high = state >> (32 - kFrequencyBits) >= f;  // not to be guessed either
        words -= kWord * is_high;
        const uint32_t low = state >> 16 * is_high;
        state = (low / f << kFrequencyBits) + low % f + before[data[i]];
    }
    for (const uint32_t state : states) {
        append_u32(out, state);
    }
    out.insert(out.end(), words, end);
}

const uint8_t * Decoder::read_frequencies(const uint8_t * coded, const uint8_t * end) {
    uint32_t sum = 0, symbol = 0;
    for (; symbol < 256; ++symbol) {
        if (end - coded < 2) {
            throw Damaged("frequencies are cut off");
        }
        uint32_t frequency = *coded++;
        if (frequency == 0) {
            symbol += *coded++;
        } else if (frequency >= kTwoBytes) {
            frequency = frequency % kTwoBytes + *coded++ * kTwoBytes;
            if (frequency < kTwoBytes) {
                throw Damaged("a frequency has two bytes and needs one");
            }
        }
        if (frequency >= kFrequencies || frequency > kFrequencies - sum) {
            throw Damaged("frequencies are too large");
        }
        for (uint32_t place = 0; place < frequency; ++place) {
            table_[sum + place] = symbol | place << 8 | frequency << 20;
        }
        sum += frequency;
    }
    if (sum != kFrequencies || symbol > 256) {
        throw Damaged("frequencies are not of all bytes");
    }
    return coded;
}

void Decoder::decode(const uint8_t * coded, size_t n_coded, uint8_t * data, size_t n) {
    const uint8_t * const end = coded + n_coded;
    const uint8_t * words = read_frequencies(coded, end);
    if (end - words < 4 * kLanes) {
        throw Damaged("states are cut off");
    }
    uint32_t states[kLanes];
    for (uint32_t & state : states) {
        state = read_u32(words);
        words += 4;
    }
    // All lanes at once for as long as there are words for all of them, whatever they need.
    const uint8_t * const data_end = data + n;
    while (true) {
        const ptrdiff_t groups = std::min<ptrdiff_t>((data_end - data) / kLanes, (end - words) / kGroup - 1);
        if (groups <= 0) {
            break;
        }
        decode_groups(table_.data(), states, words, data, size_t(groups));
        data += groups * kLanes;
    }
    for (int lane = 0; data < data_end; ++data, lane = (lane + 1) % kLanes) {
        constexpr uint8_t none[kWord] = {};
        const bool has_words = end - words >= kWord;
        const uint8_t * const before = has_words ? words : none;
        const uint8_t * after = before;
        *data = step(table_.data(), states[lane], after);
        if (after != before && !has_words) {
            throw Damaged("a stream is cut off");
        }
        words += after - before;
    }
    if (words != end || std::any_of(std::begin(states), std::end(states),
                                    [](uint32_t state) { return state != kLeastState; })) {
        throw Damaged("a stream is too long");
    }
}

}  // namespace pyquant::pqz::rans
