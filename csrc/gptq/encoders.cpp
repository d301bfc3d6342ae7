#include "gptq/encoders.h"

#include <algorithm>
#include <map>
#include <string>

#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

// Stands within a function, so that it is there before the first file's registration.
std::map<ggml_type, Registration::Format> & registry() {
    static std::map<ggml_type, Registration::Format> formats;
    return formats;
}

}  // namespace

void Registration::add(ggml_type type, Format format) {
    if (!registry().emplace(type, std::move(format)).second) {
        throw std::logic_error(std::string("two formats for type ") + ggml_type_name(type));
    }
}

std::vector<ggml_type> gptq_types() {
    std::vector<ggml_type> types;
    for (const auto & [type, unused] : registry()) {
        types.push_back(type);
    }
    return types;
}

std::unique_ptr<stream::Encoder> gptq_encoder(ggml_type type, std::shared_ptr<const Factor> factor) {
    const auto at = registry().find(type);
    if (at == registry().end()) {
        throw std::invalid_argument(std::string("GPTQ does not round to type ") + ggml_type_name(type));
    }
    return at->second.make(std::move(factor));
}

std::unique_ptr<stream::Encoder> lattice_encoder(ggml_type type, int64_t n, int bits) {
    const auto at = registry().find(type);
    if (at == registry().end() || !at->second.make_on_lattice) {
        return nullptr;
    }
    const std::vector<float> ones(size_t(n), 1.0f);
    return at->second.make_on_lattice(std::make_shared<const Factor>(independent(ones.data(), n)), bits);
}

Together columns_together(ggml_type type) {
    const auto at = registry().find(type);
    const int block = std::max<int>(kSub, int(ggml_blck_size(type)));
    return at == registry().end() ? Together{1, kSub, block}
                                  : Together{at->second.columns_of_group, at->second.columns_of_scale, block};
}

}  // namespace pyquant::gptq
