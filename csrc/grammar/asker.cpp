#include "grammar/asker.h"

#include <algorithm>

namespace pyquant::grammar {
namespace {

Scratch & own_scratch() {
    thread_local Scratch scratch;
    scratch.clear();
    return scratch;
}

Terminals every_terminal() {
    Terminals all;
    all.words.fill(~uint64_t(0));
    return all;
}

}  // namespace

Asker::Asker(const State & state)
    : state_(state),
      scratch_(own_scratch()),
      here_(known(state.place_->stack.get())) {}

Asker::Known Asker::known(const StackNode * stack) {
    const Parser & parser = state_.compiled_->parser;
    return {stack, stack ? parser.accepted(stack, every_terminal(), scratch_) : Terminals()};
}

const Asker::Known & Asker::after_first(int32_t terminal) {
    for (const auto & [known_terminal, after] : after_) {
        if (known_terminal == terminal) {
            return after;
        }
    }
    const StackNode * const stack = here_.accepted.has(terminal)
                                        ? state_.compiled_->parser.shift(here_.stack, terminal, scratch_)
                                        : nullptr;
    return after_.emplace_back(terminal, known(stack)).second;
}

bool Asker::allows(int32_t token) {
    const Compiled & compiled = *state_.compiled_;
    const Lexer & lexer = compiled.lexer;
    if (state_.place_->ended) {
        return false;
    }
    if (state_.is_end(token)) {
        return state_.may_end();
    }
    const std::string & piece = compiled.pieces[size_t(token)];
    int32_t at = state_.place_->lexer;
    Known now = here_;
    bool first = true;  // no terminal has ended yet that the parser sees
    bool whole = true;  // now.accepted has all terminals
    for (const char byte : piece) {
        int32_t next = lexer.after(at, uint8_t(byte));
        if (next == kNone) {
            const int32_t terminal = lexer.ends[size_t(at)];
            next = lexer.after(0, uint8_t(byte));
            if (terminal == kNone || next == kNone) {
                return false;
            }
            if (terminal != kIgnored) {
                if (first) {
                    now = after_first(terminal);
                } else {
                    now.stack = compiled.parser.shift(now.stack, terminal, scratch_);
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
    const Terminals & coming = lexer.coming[size_t(at)];
    return lexer.ignorable[size_t(at)] ||
           (whole ? now.accepted & coming : compiled.parser.accepted(now.stack, coming, scratch_)).any();
}

}  // namespace pyquant::grammar
