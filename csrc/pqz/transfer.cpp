#include "pqz/transfer.h"

#include <condition_variable>
#include <mutex>

#include "stream/chunks.h"
#include "stream/file.h"

namespace pyquant::pqz {

using namespace stream;

namespace {

Chunks chunks_of(const std::vector<Frame> & frames) {
    std::vector<int64_t> first_byte{0};
    for (const Frame & frame : frames) {
        first_byte.push_back(first_byte.back() + frame.n_bytes);
    }
    return Chunks(std::move(first_byte));
}

// Gives out places in the output, one after the other, in the order of the frames.
class Queue {
public:
    explicit Queue(int64_t begin) : end_(begin) {}

    // Waits for the frames before; false if one of them failed.
    bool place(Frame & frame, int64_t number) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return next_ == number || failed_; });
        if (failed_) {
            return false;
        }
        frame.coded_begin = end_;
        end_ += frame.coded_bytes;
        ++next_;
        changed_.notify_all();
        return true;
    }

    void fail() {
        const std::lock_guard<std::mutex> lock(mutex_);
        failed_ = true;
        changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int64_t end_, next_ = 0;
    bool failed_ = false;
};

struct Packer {
    FrameEncoder encoder;
    Bytes data;
};

struct Unpacker {
    FrameDecoder decoder;
    Bytes coded, data;
};

}  // namespace

std::vector<std::vector<FieldUse>> pack_frames(int in_file, std::vector<Frame> & frames,
                                               const std::vector<Layout> & layouts, int out_file,
                                               int64_t out_begin, int n_threads, const Tick & tick) {
    const Chunks chunks = chunks_of(frames);
    std::vector<Packer> packers(size_t(chunks.n_threads(n_threads)));
    std::vector<std::vector<FieldUse>> uses;
    for (const Layout & layout : layouts) {
        uses.emplace_back(layout.fields.size());
    }
    Queue queue(out_begin);
    std::mutex mutex;
    const auto work = [&](int thread, int64_t number) {
        Frame & frame = frames[size_t(number)];
        Packer & packer = packers[size_t(thread)];
        std::vector<FieldUse> use(layouts[frame.part].fields.size());
        packer.data.resize(size_t(frame.n_bytes));
        read_fully(in_file, packer.data.data(), frame.n_bytes, frame.begin);
        const Bytes & coded =
            packer.encoder.encode(layouts[frame.part], packer.data.data(), packer.data.size(), use);
        frame.coded_bytes = int64_t(coded.size());
        frame.checksum = checksum(coded.data(), coded.size());
        if (!queue.place(frame, number)) {
            return;
        }
        write_fully(out_file, coded.data(), frame.coded_bytes, frame.coded_begin);
        const std::lock_guard<std::mutex> lock(mutex);
        for (size_t field = 0; field < use.size(); ++field) {
            uses[frame.part][field] += use[field];
        }
    };
    share(
        chunks, int(packers.size()),
        [&](int thread, int64_t number) {
            try {
                work(thread, number);
            } catch (...) {
                queue.fail();
                throw;
            }
        },
        tick);
    return uses;
}

void unpack_frames(int in_file, const std::vector<Frame> & frames, const std::vector<Layout> & layouts,
                   int out_file, int n_threads, const Tick & tick) {
    const Chunks chunks = chunks_of(frames);
    std::vector<Unpacker> unpackers(size_t(chunks.n_threads(n_threads)));
    std::mutex writing;
    const auto work = [&](int thread, int64_t number) {
        const Frame & frame = frames[size_t(number)];
        Unpacker & unpacker = unpackers[size_t(thread)];
        unpacker.coded.resize(size_t(frame.coded_bytes));
        read_fully(in_file, unpacker.coded.data(), frame.coded_bytes, frame.coded_begin);
        if (checksum(unpacker.coded.data(), unpacker.coded.size()) != frame.checksum) {
            throw BadFrame(size_t(number), "its checksum is not that of what is there");
        }
        unpacker.data.resize(size_t(frame.n_bytes));
        try {
            unpacker.decoder.decode(layouts[frame.part], unpacker.coded.data(), unpacker.coded.size(),
                                    unpacker.data.data(), unpacker.data.size());
        } catch (const Damaged & damaged) {
            throw BadFrame(size_t(number), damaged.what());
        }
        if (out_file >= 0) {
            // The kernel lets one thread at a time write a file, and the others spin.
            const std::lock_guard<std::mutex> lock(writing);
            write_fully(out_file, unpacker.data.data(), frame.n_bytes, frame.begin);
        }
    };
    share(chunks, int(unpackers.size()), work, tick);
}

}  // namespace pyquant::pqz
