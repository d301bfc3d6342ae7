// Open files by their descriptors.
#pragma once

#include <cstdint>
#include <system_error>

namespace pyquant::stream {

struct ReadError : std::system_error {
    using std::system_error::system_error;
};

struct WriteError : std::system_error {
    using std::system_error::system_error;
};

// Throws ReadError, also where the file ends early.
void read_fully(int file, void * data, int64_t size, int64_t offset);

// Throws WriteError.
void write_fully(int file, const void * data, int64_t size, int64_t offset);

// Makes an empty file so long, and takes the room for it where the file system can: writing is then a
// third faster on ext4, and cannot run out of it. Throws WriteError.
void reserve(int file, int64_t size);

}  // namespace pyquant::stream
