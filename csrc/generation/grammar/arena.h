// Memory for what a grammar is read from, in as few pages as can be. Beside a forward pass the processor
// forgets where pages are, and to look it up again takes longer than to read what is there.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <memory_resource>
#include <new>

namespace pyquant::grammar {

// Whole pages of 2 MiB, where the system has them.
class HugePages : public std::pmr::memory_resource {
    static constexpr std::size_t kPage = std::size_t(1) << 21;

    void * do_allocate(std::size_t bytes, std::size_t) override {
        const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
        void * const memory = std::aligned_alloc(kPage, rounded);
        if (memory == nullptr) {
            throw std::bad_alloc();
        }
#ifdef MADV_HUGEPAGE
        madvise(memory, rounded, MADV_HUGEPAGE);  // where it does not help, nothing is lost
#endif
        return memory;
    }
    void do_deallocate(void * memory, std::size_t, std::size_t) override { std::free(memory); }
    bool do_is_equal(const std::pmr::memory_resource & other) const noexcept override {
        return this == &other;
    }
};

// Memory that is given back all at once.
class Arena {
public:
    std::pmr::memory_resource * memory() { return &memory_; }

private:
    HugePages pages_;
    std::pmr::monotonic_buffer_resource memory_{std::size_t(1) << 20, &pages_};
};

}  // namespace pyquant::grammar
