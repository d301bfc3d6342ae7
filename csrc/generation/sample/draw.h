// Draws tokens from what a model says: the whole vocabulary, or what a mask and truncation leave of it.
#pragma once

#include <cstdint>

namespace pyquant::sample {

struct Certainty;

// Settings in the order in which llama.cpp applies them; the mask comes before all.
struct Settings {
    int32_t top_k;      // keep so many of the most likely tokens; 0: all
    float top_p;        // keep the most likely ones until they have this share; 1: all
    float min_p;        // keep those with at least this part of the most likely one's probability; 0: all
    float temperature;  // divides logits; 0: the most likely token, of equal ones the first

    bool truncates() const { return top_k > 0 || top_p < 1 || min_p > 0; }
};

// The largest logit of a row, and the sum of exp(logit - largest); both finite where all are numbers.
struct Sums {
    double largest, total;
};

// A token that was drawn of a row; see Drawn.
struct Row {
    int32_t token;
    double log_p;
    double allowed;
};

// Drawn tokens; all arrays (n_rows,). Logits that are not numbers give token 0, of which log_p is NaN.
struct Drawn {
    int32_t * token;   // -1 where the mask allows none
    double * log_p;    // log of its probability, of all tokens at temperature 1; in nats
    double * allowed;  // the share of all tokens' probability that the mask leaves; 1 without one
    Sums * sums;       // of all tokens

    void set(int64_t i, const Row & row) const {
        token[i] = row.token;
        log_p[i] = row.log_p;
        allowed[i] = row.allowed;
    }
};

// logits: (n_rows, n_vocab); mask: (n_rows, ceil(n_vocab / 32)) whose bit j % 32 of word j / 32 allows token
// j, or null; uniform: (n_rows,), each in [0, 1). Tokens are drawn by inversion: without truncation in the
// order of the vocabulary, else from the most likely one down. Threads share the rows.
void draw(const float * logits, const int32_t * mask, int64_t n_rows, int64_t n_vocab,
          const Settings & settings, const double * uniform, const Drawn & drawn, int n_threads);

// Draws from one row what `draw` would, and says how sure its distribution is: of the weights that both take.
// All of `sure` is 0 where a mask allows no token, or logits are not numbers.
Row draw_sure(const float * logits, const int32_t * mask, int64_t n_vocab, const Settings & settings,
              double uniform, Certainty & sure);

// Draws what `draw` would with these masks, from rows whose sums it has returned. Only tokens that a mask
// allows are weighed, so where it allows few this takes a small part of the time. rows, uniform and what is
// drawn: (n_rows,); mask: (n_rows, ceil(n_vocab / 32)); logits and sums: of all rows that were drawn from.
void draw_again(const float * logits, const int64_t * rows, const Sums * sums, const int32_t * mask,
                int64_t n_rows, int64_t n_vocab, const Settings & settings, const double * uniform,
                const Drawn & drawn);

// Says which tokens may come in the text of each row, and follows it.
class Keeper {
public:
    virtual ~Keeper() = default;
    // Turns to a row; what is asked and done next is about its text.
    virtual void turn_to(int64_t row) = 0;
    // Gets ready what a question about a token takes from memory.
    virtual void expect(int32_t token) = 0;
    virtual bool allows(int32_t token) = 0;
    virtual void mask(int32_t * words) = 0;
    // Takes a token; false: it may not come, and nothing changes.
    virtual bool take(int32_t token) = 0;
};

// What a row's random numbers depend on, beside which draw they are for; see philox.h.
struct Place {
    uint64_t seed, sample, position;
};

// Draws tokens that may come, and takes them. Where top-k leaves tokens out, it is `draw` with the keeper's
// masks and the first random number of a row, but that `allowed` is not computed; no mask is made where few
// of the most likely tokens are refused. Else, without truncation, a token is drawn freely; if it is refused,
// another one with a mask and the second number. places: (n_rows,). Settings that truncate have a top-k.
void draw_kept(const float * logits, int64_t n_rows, int64_t n_vocab, const Settings & settings,
               const Place * places, Keeper & keeper, const Drawn & drawn);

}  // namespace pyquant::sample
