// A file of records of floats that survives its writer's death at any time.
//
// A record is never overwritten: it is written to the spare place that there is for each size, and a
// small entry then says that this place is the record's; the one it had is the next spare. Power
// failures are not provided for, only the end of the process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace pyquant::calibrate {

using SpoolKey = std::array<uint8_t, 32>;

class Spool {
public:
    // Numbers of what all records hold: the next run begins with them.
    struct Progress {
        uint64_t batch, visit;
    };
    struct Entry {
        uint64_t visits;  // that the record holds or has passed over
        double count;     // the tokens in it, times their weights
        uint64_t place;   // where it is in the file
    };

    // sizes: of the records, in floats. key: says what the records are of. A file with this key goes on
    // where it is, any other becomes a new one, with room for all records. Throws ReadError and WriteError
    // (stream/file.h).
    Spool(int file, const std::vector<int64_t> & sizes, const SpoolKey & key);

    // Whether the file was of this key.
    bool goes_on() const { return goes_on_; }
    const Progress & progress() const { return progress_; }
    void set_progress(const Progress & progress);

    const Entry & entry(int64_t record) const { return entries_[size_t(record)]; }
    // n: floats, from its first on.
    void read(int64_t record, int64_t n, float * data) const;
    void write(int64_t record, const float * data, uint64_t visits, double count);

private:
    bool take_over(const SpoolKey & key, int64_t size);
    void begin(const SpoolKey & key, int64_t size);

    int file_;
    std::vector<int64_t> sizes_;
    bool goes_on_ = false;
    Progress progress_{0, 0};
    std::vector<Entry> entries_;
    std::map<int64_t, uint64_t> spare_;  // by size
};

}  // namespace pyquant::calibrate
