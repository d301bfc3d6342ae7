#include "pqz/layout.h"

#include <algorithm>
#include <cstring>

namespace pyquant::pqz {
namespace {

// Copies n pieces of `length` bytes that lie `from` bytes apart to places `to` bytes apart.
template <int kLength>
void copy_pieces(const uint8_t * in, size_t from, uint8_t * out, size_t to, size_t n, size_t) {
    for (size_t i = 0; i < n; ++i) {
        std::memcpy(out + i * to, in + i * from, kLength);
    }
}

void copy_any_pieces(const uint8_t * in, size_t from, uint8_t * out, size_t to, size_t n, size_t length) {
    for (size_t i = 0; i < n; ++i) {
        std::memcpy(out + i * to, in + i * from, length);
    }
}

// Lengths that are known when compiling are several times as fast.
auto copier(int length) {
    switch (length) {
        case 1: return copy_pieces<1>;
        case 4: return copy_pieces<4>;
        case 12: return copy_pieces<12>;
        case 16: return copy_pieces<16>;
        case 32: return copy_pieces<32>;
        case 64: return copy_pieces<64>;
        case 128: return copy_pieces<128>;
        default: return copy_any_pieces;
    }
}

// work(first, n) for as many blocks at a time as the fastest cache keeps for all their fields.
template <typename Work>
void in_tiles(size_t stride, size_t n_blocks, const Work & work) {
    constexpr size_t kTileBytes = 1 << 13;
    const size_t tile = std::max<size_t>(kTileBytes / stride, 1);
    for (size_t first = 0; first < n_blocks; first += tile) {
        work(first, std::min(tile, n_blocks - first));
    }
}

// Numbers of kPlanes bytes from as many planes, `apart` bytes apart, to places `to` bytes apart, together:
// plane by plane would be slower than memory.
template <size_t kPlanes>
inline void join_planes(const uint8_t * planes, size_t apart, uint8_t * out, size_t to, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        for (size_t plane = 0; plane < kPlanes; ++plane) {
            out[i * to + plane] = planes[plane * apart + i];
        }
    }
}

}  // namespace

int Layout::block_bytes() const {
    int sum = 0;
    for (const Field & field : fields) {
        sum += field.length;
    }
    return sum;
}

void split(const Layout & layout, const uint8_t * blocks, size_t n_blocks, uint8_t * streams) {
    const size_t stride = size_t(layout.block_bytes());
    in_tiles(stride, n_blocks, [&](size_t first, size_t n) {
        const uint8_t * from = blocks + first * stride;
        uint8_t * stream = streams;
        for (const Field & field : layout.fields) {
            const size_t length = size_t(field.length);
            copier(field.length)(from, stride, stream + first * length, length, n, length);
            from += length, stream += length * n_blocks;
        }
    });
}

void join(const Layout & layout, const uint8_t * streams, size_t n_blocks, uint8_t * blocks) {
    const size_t stride = size_t(layout.block_bytes());
    if (stride == layout.fields.size()) {  // fields of one byte each
        switch (stride) {
            case 1: std::copy_n(streams, n_blocks, blocks); return;
            case 2: join_planes<2>(streams, n_blocks, blocks, 2, n_blocks); return;
            case 4: join_planes<4>(streams, n_blocks, blocks, 4, n_blocks); return;
            default: break;
        }
    }
    in_tiles(stride, n_blocks, [&](size_t first, size_t n) {
        const uint8_t * stream = streams;
        uint8_t * to = blocks + first * stride;
        for (auto field = layout.fields.begin(); field != layout.fields.end(); ++field) {
            const size_t length = size_t(field->length);
            if (length == 1 && field + 1 != layout.fields.end() && (field + 1)->length == 1) {
                join_planes<2>(stream + first, n_blocks, to, stride, n);
                to += 2, stream += 2 * n_blocks, ++field;
                continue;
            }
            copier(field->length)(stream + first * length, length, to, stride, n, length);
            to += length, stream += length * n_blocks;
        }
    });
}

}  // namespace pyquant::pqz
