// Asks about many tokens at one place: what the parser says there is found out once.
#pragma once

#include <utility>
#include <vector>

#include "generation/grammar/parser.h"

namespace pyquant::grammar {

class Compiled;

class Asker {
public:
    explicit Asker(const Compiled & compiled) : compiled_(compiled) {}

    // Finds out what questions here have in common. The stack must live as long as they are asked.
    void turn_to(int32_t lexer_state, const StackNode * stack);
    // Says whether a token that does not end the text may come.
    bool allows(int32_t token);

private:
    // A stack, or none, and all terminals that may come then.
    struct Known {
        const StackNode * stack = nullptr;
        Terminals accepted;
    };

    Known known(const StackNode * stack);
    // After a terminal that comes first; kept by the terminal.
    const Known & after_first(int32_t terminal);

    const Compiled & compiled_;
    Scratch scratch_;
    int32_t lexer_state_ = 0;
    Known here_;
    std::vector<std::pair<int32_t, Known>> after_;
};

}  // namespace pyquant::grammar
