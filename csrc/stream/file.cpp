#include "stream/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace pyquant::stream {

void read_fully(int file, void * data, int64_t size, int64_t offset) {
    char * at = static_cast<char *>(data);
    while (size > 0) {
        const ssize_t n = pread(file, at, size_t(size), off_t(offset));
        if (n < 0 && errno != EINTR) {
            throw ReadError(errno, std::generic_category());
        }
        if (n == 0) {
            throw ReadError(EIO, std::generic_category(), "the file ends early");
        }
        if (n > 0) {
            at += n, size -= n, offset += n;
        }
    }
}

void write_fully(int file, const void * data, int64_t size, int64_t offset) {
    const char * at = static_cast<const char *>(data);
    while (size > 0) {
        const ssize_t n = pwrite(file, at, size_t(size), off_t(offset));
        if (n < 0 && errno != EINTR) {
            throw WriteError(errno, std::generic_category());
        }
        if (n > 0) {
            at += n, size -= n, offset += n;
        }
    }
}

void reserve(int file, int64_t size) {
#ifdef __linux__
    // fallocate serves, not posix_fallocate, which writes to every block where the file system cannot.
    while (size > 0) {
        if (fallocate(file, 0, 0, off_t(size)) == 0) {
            return;
        }
        if (errno == EOPNOTSUPP || errno == ENOSYS) {
            break;
        }
        if (errno != EINTR) {
            throw WriteError(errno, std::generic_category());
        }
    }
#endif
    if (ftruncate(file, off_t(size)) != 0) {
        throw WriteError(errno, std::generic_category());
    }
}

}  // namespace pyquant::stream
