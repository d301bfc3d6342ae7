#include "calibrate/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "stream/file.h"

namespace pyquant::calibrate {

using namespace stream;

namespace {

struct Header {
    char magic[8];
    SpoolKey key;
    uint64_t n_records;
    Spool::Progress progress;
};
constexpr char kMagic[8] = {'p', 'q', 's', 'p', 'o', 'o', 'l', '1'};
constexpr int64_t kPage = 4096;

int64_t whole_pages(int64_t bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

Spool::Spool(int file, const std::vector<int64_t> & sizes, const SpoolKey & key)
    : file_(file),
      sizes_(sizes),
      entries_(sizes.size()) {
    std::map<int64_t, std::set<uint64_t>> places;  // by size
    int64_t end = whole_pages(int64_t(sizeof(Header) + sizes.size() * sizeof(Entry)));
    const auto place = [&](int64_t size) {
        const auto at = uint64_t(end);
        places[size].insert(at);
        end += whole_pages(size * int64_t(sizeof(float)));
        return at;
    };
    for (size_t i = 0; i < sizes.size(); ++i) {
        entries_[i] = {0, 0, place(sizes[i])};
    }
    for (const int64_t size : std::set<int64_t>(sizes.begin(), sizes.end())) {
        place(size);
    }
    goes_on_ = take_over(key, end);
    if (!goes_on_) {
        begin(key, end);
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
        places[sizes[i]].erase(entries_[i].place);
    }
    for (const auto & [size, left] : places) {
        spare_[size] = *left.begin();
    }
}

bool Spool::take_over(const SpoolKey & key, int64_t size) {
    struct stat status;
    Header header;
    if (fstat(file_, &status) != 0 || status.st_size != size) {
        return false;
    }
    read_fully(file_, &header, sizeof header, 0);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.key != key ||
        header.n_records != entries_.size()) {
        return false;
    }
    progress_ = header.progress;
    read_fully(file_, entries_.data(), int64_t(entries_.size() * sizeof(Entry)), sizeof header);
    return true;
}

void Spool::begin(const SpoolKey & key, int64_t size) {
    if (ftruncate(file_, 0) != 0) {
        throw WriteError(errno, std::generic_category());
    }
    reserve(file_, size);
    write_fully(file_, entries_.data(), int64_t(entries_.size() * sizeof(Entry)), sizeof(Header));
    Header header{{}, key, entries_.size(), progress_};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    write_fully(file_, &header, sizeof header, 0);  // last: only now it is a spool
}

void Spool::set_progress(const Progress & progress) {
    progress_ = progress;
    write_fully(file_, &progress_, sizeof progress_, offsetof(Header, progress));
}

void Spool::read(int64_t record, int64_t n, float * data) const {
    read_fully(file_, data, n * int64_t(sizeof(float)), int64_t(entries_[size_t(record)].place));
}

void Spool::write(int64_t record, const float * data, uint64_t visits, double count) {
    const auto i = size_t(record);
    uint64_t & spare = spare_[sizes_[i]];
    write_fully(file_, data, sizes_[i] * int64_t(sizeof(float)), int64_t(spare));
    const Entry entry{visits, count, spare};
    write_fully(file_, &entry, sizeof entry, int64_t(sizeof(Header) + i * sizeof entry));
    spare = entries_[i].place;
    entries_[i] = entry;
}

}  // namespace pyquant::calibrate
