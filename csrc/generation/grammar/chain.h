// Linked chains that share their lower parts, so that copying one costs nothing and going back is exact.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

namespace pyquant::grammar {

// Counts the uses of a link. A link has `uses`, `below` and `beside`, and counts as a use of both.
template <class T>
class Ref {
public:
    Ref() = default;
    // Takes over a use.
    explicit Ref(const T * link) : link_(link) {}
    Ref(const Ref & other) : link_(other.link_) { use(link_); }
    Ref(Ref && other) noexcept : link_(std::exchange(other.link_, nullptr)) {}
    Ref & operator=(Ref other) noexcept {
        std::swap(link_, other.link_);
        return *this;
    }
    ~Ref() { release(link_); }

    const T * get() const { return link_; }
    const T * operator->() const { return link_; }

    static void use(const T * link) {
        if (link) {
            link->uses.fetch_add(1, std::memory_order_relaxed);
        }
    }

private:
    // A loop: a chain may be longer than a program's stack is deep.
    static void release(const T * link) {
        std::vector<const T *> more;
        for (;;) {
            while (link && link->uses.fetch_sub(1, std::memory_order_acq_rel) == 1) {
                if (link->beside) {
                    more.push_back(link->beside);
                }
                const T * below = link->below;
                delete link;
                link = below;
            }
            if (more.empty()) {
                return;
            }
            link = more.back();
            more.pop_back();
        }
    }

    const T * link_ = nullptr;
};

}  // namespace pyquant::grammar
