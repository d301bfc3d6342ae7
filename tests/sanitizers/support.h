// Parts that the drivers have in common: buffers of exactly the size that may be touched, files that are gone
// afterwards, and what has to hold.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "stream/file.h"

// A buffer on the heap, so that one element too far is seen.
template <class T>
std::unique_ptr<T[]> exactly(const T * from, size_t n) {
    std::unique_ptr<T[]> copy(new T[n]);
    std::copy_n(from, n, copy.get());
    return copy;
}

inline void expect(bool condition, const char * what) {
    if (!condition) {
        std::fprintf(stderr, "not so: %s\n", what);
        std::exit(1);
    }
}

template <class Error, class Work>
void expect_error(const Work & work, const char * what) {
    try {
        work();
    } catch (const Error &) {
        return;
    }
    expect(false, what);
}

// An open file without a name.
class ScratchFile {
public:
    ScratchFile() = default;
    ~ScratchFile() { std::fclose(file_); }
    ScratchFile(const ScratchFile &) = delete;
    ScratchFile & operator=(const ScratchFile &) = delete;

    int descriptor() const { return fileno(file_); }

    int64_t size() const { return lseek(descriptor(), 0, SEEK_END); }

    void write(const std::vector<char> & bytes, int64_t offset = 0) const {
        pyquant::stream::write_fully(descriptor(), bytes.data(), int64_t(bytes.size()), offset);
    }

    std::vector<char> bytes() const {
        std::vector<char> all(static_cast<size_t>(size()));
        pyquant::stream::read_fully(descriptor(), all.data(), int64_t(all.size()), 0);
        return all;
    }

private:
    std::FILE * file_ = std::tmpfile();
};
