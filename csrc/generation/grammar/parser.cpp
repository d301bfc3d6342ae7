#include "generation/grammar/parser.h"

#include <unordered_map>

namespace pyquant::grammar {
namespace {

constexpr size_t kMostTrials = 16384;  // of stacks, for a terminal
constexpr size_t kFewTrials = 16;      // of which it is quicker to try one twice than to look for it
constexpr int32_t kMostFuel = 100000;  // steps of uniting, for a terminal
constexpr int kDeepest = 2000;         // nodes that two stacks may have in common without sharing them

// A node without those beside it.
const StackNode * alone(const StackNode * node, Scratch & scratch) {
    return node->beside ? scratch.push(node->state, node->below) : node;
}

// The stacks of two sets; the first itself where it has all.
const StackNode * unite(const StackNode * a, const StackNode * b, Scratch & scratch, int depth = 0) {
    for (; b && a != b; b = b->beside) {
        if (depth > kDeepest || --scratch.fuel < 0) {
            throw TooManyWays();
        }
        const StackNode * same = a;
        while (same && same->state != b->state) {
            same = same->beside;
        }
        if (!same) {
            a = scratch.push(b->state, b->below, a);
        } else if (same->below != b->below) {
            const StackNode * const below = unite(same->below, b->below, scratch, depth + 1);
            if (below != same->below) {
                const StackNode * others = same->beside;
                for (; a != same; a = a->beside) {
                    others = scratch.push(a->state, a->below, others);
                }
                a = scratch.push(same->state, below, others);
            }
        }
    }
    return a;
}

// Calls with each set that begins so many states below a set.
template <class Visit>
void each_below(const StackNode * stacks, int32_t length, const Visit & visit) {
    for (; length > 0 && !stacks->beside; length--) {
        stacks = stacks->below;
    }
    if (length == 0) {
        visit(stacks);
        return;
    }
    for (; stacks; stacks = stacks->beside) {
        each_below(stacks->below, length - 1, visit);
    }
}

// Copies of a scratch's nodes that are kept.
class Keeper {
public:
    // The same stacks, with one use more.
    const StackNode * keep(const StackNode * stacks) {
        std::vector<const StackNode *> way;
        for (; stacks && !stacks->kept(); stacks = stacks->below) {
            branches_ = branches_ || stacks->beside;
            if (const auto known = copies_.find(stacks); known != copies_.end()) {
                stacks = known->second;
                break;
            }
            way.push_back(stacks);
        }
        Ref<StackNode>::use(stacks);
        for (; !way.empty(); way.pop_back()) {
            const StackNode & from = *way.back();
            auto * const copy = new StackNode;
            copy->uses = 1;
            copy->state = from.state;
            copy->below = stacks;
            copy->beside = from.beside ? keep(from.beside) : nullptr;
            if (branches_) {
                copies_.emplace(&from, copy);
            }
            stacks = copy;
        }
        return stacks;
    }

private:
    bool branches_ = false;  // else no node is come to twice
    std::unordered_map<const StackNode *, const StackNode *> copies_;
};

}  // namespace

TooManyWays::TooManyWays()
    : std::runtime_error("the text can be read in more ways at once than engine lr follows") {}

Parser::Parser(const ParserTables & tables, std::pmr::memory_resource * memory)
    : n_terminals_(tables.n_terminals),
      n_nonterminals_(tables.n_nonterminals),
      start_(tables.start),
      several_(!tables.more.empty()),
      states_(tables.actions.size() / size_t(tables.n_terminals), memory),
      reductions_(memory),
      rules_(memory),
      actions_(tables.actions.begin(), tables.actions.end(), memory),
      gotos_(tables.gotos.begin(), tables.gotos.end(), memory),
      followers_(size_t(n_terminals_), memory) {
    rules_.reserve(tables.lengths.size());
    for (size_t rule = 0; rule < tables.lengths.size(); rule++) {
        rules_.push_back({tables.lengths[rule], tables.origins[rule]});
    }
    std::vector<std::vector<Reduction>> of_states(states_.size());
    std::vector<Terminals> valid(states_.size());
    const auto reduce_on = [&](size_t state, int32_t terminal, int32_t action) {
        const Rule & rule = rules_[size_t(-action - 1)];
        for (Reduction & same : of_states[state]) {
            if (same.rule.length == rule.length && same.rule.origin == rule.origin) {
                same.on.add(terminal);
                return;
            }
        }
        of_states[state].push_back({rule, {}});
        of_states[state].back().on.add(terminal);
    };
    for (size_t state = 0; state < states_.size(); state++) {
        for (int32_t terminal = 0; terminal < n_terminals_; terminal++) {
            const int32_t action = this->action(int32_t(state), terminal);
            if (action != 0) {
                valid[state].add(terminal);
            }
            if (action > 0) {
                states_[state].shifts.add(terminal);
            } else if (action < 0) {
                reduce_on(state, terminal, action);
            }
        }
    }
    for (size_t i = 0; i + 2 < tables.more.size(); i += 3) {
        reduce_on(size_t(tables.more[i]), tables.more[i + 1], tables.more[i + 2]);
    }
    for (size_t state = 0; state < states_.size(); state++) {
        states_[state].reductions = int32_t(reductions_.size());
        reductions_.insert(reductions_.end(), of_states[state].begin(), of_states[state].end());
        states_[state].beyond = int32_t(reductions_.size());
    }
    for (size_t i = 0; i < actions_.size(); i++) {
        if (actions_[i] > 0) {
            followers_[i % size_t(n_terminals_)] |= valid[size_t(actions_[i] - 1)];
        }
    }
}

Ref<StackNode> Parser::start() const {
    auto * node = new StackNode;
    node->uses = 1;
    node->state = start_;
    return Ref<StackNode>(node);
}

template <class Visit>
void Parser::try_all(const StackNode * stacks, const Terminals & wanted, Scratch & scratch,
                     Visit visit) const {
    auto & todo = scratch.todo;
    todo.clear();
    scratch.tried.clear();
    for (; stacks; stacks = stacks->beside) {
        todo.emplace_back(alone(stacks, scratch), wanted);
    }
    for (size_t i = 0; i < todo.size(); i++) {
        const auto [top, terminals] = todo[i];
        const Terminals shifted = terminals & states_[size_t(top->state)].shifts;
        if (shifted.any()) {
            visit(top, shifted);
        }
        for (const Reduction & reduction : reductions(top->state)) {
            const Terminals on = terminals & reduction.on;
            if (on.any()) {
                each_below(top, reduction.rule.length, [&](const StackNode * bottoms) {
                    push_all(bottoms, reduction.rule.origin, on, scratch);
                });
            }
        }
    }
}

void Parser::push_all(const StackNode * stacks, int32_t origin, const Terminals & on,
                      Scratch & scratch) const {
    for (const StackNode * node = stacks; node; node = node->beside) {
        const StackNode * const bottom = alone(node, scratch);
        const int32_t state = after(node->state, origin);
        const bool few = scratch.todo.size() < kFewTrials;
        const Terminals are_new = few ? on : scratch.tried.note(state, bottom, on);
        if (are_new.any()) {
            scratch.todo.emplace_back(scratch.push(state, bottom), are_new);
        }
        if (scratch.todo.size() > kMostTrials) {
            throw TooManyWays();
        }
    }
}

Terminals Parser::accepted(const StackNode * stacks, const Terminals & wanted, Scratch & scratch) const {
    if (several_) {
        return accepted_by_any(stacks, wanted, scratch);
    }
    Terminals result;
    auto & todo = scratch.todo;
    todo.assign(1, {stacks, wanted});
    while (!todo.empty()) {
        const auto [top, terminals] = todo.back();
        todo.pop_back();
        result |= terminals & states_[size_t(top->state)].shifts;
        for (const Reduction & reduction : reductions(top->state)) {
            const Terminals on = terminals & reduction.on;
            if (on.any()) {
                todo.emplace_back(reduce(top, reduction.rule, scratch), on);
            }
        }
    }
    return result;
}

const StackNode * Parser::shift(const StackNode * stacks, int32_t terminal, Scratch & scratch) const {
    if (several_) {
        return shift_all(stacks, terminal, scratch);
    }
    for (;;) {
        const int32_t next = action(stacks->state, terminal);
        if (next > 0) {
            return scratch.push(next - 1, stacks);
        }
        if (next == 0) {
            return nullptr;
        }
        stacks = reduce(stacks, rules_[size_t(-next - 1)], scratch);
    }
}

Terminals Parser::accepted_by_any(const StackNode * stacks, const Terminals & wanted,
                                  Scratch & scratch) const {
    Terminals result;
    try_all(stacks, wanted, scratch,
            [&](const StackNode *, const Terminals & shifted) { result |= shifted; });
    return result;
}

const StackNode * Parser::shift_all(const StackNode * stacks, int32_t terminal, Scratch & scratch) const {
    const StackNode * result = nullptr;
    Terminals only;
    only.add(terminal);
    scratch.fuel = kMostFuel;
    try_all(stacks, only, scratch, [&](const StackNode * top, const Terminals &) {
        result = unite(result, scratch.push(action(top->state, terminal) - 1, top), scratch);
    });
    return result;
}

Ref<StackNode> Parser::keep(const StackNode * stacks) {
    return Ref<StackNode>(Keeper().keep(stacks));
}

}  // namespace pyquant::grammar
