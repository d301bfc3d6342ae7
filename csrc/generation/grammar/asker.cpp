#include "generation/grammar/asker.h"

#include "generation/grammar/state.h"

namespace pyquant::grammar {
namespace {

Terminals every_terminal() {
    Terminals all;
    all.words.fill(~uint64_t(0));
    return all;
}

}  // namespace

void Asker::turn_to(int32_t lexer_state, const StackNode * stack) {
    scratch_.clear();
    after_.clear();
    lexer_state_ = lexer_state;
    here_ = known(stack);
    // Many tokens will begin with a byte that ends what the lexer is in.
    if (const int32_t terminal = compiled_.lexer[lexer_state].ends; terminal >= 0) {
        after_first(terminal);
    }
}

Asker::Known Asker::known(const StackNode * stack) {
    return {stack, stack ? compiled_.parser.accepted(stack, every_terminal(), scratch_) : Terminals()};
}

const Asker::Known & Asker::after_first(int32_t terminal) {
    for (const auto & [known_terminal, after] : after_) {
        if (known_terminal == terminal) {
            return after;
        }
    }
    const StackNode * const stack =
        here_.accepted.has(terminal) ? compiled_.parser.shift(here_.stack, terminal, scratch_) : nullptr;
    return after_.emplace_back(terminal, known(stack)).second;
}

bool Asker::allows(int32_t token) {
    const Lexer & lexer = compiled_.lexer;
    const std::string_view piece = compiled_.pieces[token];
    int32_t at = lexer_state_;
    Known now = here_;
    bool first = true;  // no terminal has ended yet that the parser sees
    bool whole = true;  // now.accepted has all terminals
    for (const char byte : piece) {
        int32_t next = lexer.after(at, uint8_t(byte));
        if (next == kNone) {
            const int32_t terminal = lexer[at].ends;
            next = lexer.after(0, uint8_t(byte));
            if (terminal == kNone || next == kNone) {
                return false;
            }
            if (terminal != kIgnored) {
                if (first) {
                    now = after_first(terminal);
                } else {
                    now.stack = compiled_.parser.shift(now.stack, terminal, scratch_);
                    whole = false;
                }
                first = false;
            }
        }
        at = next;
        if (!now.stack) {
            return false;
        }
    }
    if (piece.empty()) {
        return false;
    }
    const LexerState & reached = lexer[at];
    return reached.ignorable || (whole ? now.accepted & reached.coming
                                       : compiled_.parser.accepted(now.stack, reached.coming, scratch_))
                                    .any();
}

}  // namespace pyquant::grammar
