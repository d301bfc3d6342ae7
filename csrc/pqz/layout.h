// Rules by which the bytes of a tensor's blocks are told apart: those of one meaning go into one stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyquant::pqz {

// Content of a stream, and so how an encoder looks for redundancy in it. codes: in unequal use of the
// symbols; numbers: there and in repetitions; text: as numbers, however long it takes.
enum class Content : uint8_t { codes, numbers, text };

// The next `length` bytes of every block.
struct Field {
    int length;
    Content content;
};

struct Layout {
    std::vector<Field> fields;

    int block_bytes() const;
};

// Conversions between blocks one after the other and streams one after the other, one for each field.
void split(const Layout & layout, const uint8_t * blocks, size_t n_blocks, uint8_t * streams);
void join(const Layout & layout, const uint8_t * streams, size_t n_blocks, uint8_t * blocks);

}  // namespace pyquant::pqz
