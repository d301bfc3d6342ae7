// All lanes of rANS, one symbol each, on x86-64 with AVX2.
#pragma once

#include <immintrin.h>

#include "pqz/rans.h"

namespace pyquant::pqz::rans {
namespace {

constexpr int kWidth = 8;  // lanes of a register
constexpr int kRegisters = kLanes / kWidth;

// The next words that lanes take, for each set of lanes that take in a word.
struct Takers {
    alignas(32) uint32_t word[1 << kWidth][kWidth] = {};

    constexpr Takers() {
        for (int set = 0; set < 1 << kWidth; ++set) {
            uint32_t next = 0;
            for (int lane = 0; lane < kWidth; ++lane) {
                word[set][lane] = set >> lane & 1 ? next++ : 0;
            }
        }
    }
};
constexpr Takers kTakers;

// table[place] for eight places. By single loads: AVX2's gathers take twice as long on Zen 3.
inline __m256i look_up(const uint32_t * table, __m256i places) {
    const auto pair = [table](uint64_t two) {
        return _mm_insert_epi32(_mm_cvtsi32_si128(int(table[uint32_t(two)])), int(table[two >> 32]), 1);
    };
    const __m128i low = _mm256_castsi256_si128(places), high = _mm256_extracti128_si256(places, 1);
    return _mm256_set_m128i(_mm_unpacklo_epi64(pair(uint64_t(_mm_cvtsi128_si64(high))),
                                               pair(uint64_t(_mm_extract_epi64(high, 1)))),
                            _mm_unpacklo_epi64(pair(uint64_t(_mm_cvtsi128_si64(low))),
                                               pair(uint64_t(_mm_extract_epi64(low, 1)))));
}

// states, words: move on. Reads up to a register's words beyond the last that is taken.
void decode_groups(const uint32_t * table, uint32_t * states, const uint8_t *& words, uint8_t * data,
                   size_t n_groups) {
    const __m256i place = _mm256_set1_epi32(kFrequencies - 1), byte = _mm256_set1_epi32(0xff);
    const __m256i error_propagation = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i state[kRegisters], entry[kRegisters];
#pragma GCC unroll 8
    for (int r = 0; r < kRegisters; ++r) {
        state[r] = _mm256_loadu_si256((const __m256i *)(states + r * kWidth));
    }
    const uint8_t * word = words;
    for (size_t group = 0; group < n_groups; ++group, data += kLanes) {
#pragma GCC unroll 8
        for (int r = 0; r < kRegisters; ++r) {
            entry[r] = look_up(table, _mm256_and_si256(state[r], place));
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRegisters; ++r) {
            const __m256i frequency = _mm256_srli_epi32(entry[r], 20);
            const __m256i before = _mm256_and_si256(_mm256_srli_epi32(entry[r], 8), place);
            const __m256i next = _mm256_add_epi32(
                _mm256_mullo_epi32(frequency, _mm256_srli_epi32(state[r], kFrequencyBits)), before);
            const __m256i is_low = _mm256_cmpeq_epi32(_mm256_srli_epi32(next, 16), _mm256_setzero_si256());
            const unsigned set = unsigned(_mm256_movemask_ps(_mm256_castsi256_ps(is_low)));
            const __m256i low =
                _mm256_permutevar8x32_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)word)),
                                            _mm256_load_si256((const __m256i *)kTakers.word[set]));
            state[r] = _mm256_blendv_epi8(next, _mm256_or_si256(_mm256_slli_epi32(next, 16), low), is_low);
            word += 2 * __builtin_popcount(set);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRegisters; r += 4) {
            const __m256i first =
                _mm256_packus_epi32(_mm256_and_si256(entry[r], byte), _mm256_and_si256(entry[r + 1], byte));
            const __m256i second = _mm256_packus_epi32(_mm256_and_si256(entry[r + 2], byte),
                                                       _mm256_and_si256(entry[r + 3], byte));
            _mm256_storeu_si256(
                (__m256i *)(data + r * kWidth),
                _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second), error_propagation));
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRegisters; ++r) {
        _mm256_storeu_si256((__m256i *)(states + r * kWidth), state[r]);
    }
    words = word;
}

}  // namespace
}  // namespace pyquant::pqz::rans
