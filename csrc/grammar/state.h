// A grammar ready for a vocabulary, and places in texts that keep to it.
#pragma once

#include <memory>
#include <string>

#include "grammar/token_classes.h"

namespace pyquant::grammar {

struct Compiled {
    Compiled(Lexer lexer, const ParserTables & parser, std::vector<std::string> pieces,
             std::vector<int32_t> end_tokens);

    Lexer lexer;
    Parser parser;
    std::vector<std::string> pieces;  // the bytes of each token; without any: it never comes
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
};

// Copying one costs as much as copying a pointer.
class State {
public:
    explicit State(std::shared_ptr<const Compiled> compiled);

    // words: (n_words,), bit j % 32 of word j / 32 for token j.
    void mask(int32_t * words) const;
    bool allows(int32_t token) const;
    bool advance(int32_t token);  // false: it may not come, and nothing changes
    bool roll_back(int64_t n_tokens);
    bool may_end() const;
    const Compiled & compiled() const { return *compiled_; }

private:
    bool is_end(int32_t token) const;
    // The stack and the lexer's state after a token, or null.
    const StackNode * after(int32_t token, int32_t & lexer, Scratch & scratch) const;

    std::shared_ptr<const Compiled> compiled_;
    Ref<Place> place_;
};

}  // namespace pyquant::grammar
