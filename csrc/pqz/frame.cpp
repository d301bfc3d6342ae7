#include "pqz/frame.h"

#include "kernels/byte_histogram.h"
#include "pqz/bytes.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace pyquant::pqz {

void FieldUse::operator+=(const FieldUse & other) {
    for (int symbol = 0; symbol < 256; ++symbol) {
        counts[symbol] += other.counts[symbol];
    }
    coded_bytes += other.coded_bytes;
}

uint64_t checksum(const uint8_t * data, size_t n) {
    return XXH3_64bits(data, n);
}

const Bytes & FrameEncoder::encode(const Layout & layout, const uint8_t * data, size_t n,
                                   std::vector<FieldUse> & use) {
    const size_t n_blocks = n / size_t(layout.block_bytes());
    streams_.resize(n);
    split(layout, data, n_blocks, streams_.data());
    coded_.assign(4 * layout.fields.size(), 0);
    const uint8_t * stream = streams_.data();
    for (size_t i = 0; i < layout.fields.size(); ++i) {
        const size_t size = n_blocks * size_t(layout.fields[i].length), begin = coded_.size();
        FieldUse here;
        kernels::ByteHistogram bytes;
        bytes.add(stream, size);
        for (int byte = 0; byte < 256; ++byte) {
            here.counts[size_t(byte)] = bytes[byte];
        }
        encoder_.encode(stream, size, here.counts, layout.fields[i].content, coded_);
        here.coded_bytes = coded_.size() - begin;
        write_u32(&coded_[4 * i], uint32_t(here.coded_bytes));
        use[i] += here;
        stream += size;
    }
    return coded_;
}

void FrameDecoder::decode(const Layout & layout, const uint8_t * coded, size_t n_coded, uint8_t * data,
                          size_t n) {
    const size_t n_blocks = n / size_t(layout.block_bytes()), n_fields = layout.fields.size();
    if (n_coded < 4 * n_fields) {
        throw Damaged("a frame is cut off");
    }
    streams_.resize(n);
    uint8_t * stream = streams_.data();
    size_t at = 4 * n_fields;
    for (size_t i = 0; i < n_fields; ++i) {
        const size_t n_stream = read_u32(coded + 4 * i), size = n_blocks * size_t(layout.fields[i].length);
        if (n_stream > n_coded - at) {
            throw Damaged("a stream is cut off");
        }
        decoder_.decode(coded + at, n_stream, stream, size);
        at += n_stream, stream += size;
    }
    if (at != n_coded) {
        throw Damaged("a frame is too long");
    }
    join(layout, streams_.data(), n_blocks, data);
}

}  // namespace pyquant::pqz
