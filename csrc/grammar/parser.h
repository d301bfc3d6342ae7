// An LALR(1) parser whose stacks are chains: what a terminal would do is tried without changing them.
#pragma once

#include <deque>

#include "grammar/chain.h"
#include "grammar/tables.h"

namespace pyquant::grammar {

// The top of a stack of parser states.
struct StackNode {
    mutable std::atomic<uint32_t> uses{1};
    int32_t state = 0;
    bool kept = false;  // else it is a Scratch's
    const StackNode * below = nullptr;
};

// Room for nodes that are tried, and forgotten together.
class Scratch {
public:
    void clear() { used_ = 0; }
    const StackNode * push(int32_t state, const StackNode * below) {
        if (used_ == nodes_.size()) {
            nodes_.emplace_back();
        }
        StackNode & node = nodes_[used_++];
        node.state = state;
        node.below = below;
        return &node;
    }

    // Pairs that are still to be tried: a stack, and terminals.
    std::vector<std::pair<const StackNode *, Terminals>> todo;

private:
    std::deque<StackNode> nodes_;
    size_t used_ = 0;
};

class Parser {
public:
    explicit Parser(const ParserTables & tables);

    int32_t end() const { return n_terminals_ - 1; }
    // Says whether a terminal may come after another one, anywhere.
    bool follows(int32_t terminal, int32_t next) const { return followers_[size_t(terminal)].has(next); }
    const Terminals & followers(int32_t terminal) const { return followers_[size_t(terminal)]; }

    // The stack before the first terminal.
    Ref<StackNode> start() const;
    // Gives those of the terminals that may come.
    Terminals accepted(const StackNode * stack, const Terminals & wanted, Scratch & scratch) const;
    // The stack after a terminal, or null: it may not come. Nodes are the scratch's.
    const StackNode * shift(const StackNode * stack, int32_t terminal, Scratch & scratch) const;
    // The same stack, without nodes of a scratch.
    static Ref<StackNode> keep(const StackNode * stack);

private:
    struct Reduction {
        int32_t length, origin;
        Terminals on;
    };

    const StackNode * reduce(const StackNode * stack, int32_t length, int32_t origin,
                             Scratch & scratch) const {
        for (int32_t i = 0; i < length; i++) {
            stack = stack->below;
        }
        return scratch.push(gotos_[size_t(stack->state) * size_t(n_nonterminals_) + size_t(origin)], stack);
    }

    int32_t n_terminals_, n_nonterminals_, start_;
    std::vector<int32_t> actions_, gotos_, lengths_, origins_;
    std::vector<Terminals> shifts_;                // by state
    std::vector<std::vector<Reduction>> reduces_;  // by state
    std::vector<Terminals> followers_;             // by terminal
};

}  // namespace pyquant::grammar
