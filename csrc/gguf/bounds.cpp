#include "gguf/bounds.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace pyquant::gguf {
namespace {

enum Type : uint32_t { kText = 8, kArray = 9, kTypes = 13 };

// Bytes of a value, by its type; 0 for texts and arrays, whose lengths stand before them.
constexpr std::array<uint64_t, kTypes> kBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

constexpr uint64_t kShort = 4096;  // read rather than jumped over: a jump empties the file's buffer

void check(uint64_t n, uint64_t most, const char * what) {
    if (n > most) {
        throw TooLarge(std::string("number of ") + what + " is " + std::to_string(n) + ", more than " +
                       std::to_string(most));
    }
}

class Walk {
public:
    explicit Walk(std::FILE * file) : file_(file) {}

    void header() {
        char magic[4];
        uint32_t version;
        uint64_t n_tensors, n_keys;
        if (!read(magic) || std::memcmp(magic, "GGUF", 4) != 0 || !read(version) || version < 2 ||
            version > 3 || !read(n_tensors) || !read(n_keys)) {
            return;
        }
        check(n_tensors, kMostTensors, "tensors");
        check(n_keys, kMostKeys, "key value pairs");
        bool sound = true;
        for (uint64_t i = 0; sound && i < n_keys; ++i) {
            sound = text() && value();
        }
        for (uint64_t i = 0; sound && i < n_tensors; ++i) {
            sound = tensor();
        }
    }

private:
    template <class T>
    bool read(T & value) {
        return take(sizeof(value)) && std::fread(&value, sizeof(value), 1, file_) == 1;
    }

    // Counts bytes, of which the file need not have any.
    bool take(uint64_t n) {
        if (n > kMostBytes - at_) {
            throw TooLarge("its header has more than " + std::to_string(kMostBytes) + " bytes");
        }
        at_ += n;
        return true;
    }

    bool skip(uint64_t n) {
        take(n);
        char unused[kShort];
        return n <= kShort ? std::fread(unused, 1, n, file_) == n : fseeko(file_, off_t(n), SEEK_CUR) == 0;
    }

    bool text() {
        uint64_t length;
        return read(length) && skip(length);
    }

    bool value() {
        uint32_t type;
        if (!read(type) || type >= kTypes) {
            return false;
        }
        return type == kArray ? array() : type == kText ? text() : skip(kBytes[type]);
    }

    bool array() {
        uint32_t type;
        uint64_t n;
        if (!read(type) || !read(n) || type >= kTypes || type == kArray) {
            return false;
        }
        if (type != kText) {
            return skip(std::min(n, kMostBytes + 1) * kBytes[type]);
        }
        check(n, kMostTexts - n_texts_, "texts in arrays");
        n_texts_ += n;
        bool sound = true;
        for (uint64_t i = 0; sound && i < n; ++i) {
            sound = text();
        }
        return sound;
    }

    bool tensor() {
        uint32_t n_dims;
        return text() && read(n_dims) && n_dims <= 4 && skip(8 * n_dims + 4 + 8);  // shape, type, offset
    }

    std::FILE * file_;
    uint64_t at_ = 0, n_texts_ = 0;
};

}  // namespace

void check_bounds(std::FILE * file) {
    Walk(file).header();
}

}  // namespace pyquant::gguf
