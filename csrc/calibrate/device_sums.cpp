#include "calibrate/device_sums.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "ggml.h"

namespace pyquant::calibrate {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr size_t kSpareShare = 16;   // of a device's memory, which backends take while they compute
constexpr double kTolerance = 4e-3;  // what squares of BF16, the CPU's products, err by at most

ggml_context_ptr make_context() {
    return ggml_context_ptr(
        ggml_init({16 * ggml_tensor_overhead() + 2 * ggml_graph_overhead(), nullptr, true}));
}

ggml_tensor * leaf(const ggml_context_ptr & context, ggml_tensor * tensor) {
    return ggml_view_tensor(context.get(), tensor);  // what has computed it is no part of the graph
}

void compute(const ggml_backend_ptr & backend, ggml_cgraph * graph) {
    if (ggml_backend_graph_compute(backend.get(), graph) != GGML_STATUS_SUCCESS) {
        throw std::runtime_error("the GPU does not add up its activations");
    }
}

std::vector<float> values_of(const ggml_tensor * tensor) {
    std::vector<float> values(size_t(ggml_nelements(tensor)));
    ggml_backend_tensor_get(tensor, values.data(), 0, ggml_nbytes(tensor));
    return values;
}

void add_to(std::vector<double> & sums, const std::vector<float> & values, double weight) {
    sums.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
        sums[i] += weight * double(values[i]);
    }
}

bool is_diagonal(const std::vector<float> & diagonal, const std::vector<float> & squares) {
    double error = 0, all = 0;
    for (size_t i = 0; i < squares.size(); ++i) {
        error += std::abs(double(diagonal[i]) - double(squares[i]));
        all += double(squares[i]);
    }
    return error <= kTolerance * all;  // false of what is not finite
}

}  // namespace

bool DeviceSums::leave_to_cpu(Sum & sum, std::string why) {
    sum.of_cpu = true;
    why_of_cpu_ = std::move(why);
    return false;
}

bool DeviceSums::make_room(Sum & sum, ggml_backend_dev_t device, ggml_backend_buffer_type_t type,
                           const ggml_tensor * x) {
    size_t free, total;
    ggml_backend_dev_memory(device, &free, &total);
    const int64_t n_in = x->ne[0], n_floats = 2 * n_in * n_in + 4 * n_in * x->ne[1];
    if (size_t(n_floats * kFloat) + total / kSpareShare > free) {
        return false;
    }
    sum.context = make_context();
    sum.hessian = ggml_new_tensor_2d(sum.context.get(), GGML_TYPE_F32, n_in, n_in);
    sum.buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(sum.context.get(), type));
    if (sum.buffer) {
        ggml_backend_buffer_clear(sum.buffer.get(), 0);
    }
    return bool(sum.buffer);
}

bool DeviceSums::add(Sum & sum, ggml_tensor * x, float weight, int64_t n_begun, uint64_t visit) {
    if (sum.of_cpu) {
        return false;
    }
    const ggml_backend_buffer_t held = x->view_src ? x->view_src->buffer : x->buffer;
    const ggml_backend_buffer_type_t type = ggml_backend_buffer_get_type(held);
    const ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
    auto & [backend, scratch] = devices_[device];
    if (!backend) {
        backend.reset(ggml_backend_dev_init(device, nullptr));
        scratch.reset(ggml_gallocr_new(type));
    }
    constexpr auto kNoMemory = "the GPU has no memory for all sums";
    if (!sum.buffer && !make_room(sum, device, type, x)) {
        return leave_to_cpu(sum, kNoMemory);
    }

    const ggml_context_ptr context = make_context();
    ggml_context * ctx = context.get();
    const int64_t n_in = x->ne[0];
    ggml_tensor * tokens = ggml_cont(ctx, ggml_transpose(ctx, leaf(context, x)));
    ggml_tensor * weighted = ggml_scale(ctx, tokens, weight);
    ggml_tensor * product = ggml_mul_mat(ctx, tokens, weighted);
    ggml_prec_set_acc(product, GGML_PREC_F32);
    ggml_tensor * diagonal =
        ggml_cont(ctx, ggml_view_2d(ctx, product, 1, n_in, size_t((n_in + 1) * kFloat), 0));
    ggml_tensor * squares = ggml_sum_rows(ctx, ggml_mul(ctx, tokens, weighted));
    ggml_cgraph * graph = ggml_new_graph(ctx);
    for (ggml_tensor * result : {product, diagonal, squares}) {
        ggml_set_output(result);
        ggml_build_forward_expand(graph, result);
    }
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        if (!ggml_backend_supports_op(backend.get(), ggml_graph_node(graph, i))) {
            return leave_to_cpu(sum, "the GPU's backend has no product for them");
        }
    }
    if (!ggml_gallocr_alloc_graph(scratch.get(), graph)) {
        return leave_to_cpu(sum, kNoMemory);
    }
    compute(backend, graph);
    const std::vector<float> squares_now = values_of(squares);
    if (!is_diagonal(values_of(diagonal), squares_now)) {
        return leave_to_cpu(sum, "the GPU's products are not exact enough");
    }

    ggml_tensor * addend = leaf(context, product);
    ggml_tensor * added = ggml_add_inplace(ctx, sum.hessian, addend);
    ggml_backend_view_init(addend);
    ggml_backend_view_init(added);
    ggml_cgraph * adding = ggml_new_graph(ctx);
    ggml_build_forward_expand(adding, added);
    compute(backend, adding);

    add_to(sum.squares, squares_now, 1);
    std::vector<float> first(size_t(n_in), 0.0f);
    add_to(sum.first_tokens, first, 0);
    for (int64_t chunk = 0; chunk < n_begun; ++chunk) {
        const int64_t token = chunk * (x->ne[1] / n_begun);
        ggml_backend_tensor_get(x, first.data(), size_t(token) * x->nb[1], size_t(n_in * kFloat));
        add_to(sum.first_tokens, first, double(weight));
    }
    sum.count += double(weight) * double(x->ne[1]);
    sum.visit = visit;
    return true;
}

void DeviceSums::fetch(Sum & sum, const Layout & layout, float * sums) {
    const int64_t n_in = layout.n_in;
    const auto add = [](float & to, double value) { to = float(double(to) + value); };
    std::vector<float> rows(size_t(kPanel * n_in));
    for (int64_t begin = 0; begin < n_in; begin += kPanel) {
        const int64_t end = std::min(begin + kPanel, n_in);
        ggml_backend_tensor_get(sum.hessian, rows.data(), size_t(begin * n_in * kFloat),
                                size_t((end - begin) * n_in * kFloat));
        for (int64_t first = 0; first <= begin; first += kPanel) {
            const int64_t width = std::min(kPanel, n_in - first);
            float * panel = sums + layout.panel_offset(first / kPanel);
            for (int64_t row = begin; row < end; ++row) {
                for (int64_t j = 0; j < std::min(width, row - first + 1); ++j) {  // the lower triangle
                    add(panel[(row - first) * width + j],
                        double(rows[size_t((row - begin) * n_in + first + j)]));
                }
            }
        }
    }
    for (int64_t i = 0; i < n_in; ++i) {
        add(sums[i], sum.squares[size_t(i)]);
        add(sums[layout.size() + i], sum.first_tokens[size_t(i)]);
    }
    ggml_backend_buffer_clear(sum.buffer.get(), 0);
    sum.squares.clear();
    sum.first_tokens.clear();
    sum.count = 0;
}

}  // namespace pyquant::calibrate
