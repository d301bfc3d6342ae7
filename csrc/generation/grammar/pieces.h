// The bytes of each token of a vocabulary, side by side.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pyquant::grammar {

class Pieces {
public:
    Pieces(const std::vector<std::string_view> & pieces, std::pmr::memory_resource * memory)
        : short_(memory),
          long_(memory) {
        short_.reserve(pieces.size());
        for (const std::string_view piece : pieces) {
            Piece & here = short_.emplace_back();
            if (piece.size() < kLong) {
                here.size = uint8_t(piece.size());
                std::memcpy(here.bytes, piece.data(), piece.size());
                continue;
            }
            const uint32_t begin = uint32_t(long_.size()), size = uint32_t(piece.size());
            here.size = kLong;
            std::memcpy(here.bytes, &begin, sizeof begin);
            std::memcpy(here.bytes + sizeof begin, &size, sizeof size);
            long_.append(piece);
        }
    }

    size_t size() const { return short_.size(); }
    // Without any: the token never comes.
    std::string_view operator[](int32_t token) const {
        const Piece & here = short_[size_t(token)];
        if (here.size < kLong) {
            return {here.bytes, here.size};
        }
        uint32_t begin, size;
        std::memcpy(&begin, here.bytes, sizeof begin);
        std::memcpy(&size, here.bytes + sizeof begin, sizeof size);
        return {long_.data() + begin, size};
    }
    // Lets a token's bytes come from memory.
    void expect(int32_t token) const { __builtin_prefetch(&short_[size_t(token)]); }

private:
    static constexpr size_t kLong = 16;  // bytes that have to stand elsewhere
    struct Piece {
        uint8_t size = 0;
        char bytes[kLong - 1];
    };

    std::pmr::vector<Piece> short_;
    std::pmr::string long_;
};

}  // namespace pyquant::grammar
