// Open files by their descriptors. All throw std::system_error.
#pragma once

#include <cstdint>

namespace pyquant::stream {

void read_fully(int file, void * data, int64_t size, int64_t offset);  // also where the file ends early
void write_fully(int file, const void * data, int64_t size, int64_t offset);

// Makes an empty file so long, and takes the room for it where the file system can: writing is then a
// third faster on ext4, and cannot run out of it.
void reserve(int file, int64_t size);

}  // namespace pyquant::stream
