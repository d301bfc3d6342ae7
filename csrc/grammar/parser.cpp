#include "grammar/parser.h"

namespace pyquant::grammar {

Parser::Parser(const ParserTables & tables)
    : n_terminals_(tables.n_terminals),
      n_nonterminals_(tables.n_nonterminals),
      start_(tables.start),
      actions_(tables.actions),
      gotos_(tables.gotos),
      lengths_(tables.lengths),
      origins_(tables.origins) {
    const size_t n = actions_.size() / size_t(n_terminals_);
    shifts_.resize(n);
    reduces_.resize(n);
    std::vector<Terminals> valid(n);
    for (size_t state = 0; state < n; state++) {
        for (int32_t terminal = 0; terminal < n_terminals_; terminal++) {
            const int32_t action = actions_[state * size_t(n_terminals_) + size_t(terminal)];
            if (action == 0) {
                continue;
            }
            valid[state].add(terminal);
            if (action > 0) {
                shifts_[state].add(terminal);
                continue;
            }
            const auto rule = size_t(-action - 1);
            Reduction * same = nullptr;
            for (Reduction & reduction : reduces_[state]) {
                if (reduction.length == lengths_[rule] && reduction.origin == origins_[rule]) {
                    same = &reduction;
                }
            }
            if (!same) {
                same = &reduces_[state].emplace_back(Reduction{lengths_[rule], origins_[rule], {}});
            }
            same->on.add(terminal);
        }
    }
    followers_.resize(size_t(n_terminals_));
    for (size_t i = 0; i < actions_.size(); i++) {
        if (actions_[i] > 0) {
            followers_[i % size_t(n_terminals_)] |= valid[size_t(actions_[i] - 1)];
        }
    }
}

Ref<StackNode> Parser::start() const {
    auto * node = new StackNode;
    node->state = start_;
    node->kept = true;
    return Ref<StackNode>(node);
}

Terminals Parser::accepted(const StackNode * stack, const Terminals & wanted, Scratch & scratch) const {
    Terminals result;
    auto & todo = scratch.todo;
    todo.assign(1, {stack, wanted});
    while (!todo.empty()) {
        const auto [top, terminals] = todo.back();
        todo.pop_back();
        result |= terminals & shifts_[size_t(top->state)];
        for (const Reduction & reduction : reduces_[size_t(top->state)]) {
            const Terminals on = terminals & reduction.on;
            if (on.any()) {
                todo.emplace_back(reduce(top, reduction.length, reduction.origin, scratch), on);
            }
        }
    }
    return result;
}

const StackNode * Parser::shift(const StackNode * stack, int32_t terminal, Scratch & scratch) const {
    for (;;) {
        const int32_t action = actions_[size_t(stack->state) * size_t(n_terminals_) + size_t(terminal)];
        if (action > 0) {
            return scratch.push(action - 1, stack);
        }
        if (action == 0) {
            return nullptr;
        }
        const auto rule = size_t(-action - 1);
        stack = reduce(stack, lengths_[rule], origins_[rule], scratch);
    }
}

Ref<StackNode> Parser::keep(const StackNode * stack) {
    std::vector<int32_t> states;
    for (; !stack->kept; stack = stack->below) {
        states.push_back(stack->state);
    }
    Ref<StackNode>::use(stack);
    for (; !states.empty(); states.pop_back()) {
        auto * node = new StackNode;
        node->state = states.back();
        node->kept = true;
        node->below = stack;
        stack = node;
    }
    return Ref<StackNode>(stack);
}

}  // namespace pyquant::grammar
