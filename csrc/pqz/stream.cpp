#define ZSTD_STATIC_LINKING_ONLY  // for ZSTD_c_literalCompressionMode
#include "pqz/stream.h"

#include <zstd_errors.h>

#include <algorithm>
#include <new>

namespace pyquant::pqz {
namespace {

enum Method : uint8_t { kZstd = 0, kRans = 1 };

constexpr int kLiteralsOnly = 0;  // as a level: no search for repetitions

// Data that zstd leaves as they are cost a copy to expand, so rANS has to save this share of them, inverse.
constexpr size_t kLeastGain = 100;

// Number of symbols below which zstd's Huffman codes may be shorter, as their tables are.
constexpr size_t kShort = 1 << 18;

void set(ZSTD_CCtx * context, ZSTD_cParameter parameter, int value) {
    if (ZSTD_isError(ZSTD_CCtx_setParameter(context, parameter, value))) {
        throw std::logic_error("zstd knows a parameter otherwise");
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
    best_.clear();
    const bool all_equal = std::find(std::begin(counts), std::end(counts), n) != std::end(counts);
    if (content != Content::text && !all_equal) {
        best_.assign(1, kRans);
        rans_.encode(data, n, counts, best_);
        if (best_.size() + n / kLeastGain > n) {
            best_.clear();
        }
    }
    if (best_.empty() || n < kShort) {
        try_zstd(data, n, kLiteralsOnly);
    }
    if (content != Content::codes) {
        try_zstd(data, n, content == Content::text ? 19 : 1);
    }
    out.insert(out.end(), best_.begin(), best_.end());
}

void StreamEncoder::try_zstd(const uint8_t * data, size_t n, int level) {
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
    other_.resize(1 + ZSTD_compressBound(n));
    other_[0] = kZstd;
    const size_t size = ZSTD_compress2(context, &other_[1], other_.size() - 1, data, n);
    if (ZSTD_getErrorCode(size) == ZSTD_error_memory_allocation) {
        throw std::bad_alloc();
    }
    if (ZSTD_isError(size)) {
        throw std::runtime_error(ZSTD_getErrorName(size));
    }
    other_.resize(1 + size);
    if (best_.empty() || other_.size() < best_.size()) {
        best_.swap(other_);
    }
}

StreamDecoder::StreamDecoder() : context_(ZSTD_createDCtx()) {
    if (!context_) {
        throw std::bad_alloc();
    }
}

void StreamDecoder::decode(const uint8_t * coded, size_t n_coded, uint8_t * data, size_t n) {
    if (n_coded == 0) {
        throw Damaged("a stream is cut off");
    }
    const uint8_t method = *coded++;
    --n_coded;
    switch (method) {
        case kZstd:
            if (ZSTD_decompressDCtx(context_.get(), data, n, coded, n_coded) != n) {
                throw Damaged("zstd cannot expand a stream");
            }
            return;
        case kRans: rans_.decode(coded, n_coded, data, n); return;
        default: throw Damaged("a stream is of no known method");
    }
}

}  // namespace pyquant::pqz
