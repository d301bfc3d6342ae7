// A grammar ready for a vocabulary, and places in texts that keep to it.
#pragma once

#include <memory>
#include <optional>

#include "generation/grammar/arena.h"
#include "generation/grammar/asker.h"
#include "generation/grammar/token_classes.h"

namespace pyquant::grammar {

// The arrays of a lexer; see its constructor.
struct LexerTables {
    const int32_t *next, *ends;
    int32_t n_states;
};

class Compiled {
    Arena arena_;  // of all that follows

public:
    // classes: what find_classes found before and was kept, or nothing.
    Compiled(const LexerTables & lexer, const ParserTables & parser,
             const std::vector<std::string_view> & pieces, std::vector<int32_t> end_tokens,
             const std::optional<RawClasses> & classes);

    Lexer lexer;
    Parser parser;
    Pieces pieces;
    std::vector<int32_t> end_tokens;
    TokenClasses classes;

    size_t n_words() const { return (pieces.size() + 31) / 32; }
};

// A place in a text: in the middle of a terminal, or after one that may have ended.
struct Place {
    mutable std::atomic<uint32_t> uses{1};
    int32_t lexer = 0;
    bool ended = false;  // a token that ends a text has come
    Ref<StackNode> stack;
    const Place * below = nullptr;  // the place before the last token
    static constexpr const Place * beside = nullptr;
};

// Copying one costs as much as copying a pointer.
class State {
public:
    explicit State(std::shared_ptr<const Compiled> compiled);
    State(const State & other) : compiled_(other.compiled_), place_(other.place_) {}

    // words: (n_words,), bit j % 32 of word j / 32 for token j.
    void mask(int32_t * words) const;
    bool allows(int32_t token) const;
    // The same, for many tokens of a place.
    bool allows_of_many(int32_t token);
    bool advance(int32_t token);  // false: it may not come, and nothing changes
    enum class Step { kRefused, kMore, kMustEnd };
    Step take(int32_t token);  // the same, and says whether nothing but an end may come then
    bool roll_back(int64_t n_tokens);
    bool may_end() const;
    bool must_end() const;  // nothing but an end may come
    // The bytes that every text has here: as long as it may not end, and only one byte may come.
    std::string forced() const;
    const Compiled & compiled() const { return *compiled_; }

private:
    // Calls with each class of tokens that may come, as long as it is told to go on.
    template <class Visit>
    void each_class(Visit visit) const;
    // A place that is only tried: its stack is the scratch's.
    struct Trial {
        const StackNode * stack;
        int32_t lexer;
    };

    bool is_end(int32_t token) const;
    Trial here() const { return {place_->stack.get(), place_->lexer}; }
    // Takes a byte; false: none of the terminals goes on or begins so.
    bool step(Trial & trial, uint8_t byte, Scratch & scratch) const;
    // Says whether the parser takes what the lexer is in.
    bool viable(const Trial & trial, Scratch & scratch) const;
    bool may_end_at(const Trial & trial, Scratch & scratch) const;
    // The place after a token; without a stack: it may not come.
    Trial after(int32_t token, Scratch & scratch) const;

    std::shared_ptr<const Compiled> compiled_;
    Ref<Place> place_;
    std::unique_ptr<Asker> asker_;
    bool asker_is_here_ = false;
};

}  // namespace pyquant::grammar
