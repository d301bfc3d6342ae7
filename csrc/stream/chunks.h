// Sharing of a tensor among threads: they take chunk after chunk of its rows until none is left.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace pyquant::stream {

inline constexpr int64_t kTileWeights = 1 << 13;  // one conversion to float: 32 KiB

// A tensor's rows in chunks of about 1 MiB: long enough for the disk, short enough for L2; or, where work
// on several rows takes as long as on one, of so many, as it takes longer than the disk. Every chunk has
// whole rows of one expert. row_bytes: what is read for a row.
struct Chunks {
    Chunks(int64_t n_rows, int64_t row_bytes, int64_t rows_per_expert, int64_t rows_together = 1);

    // Chunks of any bytes: where each of them begins, and at the end how many bytes there are.
    explicit Chunks(std::vector<int64_t> first_byte) : row_bytes(1), first_row(std::move(first_byte)) {}

    int64_t size() const { return int64_t(first_row.size()) - 1; }
    int64_t n_rows(int64_t chunk) const { return first_row[size_t(chunk) + 1] - first_row[size_t(chunk)]; }
    int n_threads(int asked) const;  // no more than there are chunks, at least one

    int64_t row_bytes;
    std::vector<int64_t> first_row;  // and the number of rows at the end
};

// Calls work(thread, chunk) once for every chunk, thread in [0, n_threads). tick(n) is called on the
// calling thread, several times a second and at the end, with the bytes before the first chunk
// that is not done; what it throws ends the work. Of several failures the one in the first chunk is rethrown.
void share(const Chunks & chunks, int n_threads, const std::function<void(int, int64_t)> & work,
           const std::function<void(int64_t)> & tick);

// The same for n pieces of work of which each is taken by itself: work(i).
void share_each(int64_t n, int n_threads, const std::function<void(int64_t)> & work);

// Gives what workers, one for each thread, make of the chunks, in the order of these, whoever made it.
template <class Worker>
auto process_all(const Chunks & chunks, std::vector<Worker> & workers,
                 const std::function<void(int64_t)> & tick) {
    std::vector<decltype(workers[0].process(0, 0))> made(size_t(chunks.size()));
    share(
        chunks, int(workers.size()),
        [&](int thread, int64_t chunk) {
            made[size_t(chunk)] =
                workers[size_t(thread)].process(chunks.first_row[size_t(chunk)], chunks.n_rows(chunk));
        },
        tick);
    return made;
}

}  // namespace pyquant::stream
