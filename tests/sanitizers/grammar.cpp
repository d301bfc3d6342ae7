// Masks of a grammar whose tables are in a file: random texts, by several threads from one state, forth and
// back; each mask is what single tokens say, and arrays that were kept give the same masks.
#include <cstdio>
#include <random>
#include <thread>

#include "generation/grammar/state.h"
#include "support.h"

using namespace pyquant::grammar;

namespace {

constexpr int kThreads = 4;
constexpr int32_t kEnd = 0;

class Numbers {
public:
    explicit Numbers(const std::vector<int32_t> & all) : at_(all.data()) {}
    int32_t next() { return *at_++; }
    std::vector<int32_t> next(int64_t n) {
        at_ += n;
        return {at_ - n, at_};
    }

private:
    const int32_t * at_;
};

std::shared_ptr<const Compiled> compile(const std::vector<int32_t> & file,
                                        const std::vector<std::string> & pieces,
                                        const std::optional<RawClasses> & classes) {
    Numbers numbers(file);
    const int32_t n_lexer = numbers.next(), n_parser = numbers.next(), n_terminals = numbers.next(),
                  n_more = numbers.next(), n_nonterminals = numbers.next(), n_rules = numbers.next(),
                  start = numbers.next();
    const std::vector<int32_t> next = numbers.next(256 * n_lexer), ends = numbers.next(n_lexer);
    const LexerTables lexer{next.data(), ends.data(), n_lexer};
    ParserTables parser{n_terminals, n_nonterminals, start, {}, {}, {}, {}, {}};
    parser.actions = numbers.next(int64_t(n_parser) * n_terminals);
    parser.more = numbers.next(3 * n_more);
    parser.gotos = numbers.next(int64_t(n_parser) * n_nonterminals);
    parser.lengths = numbers.next(n_rules);
    parser.origins = numbers.next(n_rules);
    const std::vector<std::string_view> views(pieces.begin(), pieces.end());
    return std::make_shared<Compiled>(lexer, parser, views, std::vector<int32_t>{kEnd}, classes);
}

std::vector<std::string> make_pieces(const std::string & letters, std::mt19937 & random) {
    std::vector<std::string> pieces(1);  // the end has no bytes
    for (int byte = 0; byte < 256; byte++) {
        pieces.emplace_back(1, char(byte));
    }
    for (int i = 0; i < 300; i++) {
        std::string piece;
        for (size_t n = random() % 6; piece.size() <= n;) {
            piece.push_back(letters[random() % letters.size()]);
        }
        pieces.push_back(piece);
    }
    return pieces;
}

std::vector<int32_t> mask_of(const State & state) {
    std::vector<int32_t> words(state.compiled().n_words());
    state.mask(words.data());
    return words;
}

// Writes a text, and goes back now and then.
void write(State state, State kept, uint32_t seed) {
    std::mt19937 random(seed);
    const size_t n_tokens = state.compiled().pieces.size();
    std::vector<std::vector<int32_t>> masks;
    for (int step = 0; step < 60; step++) {
        masks.push_back(mask_of(state));
        expect(masks.back() == mask_of(kept), "a kept grammar's masks");
        std::vector<int32_t> allowed;
        for (size_t token = 0; token < n_tokens; token++) {
            const bool bit = uint32_t(masks.back()[token / 32]) >> (token % 32) & 1;
            expect(bit == state.allows(int32_t(token)), "a mask is what single tokens say");
            if (bit && token != size_t(kEnd)) {
                allowed.push_back(int32_t(token));
            }
        }
        expect(state.must_end() == (state.may_end() && allowed.empty()), "the end");
        if (allowed.empty()) {
            return;
        }
        const std::string forced = state.forced();
        const int32_t token = allowed[random() % allowed.size()];
        const std::string_view piece = state.compiled().pieces[token];
        const size_t both = std::min(piece.size(), forced.size());
        expect(piece.compare(0, both, forced, 0, both) == 0, "forced bytes");
        expect(state.advance(token) && kept.advance(token), "an allowed token");
        const State copy = state;
        if (random() % 4 == 0) {
            const auto back = int64_t(1 + random() % masks.size());
            expect(state.roll_back(back) && kept.roll_back(back), "back");
            masks.resize(masks.size() + 1 - size_t(back));
            expect(mask_of(state) == masks.back(), "as it was");
            masks.pop_back();
        }
    }
}

}  // namespace

int main(int, char ** arguments) {
    std::vector<int32_t> file(size_t(std::stoll(arguments[2])));
    std::FILE * input = std::fopen(arguments[1], "rb");
    expect(input && std::fread(file.data(), sizeof(int32_t), file.size(), input) == file.size(), "the file");
    std::fclose(input);
    std::mt19937 random(0);
    const auto pieces = make_pieces(arguments[3], random);
    const auto compiled = compile(file, pieces, std::nullopt);
    const auto again = compile(file, pieces, compiled->classes.arrays().raw());
    const State state(compiled), kept(again);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kThreads; i++) {
        threads.emplace_back([&, i] {
            for (uint32_t text = 0; text < 5; text++) {
                write(state, kept, 100 * i + text);
            }
        });
    }
    for (auto & thread : threads) {
        thread.join();
    }
}
