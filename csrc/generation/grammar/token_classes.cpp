#include "generation/grammar/token_classes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <unordered_map>

namespace pyquant::grammar {

// Numbers what it is given, equal ones by the same number.
class ClassBuilder {
public:
    ClassBuilder(ClassArrays & out, const Lexer & lexer, const Parser & parser, const Pieces & pieces)
        : out_(out),
          lexer_(lexer),
          parser_(parser),
          n_words_((pieces.size() + 31) / 32) {
        order_.resize(pieces.size());
        std::iota(order_.begin(), order_.end(), 0);
        order_.erase(std::remove_if(order_.begin(), order_.end(),
                                    [&](int32_t token) { return pieces[token].empty(); }),
                     order_.end());
        std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) { return pieces[a] < pieces[b]; });
        begins_.assign(1, 0);
        for (const int32_t token : order_) {
            bytes_ += pieces[token];
            begins_.push_back(bytes_.size());
        }
        for (size_t i = 0; i < order_.size(); i++) {
            const std::string_view piece = sorted_piece(i);
            const std::string_view before = i ? sorted_piece(i - 1) : std::string_view();
            const size_t shorter = std::min(piece.size(), before.size());
            shared_.push_back(size_t(
                std::mismatch(piece.begin(), piece.begin() + ptrdiff_t(shorter), before.begin()).first -
                piece.begin()));
        }
        for (int32_t state = 0; state < lexer.n_states(); state++) {
            coming_.push_back(lexer[state].ignorable ? kNone : number(lexer[state].coming));
        }
    }

    void add(int32_t lexer_state) {
        sequences_.assign(1, Sequence{kNone, kNone, 0, {}, {}});
        tokens_.clear();
        scan(lexer_state);
        out_.roots.push_back(int64_t(out_.nodes.size()));
        base_ = out_.nodes.size();
        write(0);
    }

