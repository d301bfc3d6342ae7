// Tokens of a vocabulary that do the same in a state of the lexer, found before any text is written.
#pragma once

#include <array>
#include <string_view>
#include <type_traits>

#include "generation/grammar/parser.h"
#include "generation/grammar/pieces.h"
#include "generation/grammar/tables.h"

namespace pyquant::grammar {

// A node of a lexer state's tree of sequences of terminals. Nodes stand in order, children after parents.
struct SequenceNode {
    int32_t terminal;     // the last of its sequence; kNone: the root's, which is empty
    int32_t depth;        // the sequence's length
    int32_t beyond;       // the first node that does not begin with this sequence
    int32_t wanted;       // a set: what a parser has to be asked about here
    int32_t first_class;  // classes of tokens that make just this sequence
    int32_t n_classes;
};

// Tokens that make the same sequence, and after which the same terminals may be coming.
struct TokenClass {
    int32_t
        coming;  // a set of terminals, or kNone: an ignored one is among them, so the parser cannot refuse
    int32_t tokens;  // a set of tokens
};

// A set of tokens: a list, or where that is longer, a bit for each token.
struct TokenSet {
    int64_t begin;
    int32_t size;   // entries
    int32_t dense;  // whether they are words of bits
};

// The bytes of each of ClassArrays' arrays, in their order.
using RawClasses = std::array<std::string_view, 6>;

// Everything that is found out for a vocabulary, as plain arrays that a file can keep.
struct ClassArrays {
    explicit ClassArrays(std::pmr::memory_resource * memory = std::pmr::get_default_resource())
        : roots(memory),
          nodes(memory),
          classes(memory),
          terminals(memory),
          sets(memory),
          entries(memory) {}
    // A copy of what was kept, as large as it has to be.
    ClassArrays(const RawClasses & kept, std::pmr::memory_resource * memory) : ClassArrays(memory) {
        auto from = kept.begin();
        each(*this, [&](auto & array) {
            using Element = typename std::decay_t<decltype(array)>::value_type;
            const auto * first = reinterpret_cast<const Element *>(from->data());
            array.assign(first, first + from->size() / sizeof(Element));
            ++from;
        });
    }

    // The bytes, to be kept.
    RawClasses raw() const {
        RawClasses bytes;
        auto to = bytes.begin();
        each(*this, [&](const auto & array) {
            *to++ = {reinterpret_cast<const char *>(array.data()), array.size() * sizeof(array[0])};
        });
        return bytes;
    }

    std::pmr::vector<int64_t> roots;  // (n_lexer_states,)
    std::pmr::vector<SequenceNode> nodes;
    std::pmr::vector<TokenClass> classes;
    std::pmr::vector<Terminals> terminals;
    std::pmr::vector<TokenSet> sets;
    std::pmr::vector<int32_t> entries;

    // Calls with each array, in an order that never changes.
    template <class Self, class Visit>
    static void each(Self & self, Visit visit) {
        visit(self.roots);
        visit(self.nodes);
        visit(self.classes);
        visit(self.terminals);
        visit(self.sets);
        visit(self.entries);
    }
};

ClassArrays find_classes(const Lexer & lexer, const Parser & parser, const Pieces & pieces);

class TokenClasses {
public:
    TokenClasses(const RawClasses & kept, std::pmr::memory_resource * memory) : arrays_(kept, memory) {}

    const ClassArrays & arrays() const { return arrays_; }
    const SequenceNode * begin(int32_t lexer_state) const {
        return arrays_.nodes.data() + arrays_.roots[size_t(lexer_state)];
    }
    const TokenClass * classes(const SequenceNode & node) const {
        return arrays_.classes.data() + node.first_class;
    }
    const Terminals & terminals(int32_t set) const { return arrays_.terminals[size_t(set)]; }
    // Adds a set of tokens to a mask.
    void unite(int32_t tokens, int32_t * words) const;
    int64_t bytes() const;

private:
    ClassArrays arrays_;
};

}  // namespace pyquant::grammar
