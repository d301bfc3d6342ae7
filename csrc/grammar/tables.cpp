#include "grammar/tables.h"

namespace pyquant::grammar {

void find_coming(Lexer & lexer) {
    const int32_t n = lexer.n_states();
    const auto n_states = size_t(n);
    std::vector<std::vector<int32_t>> before(n_states);
    for (int32_t state = 0; state < n; state++) {
        int32_t last = kNone;
        for (int byte = 0; byte < 256; byte++) {
            const int32_t next = lexer.after(state, uint8_t(byte));
            if (next != kNone && next != last) {
                before[size_t(next)].push_back(state);
            }
            last = next;
        }
    }
    lexer.coming.assign(n_states, Terminals());
    lexer.ignorable.assign(n_states, 0);
    // Backwards from each state that ends a terminal.
    std::vector<int32_t> mark(n_states, kNone), todo;
    for (int32_t end = 0; end < n; end++) {
        const int32_t terminal = lexer.ends[size_t(end)];
        if (terminal == kNone) {
            continue;
        }
        todo.assign(1, end);
        mark[size_t(end)] = end;
        while (!todo.empty()) {
            const auto state = size_t(todo.back());
            todo.pop_back();
            if (terminal == kIgnored) {
                lexer.ignorable[state] = 1;
            } else {
                lexer.coming[state].add(terminal);
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
