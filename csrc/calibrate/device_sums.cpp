#include "calibrate/device_sums.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "ggml.h"

namespace pyquant::calibrate {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr size_t kSpareShare = 16;  // of a device's memory, which backends take while they compute
constexpr auto kNoMemory = "the GPU has no memory for all sums";
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

void add_to(std::vector<float> & sums, const std::vector<float> & values, float weight) {
    for (size_t i = 0; i < values.size(); ++i) {
        sums[i] += weight * values[i];
    }
}

ggml_backend_buffer_type_t type_of(const ggml_tensor * x) {
    return ggml_backend_buffer_get_type(x->view_src ? x->view_src->buffer : x->buffer);
}

// A panel's rows of the lower triangle, of all panels: part(row, first column, columns, in panel).
template <class Part>
void each_part(const Layout & layout, int64_t begin, int64_t end, const Part & part) {
    for (int64_t first = 0; first <= begin; first += kPanel) {
        const int64_t width = std::min(kPanel, layout.n_in - first);
        for (int64_t row = begin; row < end; ++row) {
            part(row, first, std::min(width, row - first + 1),
                 layout.panel_offset(first / kPanel) + (row - first) * width);
        }
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

bool DeviceSums::make_room(Sum & sum, const ggml_tensor * x) {
    size_t free, total;
    ggml_backend_dev_memory(ggml_backend_buft_get_device(type_of(x)), &free, &total);
    const int64_t n_in = x->ne[0], n_floats = 2 * n_in * n_in + 4 * n_in * x->ne[1];
    if (size_t(n_floats * kFloat) + total / kSpareShare <= free) {
        sum.context = make_context();
        sum.hessian = ggml_new_tensor_2d(sum.context.get(), GGML_TYPE_F32, n_in, n_in);
        sum.buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(sum.context.get(), type_of(x)));
    }
    return sum.buffer || leave_to_cpu(sum, kNoMemory);
}

bool DeviceSums::add(Sum & sum, ggml_tensor * x, float weight, int64_t n_begun, uint64_t visit) {
    const ggml_backend_dev_t device = ggml_backend_buft_get_device(type_of(x));
    auto & [backend, scratch] = devices_[device];
    if (!backend) {
        backend.reset(ggml_backend_dev_init(device, nullptr));
        scratch.reset(ggml_gallocr_new(type_of(x)));
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
    for (int64_t chunk = 0; chunk < n_begun; ++chunk) {
        const int64_t token = chunk * (x->ne[1] / n_begun);
        ggml_backend_tensor_get(x, first.data(), size_t(token) * x->nb[1], size_t(n_in * kFloat));
        add_to(sum.first_tokens, first, weight);
    }
    sum.count += double(weight) * double(x->ne[1]);
    sum.visit = visit;
    return true;
}

void DeviceSums::load(Sum & sum, const Layout & layout, const float * sums) {
    const int64_t n_in = layout.n_in;
    for (int64_t begin = 0; begin < n_in; begin += kPanel) {
        const int64_t end = std::min(begin + kPanel, n_in);
        std::vector<float> rows(size_t((end - begin) * n_in),
                                0.0f);  // what is above the diagonal is not read
        each_part(layout, begin, end, [&](int64_t row, int64_t first, int64_t n, int64_t offset) {
            std::copy_n(sums + offset, n, &rows[size_t((row - begin) * n_in + first)]);
        });
        ggml_backend_tensor_set(sum.hessian, rows.data(), size_t(begin * n_in * kFloat),
                                rows.size() * kFloat);
    }
    sum.squares.assign(sums, sums + n_in);
    sum.first_tokens.assign(sums + layout.size(), sums + layout.size() + n_in);
}

void DeviceSums::fetch(Sum & sum, const Layout & layout, float * sums) {
    const int64_t n_in = layout.n_in;
    for (int64_t begin = 0; begin < n_in; begin += kPanel) {
        const int64_t end = std::min(begin + kPanel, n_in);
        std::vector<float> rows(size_t((end - begin) * n_in));
        ggml_backend_tensor_get(sum.hessian, rows.data(), size_t(begin * n_in * kFloat),
                                rows.size() * kFloat);
        each_part(layout, begin, end, [&](int64_t row, int64_t first, int64_t n, int64_t offset) {
            std::copy_n(&rows[size_t((row - begin) * n_in + first)], n, sums + offset);
        });
    }
    std::copy_n(sum.squares.data(), n_in, sums);
    std::copy_n(sum.first_tokens.data(), n_in, sums + layout.size());
    sum.count = 0;
}

}  // namespace pyquant::calibrate