private:
    struct Sequence {
        int32_t parent, terminal, depth;
        std::vector<int32_t> children;
        std::vector<std::pair<int32_t, int32_t>> classes;  // set of terminals, number in tokens_
    };
    struct Spot {
        int32_t state, sequence;
    };

    std::string_view sorted_piece(size_t i) const {
        return {bytes_.data() + begins_[i], begins_[i + 1] - begins_[i]};
    }

    int32_t number(const Terminals & set) {
        const auto [found, is_new] = set_numbers_.emplace(set, int32_t(out_.terminals.size()));
        if (is_new) {
            out_.terminals.push_back(set);
        }
        return found->second;
    }

    // The sequence with one terminal more, or kNone: no text has it.
    int32_t extend(int32_t sequence, int32_t terminal) {
        Sequence & parent = sequences_[size_t(sequence)];
        if (parent.terminal != kNone && !parser_.follows(parent.terminal, terminal)) {
            return kNone;
        }
        for (const int32_t child : parent.children) {
            if (sequences_[size_t(child)].terminal == terminal) {
                return child;
            }
        }
        const auto child = int32_t(sequences_.size());
        parent.children.push_back(child);
        sequences_.push_back(Sequence{sequence, terminal, parent.depth + 1, {}, {}});
        return child;
    }

    // Takes a byte; false: no text goes on so.
    bool step(Spot & spot, uint8_t byte) {
        int32_t next = lexer_.after(spot.state, byte);
        if (next == kNone) {
            const int32_t terminal = lexer_[spot.state].ends;
            if (terminal == kNone) {
                return false;
            }
            if (terminal != kIgnored) {
                spot.sequence = extend(spot.sequence, terminal);
                if (spot.sequence == kNone) {
                    return false;
                }
            }
            next = lexer_.after(0, byte);
        }
        spot.state = next;
        return next != kNone;
    }

    // Tokens in the order of their bytes: what a token shares with the one before is not scanned again.
    void scan(int32_t lexer_state) {
        std::vector<Spot> spots(1, Spot{lexer_state, 0});  // after each byte
        bool died = false;                                 // at the byte after the last of spots
        for (size_t i = 0; i < order_.size(); i++) {
            if (died && shared_[i] >= spots.size()) {
                continue;
            }
            const std::string_view piece = sorted_piece(i);
            spots.resize(std::min(spots.size(), shared_[i] + 1));
            died = false;
            while (!died && spots.size() <= piece.size()) {
                Spot spot = spots.back();
                died = !step(spot, uint8_t(piece[spots.size() - 1]));
                if (!died) {
                    spots.push_back(spot);
                }
            }
            if (!died) {
                place(order_[i], spots.back());
            }
        }
    }

    void place(int32_t token, const Spot & spot) {
        Sequence & sequence = sequences_[size_t(spot.sequence)];
        const int32_t coming = coming_[size_t(spot.state)];
        if (coming != kNone && sequence.terminal != kNone &&
            !(out_.terminals[size_t(coming)] & parser_.followers(sequence.terminal)).any()) {
            return;
        }
        for (const auto & [set, number] : sequence.classes) {
            if (set == coming) {
                tokens_[size_t(number)].push_back(token);
                return;
            }
        }
        sequence.classes.emplace_back(coming, int32_t(tokens_.size()));
        tokens_.emplace_back(1, token);
    }

    // Writes a sequence and all that begin with it; returns whether any token makes one of them.
    bool write(int32_t number_of_sequence) {
        const Sequence & sequence = sequences_[size_t(number_of_sequence)];
        const size_t here = out_.nodes.size();
        const size_t first_class = out_.classes.size();
        out_.nodes.push_back({sequence.terminal, sequence.depth, 0, 0, int32_t(first_class),
                              int32_t(sequence.classes.size())});
        Terminals wanted;
        for (const auto & [coming, tokens] : sequence.classes) {
            out_.classes.push_back({coming, store(tokens_[size_t(tokens)])});
            if (coming != kNone) {
                wanted |= out_.terminals[size_t(coming)];
            }
        }
        bool any = !sequence.classes.empty();
        for (const int32_t child : sequence.children) {
            if (write(child)) {
                any = true;
                wanted.add(sequences_[size_t(child)].terminal);
            }
        }
        if (!any && number_of_sequence != 0) {
            out_.nodes.pop_back();
            return false;
        }
        out_.nodes[here].beyond = int32_t(out_.nodes.size() - base_);
        out_.nodes[here].wanted = number(wanted);
        return true;
    }

    // The number of a set of tokens.
    int32_t store(std::vector<int32_t> & tokens) {
        const bool dense = tokens.size() > n_words_ / 8;
        std::vector<int32_t> bits;
        if (dense) {
            bits.assign(n_words_, 0);
            for (const int32_t token : tokens) {
                bits[size_t(token) / 32] |= int32_t(uint32_t(1) << (token % 32));
            }
        } else {
            std::sort(tokens.begin(), tokens.end());
        }
        const std::vector<int32_t> & entries = dense ? bits : tokens;
        uint64_t hash = dense;
        for (const int32_t entry : entries) {
            hash = (hash ^ uint32_t(entry)) * 0x9E3779B97F4A7C15u;
        }
        auto [same, last] = set_of_hash_.equal_range(hash);
        for (; same != last; ++same) {
            const TokenSet & set = out_.sets[size_t(same->second)];
            if (bool(set.dense) == dense && size_t(set.size) == entries.size() &&
                std::equal(entries.begin(), entries.end(), out_.entries.begin() + set.begin)) {
                return same->second;
            }
        }
        const auto number = int32_t(out_.sets.size());
        out_.sets.push_back({int64_t(out_.entries.size()), int32_t(entries.size()), dense});
        out_.entries.insert(out_.entries.end(), entries.begin(), entries.end());
        set_of_hash_.emplace(hash, number);
        return number;
    }

    ClassArrays & out_;
    const Lexer & lexer_;
    const Parser & parser_;
    const size_t n_words_;
    std::vector<int32_t> order_;   // tokens, by their bytes
    std::string bytes_;            // of all pieces in this order, so that a scan reads straight on
    std::vector<size_t> begins_;   // of each in bytes_
    std::vector<size_t> shared_;   // bytes that each shares with the one before
    std::vector<int32_t> coming_;  // sets of terminals, by state of the lexer
    std::map<Terminals, int32_t> set_numbers_;
    std::unordered_multimap<uint64_t, int32_t> set_of_hash_;
    std::vector<Sequence> sequences_;
    std::vector<std::vector<int32_t>> tokens_;  // by class
    size_t base_ = 0;
};

ClassArrays find_classes(const Lexer & lexer, const Parser & parser, const Pieces & pieces) {
    ClassArrays found;
    ClassBuilder builder(found, lexer, parser, pieces);
    for (int32_t state = 0; state < lexer.n_states(); state++) {
        builder.add(state);
    }
    return found;
}

void TokenClasses::unite(int32_t tokens, int32_t * words) const {
    const TokenSet & set = arrays_.sets[size_t(tokens)];
    const int32_t * entries = arrays_.entries.data() + set.begin;
    if (set.dense) {
        for (int32_t i = 0; i < set.size; i++) {
            words[i] |= entries[i];
        }
    } else {
        for (int32_t i = 0; i < set.size; i++) {
            words[entries[i] / 32] |= int32_t(uint32_t(1) << (entries[i] % 32));
        }
    }
}

int64_t TokenClasses::bytes() const {
    size_t total = 0;
    ClassArrays::each(arrays_, [&](const auto & array) { total += array.size() * sizeof(array[0]); });
    return int64_t(total);
}

}  // namespace pyquant::grammar
