// N frames coded, damaged and decoded, N being the first argument, and a file packed and unpacked by
// several threads. Whatever is in a frame, it is decoded or refused.
#include <cstdlib>
#include <random>

#include "pqz/transfer.h"
#include "stream/chunks.h"
#include "stream/file.h"
#include "support.h"

using namespace pyquant::pqz;
using namespace pyquant::stream;

namespace {

const Layout kLayouts[] = {
    {{{1, Content::numbers}, {1, Content::numbers}, {32, Content::codes}}},
    {{{1, Content::numbers}, {1, Content::numbers}}},
    {{{1, Content::numbers}, {1, Content::numbers}, {1, Content::numbers}, {1, Content::numbers}}},
    {{{1, Content::codes}}},
    {{{1, Content::text}}},
};

// Bytes of some distribution, from one that never changes to one without any order.
Bytes sample(std::mt19937 & random, size_t n) {
    std::geometric_distribution<int> symbol(std::uniform_real_distribution<>(0.004, 0.999)(random));
    Bytes data(n);
    for (uint8_t & byte : data) {
        byte = uint8_t(symbol(random));
    }
    return data;
}

void damage(std::mt19937 & random, Bytes & coded) {
    for (int change = int(random() % 4); change >= 0; --change) {
        switch (random() % 3) {
            case 0: coded[random() % coded.size()] = uint8_t(random()); break;
            case 1: coded[random() % std::min<size_t>(coded.size(), 40)] ^= uint8_t(1 << random() % 8); break;
            default: coded.resize(1 + random() % coded.size()); break;
        }
    }
}

void decode_damaged(std::mt19937 & random) {
    const Layout & layout = kLayouts[random() % std::size(kLayouts)];
    const Bytes data = sample(random, size_t(layout.block_bytes()) * (random() % 600));
    std::vector<FieldUse> use(layout.fields.size());
    FrameEncoder encoder;
    Bytes coded = encoder.encode(layout, data.data(), data.size(), use), back(data.size());
    FrameDecoder decoder;
    decoder.decode(layout, coded.data(), coded.size(), back.data(), back.size());
    expect(back == data, "a frame is what it was");
    damage(random, coded);
    coded.shrink_to_fit();
    try {
        decoder.decode(layout, coded.data(), coded.size(), back.data(), back.size());
    } catch (const Damaged &) {
    }
}

void transfer(std::mt19937 & random) {
    const ScratchFile in, pqz, out;
    const Bytes data = sample(random, 34 * 4000);
    write_fully(in.descriptor(), data.data(), int64_t(data.size()), 0);
    std::vector<Frame> frames;
    for (int64_t begin = 0; begin < int64_t(data.size()); begin += 3400) {
        frames.push_back({begin, 3400, 0});
    }
    const auto tick = [](int64_t) {};
    pack_frames(in.descriptor(), frames, {kLayouts[0]}, pqz.descriptor(), 0, 4, tick);
    unpack_frames(pqz.descriptor(), frames, {kLayouts[0]}, out.descriptor(), 4, tick);
    Bytes back(data.size());
    read_fully(out.descriptor(), back.data(), int64_t(back.size()), 0);
    expect(back == data, "a file is what it was");
}

}  // namespace

int main(int, char ** arguments) {
    std::mt19937 random(1);
    for (int i = std::atoi(arguments[1]); i > 0; --i) {
        decode_damaged(random);
    }
    transfer(random);
}
