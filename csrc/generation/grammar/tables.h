// Grammar as arrays: a lexer that cuts bytes into terminals, and an LALR(1) parser over them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

namespace pyquant::grammar {

using std::size_t;

constexpr int kMaxTerminals = 256;
constexpr int32_t kNone = -1;     // no state follows, or no terminal ends here
constexpr int32_t kIgnored = -2;  // a terminal ends here that the parser never sees

// A set of terminals.
struct Terminals {
    std::array<uint64_t, kMaxTerminals / 64> words{};

    void add(int32_t terminal) { words[size_t(terminal) / 64] |= uint64_t(1) << (terminal % 64); }
    bool has(int32_t terminal) const { return words[size_t(terminal) / 64] >> (terminal % 64) & 1; }
    bool any() const { return (words[0] | words[1] | words[2] | words[3]) != 0; }
    Terminals without(const Terminals & other) const {
        Terminals result;
        for (size_t i = 0; i < words.size(); i++) {
            result.words[i] = words[i] & ~other.words[i];
        }
        return result;
    }
    Terminals & operator|=(const Terminals & other) {
        for (size_t i = 0; i < words.size(); i++) {
            words[i] |= other.words[i];
        }
        return *this;
    }
    friend Terminals operator&(Terminals a, const Terminals & b) {
        for (size_t i = 0; i < a.words.size(); i++) {
            a.words[i] &= b.words[i];
        }
        return a;
    }
    bool operator<(const Terminals & other) const { return words < other.words; }
};

struct LexerState {
    int32_t ends;         // the terminal that may end here, kNone or kIgnored
    bool ignorable;       // whether an ignored terminal may still end from here on
    bool always_goes_on;  // whether a token may follow, such as blanks, wherever the text may end
    Terminals coming;     // the terminals that may still end
};

// Cuts bytes into terminals. State 0 is between two of them.
class Lexer {
public:
    // next: (n_states, 256), the state after a byte, or kNone; ends: (n_states,), see LexerState.
    Lexer(const int32_t * next, const int32_t * ends, int32_t n_states, std::pmr::memory_resource * memory);

    int32_t n_states() const { return int32_t(states_.size()); }
    int32_t after(int32_t state, uint8_t byte) const {
        return next_[size_t(state) * n_kinds_ + kinds_[byte]];
    }
    const LexerState & operator[](int32_t state) const { return states_[size_t(state)]; }
    LexerState & operator[](int32_t state) { return states_[size_t(state)]; }

private:
    void find_kinds(const int32_t * next, int32_t n_states);
    void find_coming();

    std::array<uint8_t, 256> kinds_;  // bytes of a kind do the same in every state
    size_t n_kinds_ = 0;
    std::pmr::vector<int16_t> next_;  // (n_states, n_kinds)
    std::pmr::vector<LexerState> states_;
};

// Arrays of a parser: an action is 0 for an error, state + 1 for a shift, -(rule + 1) for a
// reduction. The last terminal is the text's end. Where several actions are possible, a shift comes first.
struct ParserTables {
    int32_t n_terminals, n_nonterminals, start;
    std::vector<int32_t> actions;  // (n_states, n_terminals)
    std::vector<int32_t> more;     // (n, 3): a state, a terminal and another action, all of them reductions
    std::vector<int32_t> gotos;    // (n_states, n_nonterminals): a state, or kNone
    std::vector<int32_t> lengths;  // (n_rules,): symbols that a reduction takes from the stack
    std::vector<int32_t> origins;  // (n_rules,): the nonterminal that it puts there
};

}  // namespace pyquant::grammar
