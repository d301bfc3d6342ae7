// A spool written, left at any moment and taken over; and files that are no spool, or one of other records.
#include "calibrate/spool.h"

#include <numeric>
#include <random>

#include "support.h"

using namespace pyquant::calibrate;

namespace {

const std::vector<int64_t> kSizes = {1, 1024, 1025, 1, 7, 1024, 1};  // in floats; a page holds 1024

SpoolKey key_of(uint8_t byte) {
    SpoolKey key;
    key.fill(byte);
    return key;
}

std::vector<float> sample(int64_t record, uint64_t visits) {
    std::vector<float> data(size_t(kSizes[size_t(record)]));
    std::iota(data.begin(), data.end(), float(1000 * record) + float(visits));
    return data;
}

void expect_holds(const Spool & spool, int64_t record, uint64_t visits) {
    const Spool::Entry & entry = spool.entry(record);
    expect(entry.visits == visits && entry.count == double(visits) / 2, "an entry is what was written last");
    if (visits > 0) {
        std::unique_ptr<float[]> data(new float[size_t(kSizes[size_t(record)])]);
        spool.read(record, kSizes[size_t(record)], data.get());
        const std::vector<float> expected = sample(record, visits);
        expect(std::equal(expected.begin(), expected.end(), data.get()), "a record is what was written last");
    }
}

void write(Spool & spool, int64_t record, uint64_t visits) {
    const std::vector<float> data = sample(record, visits);
    spool.write(record, exactly(data.data(), data.size()).get(), visits, double(visits) / 2);
}

// Whatever was written when the process ended is there for the next.
void write_and_take_over(std::mt19937 & random) {
    const ScratchFile file;
    std::vector<uint64_t> visits(kSizes.size());
    for (uint64_t life = 0; life < 20; ++life) {
        Spool spool(file.descriptor(), kSizes, key_of(1));
        expect(spool.progress().batch == life && spool.progress().visit == 2 * life, "progress is kept");
        for (size_t i = 0; i < kSizes.size(); ++i) {
            expect_holds(spool, int64_t(i), visits[i]);
        }
        for (int n = int(random() % 10); n > 0; --n) {
            const size_t record = random() % kSizes.size();
            write(spool, int64_t(record), ++visits[record]);
            expect_holds(spool, int64_t(record), visits[record]);
        }
        spool.set_progress({life + 1, 2 * life + 2});
    }
    // The end of the process between a record and its entry: the record that was there still is.
    const std::vector<char> before = file.bytes();
    Spool spool(file.descriptor(), kSizes, key_of(1));
    write(spool, 1, visits[1] + 1);
    std::vector<char> after = file.bytes();
    const size_t entries = 4096;
    std::copy_n(before.begin(), entries, after.begin());
    file.write(after);
    expect_holds(Spool(file.descriptor(), kSizes, key_of(1)), 1, visits[1]);
}

void begin_anew() {
    const ScratchFile file;
    {
        Spool spool(file.descriptor(), kSizes, key_of(1));
        write(spool, 2, 3);
        spool.set_progress({1, 1});
    }
    const auto is_new = [&](const Spool & spool, const char * what) {
        expect(spool.progress().batch == 0 && spool.entry(2).visits == 0, what);
    };
    is_new(Spool(file.descriptor(), kSizes, key_of(2)), "a spool of another key begins anew");
    std::vector<int64_t> others = kSizes;
    others.push_back(5);
    is_new(Spool(file.descriptor(), others, key_of(2)), "a spool of other records begins anew");
    for (const int64_t size : {0, 1, 63, 64, 4095}) {
        expect(ftruncate(file.descriptor(), size) == 0, "a file can be cut");
        is_new(Spool(file.descriptor(), kSizes, key_of(2)), "a file that was cut begins anew");
    }
    file.write(std::vector<char>(64, 'x'));
    is_new(Spool(file.descriptor(), kSizes, key_of(2)), "a file of other bytes begins anew");
    is_new(Spool(file.descriptor(), {1, 1, 1}, key_of(3)), "records of one size have one spare place");
    expect_error<pyquant::stream::WriteError>([] { Spool(1 << 20, kSizes, key_of(1)); },
                                              "a file that is not open is named");
    Spool spool(file.descriptor(), kSizes, key_of(1));
    expect(ftruncate(file.descriptor(), 4096) == 0, "a file can be cut");
    std::vector<float> data(1024);
    expect_error<pyquant::stream::ReadError>([&] { spool.read(1, kSizes[1], data.data()); },
                                             "a record that is cut off is named");
}

}  // namespace

int main() {
    std::mt19937 random(1);
    write_and_take_over(random);
    begin_anew();
}
