// Asks about many tokens at one place: what the parser says there is found out once.
#pragma once

#include <utility>
#include <vector>

#include "grammar/state.h"

namespace pyquant::grammar {

class Asker {
public:
    // The state must not change meanwhile. A thread has one asker at a time.
    explicit Asker(const State & state);

    // The same as the state's.
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

    const State & state_;
    Scratch & scratch_;
    Known here_;
    std::vector<std::pair<int32_t, Known>> after_;
};

}  // namespace pyquant::grammar
