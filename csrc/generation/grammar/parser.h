// An LALR(1) parser whose stacks are chains: what a terminal would do is tried without changing them.
// Where tables have several actions for a terminal, it follows all stacks that they lead to.
#pragma once

#include <stdexcept>

#include "generation/grammar/scratch.h"

namespace pyquant::grammar {

// A text can be read in more ways than can be followed.
struct TooManyWays : std::runtime_error {
    TooManyWays();
};

class Parser {
public:
    Parser(const ParserTables & tables, std::pmr::memory_resource * memory);

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
    struct Rule {
        int32_t length, origin;  // symbols that a reduction takes from the stack, and what it puts there
    };
    // Reductions of a state that are the same whatever terminal comes, and those terminals.
    struct Reduction {
        Rule rule;
        Terminals on;
    };
    struct ParserState {
        Terminals shifts;
        int32_t reductions, beyond;  // places of its reductions, and the first one after them
    };
    struct Reductions {
        const Reduction *first, *last;
        const Reduction * begin() const { return first; }
        const Reduction * end() const { return last; }
    };

    Reductions reductions(int32_t state) const {
        const ParserState & here = states_[size_t(state)];
        return {reductions_.data() + here.reductions, reductions_.data() + here.beyond};
    }
    int32_t action(int32_t state, int32_t terminal) const {
        return actions_[size_t(state) * size_t(n_terminals_) + size_t(terminal)];
    }
    int32_t after(int32_t state, int32_t origin) const {
        return gotos_[size_t(state) * size_t(n_nonterminals_) + size_t(origin)];
    }
    const StackNode * reduce(const StackNode * stack, const Rule & rule, Scratch & scratch) const {
        for (int32_t i = 0; i < rule.length; i++) {
            stack = stack->below;
        }
        return scratch.push(after(stack->state, rule.origin), stack);
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
    std::pmr::vector<ParserState> states_;
    std::pmr::vector<Reduction> reductions_;
    std::pmr::vector<Rule> rules_;
    std::pmr::vector<int32_t> actions_, gotos_;
    std::pmr::vector<Terminals> followers_;  // by terminal
};

}  // namespace pyquant::grammar
