// A frame of a pqz file, from any bytes: it is expanded, or refused by Damaged. The first byte chooses the
// layout, the next two how many blocks the frame shall have, the others are the frame.
#include <cstdint>

#include "pqz/frame.h"

using namespace pyquant::pqz;

namespace {

const Layout kLayouts[] = {
    {{{1, Content::text}}},
    {{{1, Content::codes}}},
    {{{2, Content::numbers}, {16, Content::codes}}},
    {{{1, Content::numbers}, {1, Content::numbers}, {32, Content::codes}}},
    {{{1, Content::numbers}, {1, Content::numbers}, {1, Content::numbers}, {1, Content::numbers}}},
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    if (size < 3) {
        return 0;
    }
    const Layout & layout = kLayouts[data[0] % std::size(kLayouts)];
    const size_t n_blocks = data[1] + 256u * (data[2] % 16);
    const Bytes coded(data + 3, data + size);  // a buffer of its own: one byte too far is seen
    Bytes expanded(n_blocks * size_t(layout.block_bytes()));
    try {
        FrameDecoder().decode(layout, coded.data(), coded.size(), expanded.data(), expanded.size());
    } catch (const Damaged &) {
    }
    return 0;
}
