#include "generation/grammar/state.h"

#include <algorithm>

namespace pyquant::grammar {

namespace {

Scratch & cleared_scratch() {
    thread_local Scratch scratch;
    scratch.clear();
    return scratch;
}

// Says whether a class is among those that come whatever the parser would take after them.
bool comes_anyhow(const TokenClasses & classes, const SequenceNode & node) {
    const TokenClass * const first = classes.classes(node);
    return std::any_of(first, first + node.n_classes,
                       [](const TokenClass & tokens) { return tokens.coming == kNone; });
}

// Where the text may end, the parser takes the terminal that ends in the lexer's state, if any does.
bool always_goes_on(const Lexer & lexer, const TokenClasses & classes, int32_t state) {
    const SequenceNode * const nodes = classes.begin(state);
    bool goes_on = comes_anyhow(classes, nodes[0]);
    for (int32_t i = 1; !goes_on && i < nodes[0].beyond; i = nodes[i].beyond) {
        goes_on = nodes[i].terminal == lexer[state].ends && comes_anyhow(classes, nodes[i]);
    }
    return goes_on;
}

}  // namespace

Compiled::Compiled(const LexerTables & lexer_tables, const ParserTables & tables,
                   const std::vector<std::string_view> & bytes, std::vector<int32_t> ends,
                   const std::optional<RawClasses> & kept)
    : lexer(lexer_tables.next, lexer_tables.ends, lexer_tables.n_states, arena_.memory()),
      parser(tables, arena_.memory()),
      pieces(bytes, arena_.memory()),
      end_tokens(std::move(ends)),
      classes(kept ? TokenClasses(*kept, arena_.memory())
                   : TokenClasses(find_classes(lexer, parser, pieces).raw(), arena_.memory())) {
    for (int32_t state = 0; state < lexer.n_states(); state++) {
        lexer[state].always_goes_on = always_goes_on(lexer, classes, state);
    }
}

State::State(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {
    auto * place = new Place;
    place->stack = compiled_->parser.start();
    place_ = Ref<Place>(place);
}

template <class Visit>
void State::each_class(Visit visit) const {
    if (place_->ended) {
        return;
    }
    const Parser & parser = compiled_->parser;
    const TokenClasses & classes = compiled_->classes;
    Scratch & scratch = cleared_scratch();
    const SequenceNode * const nodes = classes.begin(place_->lexer);
    // The stack after so many terminals of the sequence, and what may come then.
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
                if (!visit(here[j])) {
                    return;
                }
            }
        }
        i++;
    }
}

void State::mask(int32_t * words) const {
    std::fill_n(words, compiled_->n_words(), 0);
    if (place_->ended) {
        return;
    }
    each_class([&](const TokenClass & tokens) {
        compiled_->classes.unite(tokens.tokens, words);
        return true;
    });
    if (may_end()) {
        for (const int32_t token : compiled_->end_tokens) {
            words[token / 32] |= int32_t(uint32_t(1) << (token % 32));
        }
    }
}

bool State::must_end() const {
    if (!place_->ended && compiled_->lexer[place_->lexer].always_goes_on) {
        return false;
    }
    bool none = may_end();
    if (none) {
        each_class([&](const TokenClass &) { return none = false; });
    }
    return none;
}

bool State::is_end(int32_t token) const {
    const auto & ends = compiled_->end_tokens;
    return std::find(ends.begin(), ends.end(), token) != ends.end();
}

bool State::step(Trial & trial, uint8_t byte, Scratch & scratch) const {
    const Lexer & automaton = compiled_->lexer;
    int32_t next = automaton.after(trial.lexer, byte);
    if (next == kNone) {
        const int32_t terminal = automaton[trial.lexer].ends;
        next = automaton.after(0, byte);
        if (terminal == kNone || next == kNone) {
            return false;
        }
        if (terminal != kIgnored) {
            trial.stack = compiled_->parser.shift(trial.stack, terminal, scratch);
        }
    }
    trial.lexer = next;
    return trial.stack != nullptr;
}

bool State::viable(const Trial & trial, Scratch & scratch) const {
    const LexerState & reached = compiled_->lexer[trial.lexer];
    return reached.ignorable || compiled_->parser.accepted(trial.stack, reached.coming, scratch).any();
}

State::Trial State::after(int32_t token, Scratch & scratch) const {
    Trial trial = here();
    const std::string_view piece = compiled_->pieces[token];
    for (const char byte : piece) {
        if (!step(trial, uint8_t(byte), scratch)) {
            return {nullptr, 0};
        }
    }
    return piece.empty() || !viable(trial, scratch) ? Trial{nullptr, 0} : trial;
}

bool State::allows(int32_t token) const {
    if (place_->ended) {
        return false;
    }
    return is_end(token) ? may_end() : after(token, cleared_scratch()).stack != nullptr;
}

bool State::allows_of_many(int32_t token) {
    if (place_->ended || is_end(token)) {
        return allows(token);
    }
    if (!asker_) {
        asker_ = std::make_unique<Asker>(*compiled_);
    }
    if (!asker_is_here_) {
        asker_->turn_to(place_->lexer, place_->stack.get());
        asker_is_here_ = true;
    }
    return asker_->allows(token);
}

bool State::advance(int32_t token) {
    if (place_->ended) {
        return false;
    }
    const bool ends = is_end(token);
    const Trial trial = ends ? here() : after(token, cleared_scratch());
    if (ends ? !may_end() : !trial.stack) {
        return false;
    }
    auto * place = new Place;
    place->lexer = trial.lexer;
    place->ended = ends;
    place->stack = Parser::keep(trial.stack);
    Ref<Place>::use(place_.get());
    place->below = place_.get();
    place_ = Ref<Place>(place);
    asker_is_here_ = false;
    return true;
}

State::Step State::take(int32_t token) {
    if (!advance(token)) {
        return Step::kRefused;
    }
    return must_end() ? Step::kMustEnd : Step::kMore;
}

std::string State::forced() const {
    std::string bytes;
    Scratch & scratch = cleared_scratch();
    Trial trial = here();
    while (!place_->ended && !may_end_at(trial, scratch)) {
        Trial only{nullptr, 0};
        int n = 0, byte = 0;
        for (int each = 0; each < 256 && n < 2; each++) {
            Trial next = trial;
            if (step(next, uint8_t(each), scratch) && viable(next, scratch)) {
                only = next;
                byte = each;
                n++;
            }
        }
        if (n != 1) {
            break;
        }
        trial = only;
        bytes.push_back(char(byte));
    }
    return bytes;
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
    asker_is_here_ = false;
    return true;
}

bool State::may_end() const {
    return place_->ended || may_end_at(here(), cleared_scratch());
}

bool State::may_end_at(const Trial & trial, Scratch & scratch) const {
    const Parser & parser = compiled_->parser;
    const StackNode * stack = trial.stack;
    const int32_t terminal = compiled_->lexer[trial.lexer].ends;
    if (terminal >= 0) {
        stack = parser.shift(stack, terminal, scratch);
        if (!stack) {
            return false;
        }
    } else if (terminal == kNone && trial.lexer != 0) {
        return false;
    }
    return parser.shift(stack, parser.end(), scratch) != nullptr;
}

}  // namespace pyquant::grammar
