// Stacks of a parser as chains, and room for those that are only tried.
#pragma once

#include <deque>

#include "generation/grammar/chain.h"
#include "generation/grammar/tables.h"

namespace pyquant::grammar {

// A set of stacks of parser states, never empty: those with this state on top, and those beside.
// No two nodes of a set have the same state, so equal stacks are the same one.
struct StackNode {
    mutable std::atomic<uint32_t> uses{0};  // none: it is a Scratch's
    int32_t state = 0;
    const StackNode * below = nullptr;  // a set: what is below this state; null at the bottom
    const StackNode * beside = nullptr;

    bool kept() const { return uses.load(std::memory_order_relaxed) != 0; }
};

// Terminals that were tried on stacks, by a stack's two upper states and the set below them.
class Tried {
public:
    void clear() {
        round_++;
        n_ = 0;
    }
    // Notes terminals, and returns those that are new. upper: a node without others beside it.
    Terminals note(int32_t state, const StackNode * upper, const Terminals & terminals) {
        if (2 * n_ >= entries_.size()) {
            grow();
        }
        Entry & entry = find(state, upper->state, upper->below);
        if (entry.round != round_) {
            entry = {round_, state, upper->state, upper->below, {}};
            n_++;
        }
        const Terminals are_new = terminals.without(entry.tried);
        entry.tried |= terminals;
        return are_new;
    }

private:
    struct Entry {
        uint64_t round = 0;
        int32_t state = 0, upper = 0;
        const StackNode * below = nullptr;
        Terminals tried;
    };

    Entry & find(int32_t state, int32_t upper, const StackNode * below) {
        const uint64_t hash = (uint64_t(reinterpret_cast<uintptr_t>(below)) ^
                               uint64_t(uint32_t(state)) << 44 ^ uint64_t(uint32_t(upper)) << 24) *
                              0x9E3779B97F4A7C15u;
        for (size_t i = size_t(hash >> 32);; i++) {
            Entry & entry = entries_[i & (entries_.size() - 1)];
            if (entry.round != round_ ||
                (entry.state == state && entry.upper == upper && entry.below == below)) {
                return entry;
            }
        }
    }
    void grow() {
        const std::vector<Entry> before = std::move(entries_);
        entries_.assign(before.empty() ? 32 : 2 * before.size(), {});
        for (const Entry & entry : before) {
            if (entry.round == round_) {
                find(entry.state, entry.upper, entry.below) = entry;
            }
        }
    }

    std::vector<Entry> entries_;  // a power of two; those of another round are free
    uint64_t round_ = 0;
    size_t n_ = 0;
};

// Room for nodes that are tried, and forgotten together.
class Scratch {
public:
    void clear() { used_ = 0; }
    const StackNode * push(int32_t state, const StackNode * below, const StackNode * beside = nullptr) {
        if (used_ == nodes_.size()) {
            nodes_.emplace_back();
        }
        StackNode & node = nodes_[used_++];
        node.state = state;
        node.below = below;
        node.beside = beside;
        return &node;
    }

    // Pairs that are still to be tried: a stack, or a node of several without those beside it, and terminals.
    std::vector<std::pair<const StackNode *, Terminals>> todo;
    Tried tried;
    int32_t fuel = 0;  // steps that uniting two sets may still take

private:
    std::deque<StackNode> nodes_;
    size_t used_ = 0;
};

}  // namespace pyquant::grammar
