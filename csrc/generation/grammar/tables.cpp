#include "generation/grammar/tables.h"

#include <limits>
#include <map>
#include <stdexcept>

namespace pyquant::grammar {

Lexer::Lexer(const int32_t * next, const int32_t * ends, int32_t n_states, std::pmr::memory_resource * memory)
    : next_(memory),
      states_(memory) {
    if (n_states > std::numeric_limits<int16_t>::max()) {
        throw std::invalid_argument("lexer: too many states");
    }
    find_kinds(next, n_states);
    states_.reserve(size_t(n_states));
    for (int32_t state = 0; state < n_states; state++) {
        states_.push_back({ends[state], false, false, {}});
    }
    find_coming();
}

void Lexer::find_kinds(const int32_t * next, int32_t n_states) {
    std::map<std::vector<int16_t>, uint8_t> kind_of;  // by what a byte does in each state
    for (int byte = 0; byte < 256; byte++) {
        std::vector<int16_t> column;
        for (int32_t state = 0; state < n_states; state++) {
            column.push_back(int16_t(next[size_t(state) * 256 + size_t(byte)]));
        }
        const auto [kind, is_new] = kind_of.emplace(std::move(column), uint8_t(kind_of.size()));
        kinds_[size_t(byte)] = kind->second;
    }
    n_kinds_ = kind_of.size();
    next_.resize(size_t(n_states) * n_kinds_);
    for (const auto & [column, kind] : kind_of) {
        for (size_t state = 0; state < column.size(); state++) {
            next_[state * n_kinds_ + kind] = column[state];
        }
    }
}

void Lexer::find_coming() {
    const int32_t n = n_states();
    std::vector<std::vector<int32_t>> before(states_.size());
    for (int32_t state = 0; state < n; state++) {
        int32_t last = kNone;
        for (int byte = 0; byte < 256; byte++) {
            const int32_t next = after(state, uint8_t(byte));
            if (next != kNone && next != last) {
                before[size_t(next)].push_back(state);
            }
            last = next;
        }
    }
    // Backwards from each state that ends a terminal.
    std::vector<int32_t> mark(states_.size(), kNone), todo;
    for (int32_t end = 0; end < n; end++) {
        const int32_t terminal = states_[size_t(end)].ends;
        if (terminal == kNone) {
            continue;
        }
        todo.assign(1, end);
        mark[size_t(end)] = end;
        while (!todo.empty()) {
            const auto state = size_t(todo.back());
            todo.pop_back();
            if (terminal == kIgnored) {
                states_[state].ignorable = true;
            } else {
                states_[state].coming.add(terminal);
            }
            for (const int32_t previous : before[state]) {
                if (mark[size_t(previous)] != end) {
                    mark[size_t(previous)] = end;
                    todo.push_back(previous);
                }
            }
        }
    }
}

}  // namespace pyquant::grammar
