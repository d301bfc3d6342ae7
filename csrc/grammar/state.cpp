#include "grammar/state.h"

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
std::vector<char> find_going_on(const Lexer & lexer, const TokenClasses & classes) {
    std::vector<char> result(size_t(lexer.n_states()));
    for (int32_t state = 0; state < lexer.n_states(); state++) {
        const SequenceNode * const nodes = classes.begin(state);
        bool goes_on = comes_anyhow(classes, nodes[0]);
        for (int32_t i = 1; !goes_on && i < nodes[0].beyond; i = nodes[i].beyond) {
            goes_on = nodes[i].terminal == lexer.ends[size_t(state)] && comes_anyhow(classes, nodes[i]);
        }
        result[size_t(state)] = goes_on;
    }
    return result;
}

}  // namespace

Compiled::Compiled(Lexer lexer_, const ParserTables & tables, std::vector<std::string> pieces_,
                   std::vector<int32_t> ends, std::optional<ClassArrays> found)
    : lexer(std::move(lexer_)),
      parser(tables),
      pieces(std::move(pieces_)),
      end_tokens(std::move(ends)),
      classes(found ? std::move(*found) : find_classes(lexer, parser, pieces)),
      goes_on(find_going_on(lexer, classes)) {}

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
    if (!place_->ended && compiled_->goes_on[size_t(place_->lexer)]) {
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
        const int32_t terminal = automaton.ends[size_t(trial.lexer)];
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
    const Lexer & automaton = compiled_->lexer;
    return automaton.ignorable[size_t(trial.lexer)] ||
           compiled_->parser.accepted(trial.stack, automaton.coming[size_t(trial.lexer)], scratch).any();
}

State::Trial State::after(int32_t token, Scratch & scratch) const {
    Trial trial = here();
    const std::string & piece = compiled_->pieces[size_t(token)];
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
    return true;
}

bool State::may_end() const {
    return place_->ended || may_end_at(here(), cleared_scratch());
}

bool State::may_end_at(const Trial & trial, Scratch & scratch) const {
    const Parser & parser = compiled_->parser;
    const StackNode * stack = trial.stack;
    const int32_t terminal = compiled_->lexer.ends[size_t(trial.lexer)];
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
