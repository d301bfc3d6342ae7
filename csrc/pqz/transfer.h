// Whole files, frame by frame: threads take frame after frame, and memory is bounded by a few MB for
// each of them. Which frames there are is the caller's to say.
#pragma once

#include <functional>

#include "pqz/frame.h"

namespace pyquant::pqz {

// Some blocks of a part of a file. begin: where they are expanded; coded_begin, coded_bytes: where and
// how long they are coded, with the checksum of that.
struct Frame {
    int64_t begin;
    int64_t n_bytes;
    size_t part;
    int64_t coded_begin = 0;
    int64_t coded_bytes = 0;
    uint64_t checksum = 0;
};

// A frame that cannot be expanded. frame: its number.
struct BadFrame : std::runtime_error {
    BadFrame(size_t frame, const std::string & why) : std::runtime_error(why), frame(frame) {}

    size_t frame;
};

using Tick = std::function<void(int64_t)>;  // see share; told of expanded bytes

// Codes frames of in_file and writes them to out_file one after the other, from out_begin on, in their
// order whatever n_threads; fills in their coded members. layouts: of each part. Returns what became
// of each part's fields. Throws ReadError and WriteError (stream/file.h).
std::vector<std::vector<FieldUse>> pack_frames(int in_file, std::vector<Frame> & frames,
                                               const std::vector<Layout> & layouts, int out_file,
                                               int64_t out_begin, int n_threads, const Tick & tick);

// Expands frames of in_file into out_file; -1: nowhere, they are only checked. Throws ReadError,
// WriteError and, for the first of them that is not as it was written, BadFrame.
void unpack_frames(int in_file, const std::vector<Frame> & frames, const std::vector<Layout> & layouts,
                   int out_file, int n_threads, const Tick & tick);

}  // namespace pyquant::pqz
