#include "grammar/state.h"

#include <algorithm>

namespace pyquant::grammar {

namespace {

Scratch & cleared_scratch() {
    thread_local Scratch scratch;
    scratch.clear();
    return scratch;
}

}  // namespace

Compiled::Compiled(Lexer lexer_, const ParserTables & tables, std::vector<std::string> pieces_,
                   std::vector<int32_t> ends)
    : lexer(std::move(lexer_)),
      parser(tables),
      pieces(std::move(pieces_)),
      end_tokens(std::move(ends)),
      classes(lexer, parser, pieces) {}

State::State(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {
    auto * place = new Place;
    place->stack = compiled_->parser.start();
    place_ = Ref<Place>(place);
}

void State::mask(int32_t * words) const {
    std::fill_n(words, compiled_->n_words(), 0);
    if (place_->ended) {
        return;
    }
    const Parser & parser = compiled_->parser;
    const TokenClasses & classes = compiled_->classes;
    Scratch & scratch = cleared_scratch();
    const SequenceNode * const nodes = classes.begin(place_->lexer);
    // By depth: the stack after that many terminals of the sequence, and what may come then.
    thread_local std::vector<const StackNode *> stacks;
    thread_local std::vector<Terminals> accepted;
    for (int32_t i = 0; i < nodes[0].beyond;) {
        const SequenceNode & node = nodes[i];
        const auto depth = size_t(node.depth);
        if (stacks.size() <= depth) {
            stacks.resize(depth + 1);
            accepted.resize(depth + 1);
        }
        if (depth == 0) {
            stacks[0] = place_->stack.get();
        } else if (accepted[depth - 1].has(node.terminal)) {
            stacks[depth] = parser.shift(stacks[depth - 1], node.terminal, scratch);
        } else {
            i = node.beyond;
            continue;
        }
        accepted[depth] = parser.accepted(stacks[depth], classes.terminals(node.wanted), scratch);
        const TokenClass * const here = classes.classes(node);
        for (int32_t j = 0; j < node.n_classes; j++) {
            if (here[j].coming == kNone || (classes.terminals(here[j].coming) & accepted[depth]).any()) {
                classes.unite(here[j].tokens, words);
            }
        }
        i++;
    }
    if (may_end()) {
        for (const int32_t token : compiled_->end_tokens) {
            words[token / 32] |= int32_t(uint32_t(1) << (token % 32));
        }
    }
}

bool State::is_end(int32_t token) const {
    const auto & ends = compiled_->end_tokens;
    return std::find(ends.begin(), ends.end(), token) != ends.end();
}

const StackNode * State::after(int32_t token, int32_t & lexer, Scratch & scratch) const {
    const Lexer & automaton = compiled_->lexer;
    const Parser & parser = compiled_->parser;
    const StackNode * stack = place_->stack.get();
    const std::string & piece = compiled_->pieces[size_t(token)];
    if (piece.empty()) {
        return nullptr;
    }
    lexer = place_->lexer;
    for (const char byte : piece) {
        int32_t next = automaton.after(lexer, uint8_t(byte));
        if (next == kNone) {
            const int32_t terminal = automaton.ends[size_t(lexer)];
            if (terminal == kNone) {
                return nullptr;
            }
            if (terminal != kIgnored) {
                stack = parser.shift(stack, terminal, scratch);
                if (!stack) {
                    return nullptr;
                }
            }
            next = automaton.after(0, uint8_t(byte));
            if (next == kNone) {
                return nullptr;
            }
        }
        lexer = next;
    }
    const bool viable = automaton.ignorable[size_t(lexer)] ||
                        parser.accepted(stack, automaton.coming[size_t(lexer)], scratch).any();
    return viable ? stack : nullptr;
}

bool State::allows(int32_t token) const {
    if (place_->ended) {
        return false;
    }
    if (is_end(token)) {
        return may_end();
    }
    int32_t lexer = 0;
    return after(token, lexer, cleared_scratch()) != nullptr;
}

bool State::advance(int32_t token) {
    if (place_->ended) {
        return false;
    }
    const bool ends = is_end(token);
    int32_t lexer = place_->lexer;
    const StackNode * stack = place_->stack.get();
    if (ends ? !may_end() : !(stack = after(token, lexer, cleared_scratch()))) {
        return false;
    }
    auto * place = new Place;
    place->lexer = lexer;
    place->ended = ends;
    place->stack = Parser::keep(stack);
    Ref<Place>::use(place_.get());
    place->below = place_.get();
    place_ = Ref<Place>(place);
    return true;
}

bool State::roll_back(int64_t n_tokens) {
    const Place * place = place_.get();
    for (; place && n_tokens > 0; n_tokens--) {
        place = place->below;
    }
    if (!place) {
        return false;
    }
    Ref<Place>::use(place);
    place_ = Ref<Place>(place);
    return true;
}

bool State::may_end() const {
    if (place_->ended) {
        return true;
    }
    const Parser & parser = compiled_->parser;
    Scratch & scratch = cleared_scratch();
    const StackNode * stack = place_->stack.get();
    const int32_t terminal = compiled_->lexer.ends[size_t(place_->lexer)];
    if (terminal >= 0) {
        stack = parser.shift(stack, terminal, scratch);
        if (!stack) {
            return false;
        }
    } else if (terminal == kNone && place_->lexer != 0) {
        return false;
    }
    return parser.shift(stack, parser.end(), scratch) != nullptr;
}

}  // namespace pyquant::grammar
