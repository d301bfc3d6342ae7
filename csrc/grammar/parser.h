// An LALR(1) parser whose stacks are chains: what a terminal would do is tried without changing them.
// Where tables have several actions for a terminal, it follows all stacks that they lead to.
#pragma once

#include <stdexcept>

#include "grammar/scratch.h"

namespace pyquant::grammar {

// A text can be read in more ways than can be followed.
struct TooManyWays : std::runtime_error {
    TooManyWays();
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
    Terminals accepted(const StackNode * stacks, const Terminals & wanted, Scratch & scratch) const;
    // The stacks after a terminal, or null: it may not come. Nodes are the scratch's.
    const StackNode * shift(const StackNode * stacks, int32_t terminal, Scratch & scratch) const;
    // The same stacks, without nodes of a scratch.
    static Ref<StackNode> keep(const StackNode * stacks);

private:
    struct Reduction {
        int32_t length, origin;
        Terminals on;
    };

    void add_reduction(size_t state, int32_t terminal, int32_t action);
    int32_t action(int32_t state, int32_t terminal) const {
        return actions_[size_t(state) * size_t(n_terminals_) + size_t(terminal)];
    }
    int32_t after(int32_t state, int32_t origin) const {
        return gotos_[size_t(state) * size_t(n_nonterminals_) + size_t(origin)];
    }
    const StackNode * reduce(const StackNode * stack, int32_t length, int32_t origin,
                             Scratch & scratch) const {
        for (int32_t i = 0; i < length; i++) {
            stack = stack->below;
        }
        return scratch.push(after(stack->state, origin), stack);
    }
    // The same as without these names, where a terminal may have several actions.
    Terminals accepted_by_any(const StackNode * stacks, const Terminals & wanted, Scratch & scratch) const;
    const StackNode * shift_all(const StackNode * stacks, int32_t terminal, Scratch & scratch) const;
    // Tries terminals on all stacks, and calls with each node that shifts some of them, and those.
    template <class Visit>
    void try_all(const StackNode * stacks, const Terminals & wanted, Scratch & scratch, Visit visit) const;
    // Adds what a reduction leads to from a set that it comes down to.
    void push_all(const StackNode * stacks, int32_t origin, const Terminals & on, Scratch & scratch) const;

    int32_t n_terminals_, n_nonterminals_, start_;
    bool several_;  // whether a terminal has several actions anywhere
    std::vector<int32_t> actions_, gotos_, lengths_, origins_;
    std::vector<Terminals> shifts_;                // by state
    std::vector<std::vector<Reduction>> reduces_;  // by state
    std::vector<Terminals> followers_;             // by terminal
};

}  // namespace pyquant::grammar
