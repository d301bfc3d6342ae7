// llama.cpp's evaluation callback that sums up what enters a model's matrices.
//
// Asking for a node makes llama.cpp stop there, so only one of the multiplications that share an
// input, as those by Q, K and V do, is asked for. The first pass only learns which inputs there are.
//
// What a device computes is copied from it, and summed up in a thread while the pass goes on, as far as to
// the next input's copy. Whole Hessians of inputs that all tokens enter are summed up on the device instead,
// if asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "calibrate/accumulators.h"
#include "calibrate/bf16_strips.h"
#include "calibrate/device_sums.h"
#include "calibrate/hessian.h"
#include "calibrate/host_values.h"

struct ggml_tensor;

namespace pyquant::calibrate {

// Input of one or more matrices: what they are multiplied with.
struct Input {
    std::vector<std::string> matrices;
    int64_t n_in;
    int64_t n_groups;   // experts, or matrices of a tensor with more than two dimensions
    bool routed;        // each token enters some of the groups only
    bool all_hessians;  // else sums of squares only
    bool first_tokens;  // the sum of those that chunks begin with is kept too

    int64_t first_record;  // of its groups' sums
};

class Collector {
public:
    // wanted: names of the matrices whose inputs' Hessians are asked for; of the others only sums of
    // squares are kept. with_output: also the output matrix, which then has to be computed. on_device: sums
    // up what a device computes there. allows_bf16: whether products may round to BF16
    // (ggml/bf16_products.h).
    Collector(std::set<std::string> wanted, bool with_output, int n_threads, bool on_device,
              bool allows_bf16);

    // A ggml_backend_sched_eval_callback; self: a Collector. No exception leaves it: the pass ends, and
    // rethrow() has it: to be called behind each pass, also where decoding failed, as it waits for the sums.
    static bool evaluate(ggml_tensor * node, bool ask, void * self) noexcept;
    void rethrow();

    // Seconds that passes waited for copies from a device, and for sums: of copies before, or there.
    struct Waited {
        double for_copies = 0, for_sums = 0;
    };
    const Waited & waited() const { return waited_; }

    // Ends the first pass.
    std::vector<int64_t> sizes() const;  // of all records, in floats
    void start(int64_t memory, Spool spool);

    // weight: of the tokens in the next pass. n_begun: chunks that begin in it, as many tokens of each after
    // those of the one before; 0: chunks go on.
    void set_pass(float weight, int64_t n_begun) { weight_ = weight, n_begun_ = n_begun; }
    uint64_t batch() const { return sums_->progress().batch; }
    // Copies what devices have summed up to the sums in memory; so does a checkpoint.
    void fetch();
    void checkpoint(uint64_t batch) {
        fetch();
        sums_->checkpoint({batch, visit_});
    }
    // Why sums were left to the CPU that a device was to make; empty: none were.
    std::string left_to_cpu() const { return devices_ ? devices_->why_of_cpu() : ""; }

    const std::vector<Input> & inputs() const { return inputs_; }
    Layout layout(const Input & input) const { return {input.n_in, input.all_hessians}; }
    // Size of a group's sums, in floats: the layout's, then the first tokens'.
    int64_t size(const Input & input) const {
        return layout(input).size() + (input.first_tokens ? input.n_in : 0);
    }
    const Accumulators & sums() const { return *sums_; }

private:
    // An input is known by the tensor that holds it, and by who its tokens are shared out to.
    using Source = std::tuple<const ggml_tensor *, const ggml_tensor *, int64_t>;

    bool ask(const ggml_tensor * node);
    void collect(const ggml_tensor * node);
    void learn(const std::string & matrix, const Source & source, const ggml_tensor * node);
    bool is_input(const ggml_tensor * node, const std::string & matrix) const;
    void add_groups(const Input & input, const std::vector<std::vector<const float *>> & rows,
                    uint64_t visit);
    void add(const Input & input, int64_t group, const std::vector<const float *> & rows, uint64_t visit);
    void add_first_tokens(const Rows & rows, int64_t n_in, float * sums) const;
    void wait_for_sums();
    bool add_on_device(size_t input, ggml_tensor * x, uint64_t visit);
    bool begin_on_device(const Input & input, DeviceSums::Sum & sum, const ggml_tensor * x);
    void fetch_input(size_t input);
    // What a lost device holds cannot be freed: there the process would end.
    template <class Work>
    auto keep_if_lost(const Work & work);

    std::set<std::string> wanted_;
    bool with_output_;
    bool allows_bf16_;
    int n_threads_;

    std::vector<Input> inputs_;
    std::unordered_map<std::string, size_t> input_of_;  // by matrix
    std::map<Source, size_t> seen_;                     // in the graph at work
    bool ends_early_ = false;                           // nothing is collected behind the last hidden state

    std::unique_ptr<Accumulators> sums_;
    uint64_t visit_ = 0;  // of any input, since the first pass
    float weight_ = 1;
    int64_t n_begun_ = 0;
    std::unique_ptr<DeviceSums> devices_;
    HostValues values_[2],
        experts_;  // of one input the values are summed up while those of another are copied
    Waited waited_;
    std::vector<float> gathered_;
    Bf16Strips rounded_;
    std::exception_ptr failure_;
    std::future<void> summing_;  // the last: it uses the others
};

}  // namespace pyquant::calibrate
