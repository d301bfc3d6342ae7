#include "compensate/encoders.h"

#include <algorithm>
#include <map>
#include <string>

#include "compensate/compensated_encoder.h"

namespace pyquant::compensate {
namespace {

// Within a function, so that it is there before the first file's registration.
std::map<ggml_type, Registration::Make> & registry() {
    static std::map<ggml_type, Registration::Make> makers;
    return makers;
}

}  // namespace

void Registration::add(ggml_type type, Make make) {
    if (!registry().emplace(type, std::move(make)).second) {
        throw std::logic_error(std::string("two formats for type ") + ggml_type_name(type));
    }
}

std::vector<ggml_type> compensated_types() {
    std::vector<ggml_type> types;
    for (const auto & [type, unused] : registry()) {
        types.push_back(type);
    }
    return types;
}

std::unique_ptr<stream::Encoder> compensated_encoder(ggml_type type, std::shared_ptr<const Factor> factor) {
    const auto at = registry().find(type);
    if (at == registry().end()) {
        throw std::invalid_argument(std::string("no compensation for type ") + ggml_type_name(type));
    }
    return at->second(std::move(factor));
}

int columns_together(ggml_type type) {
    return std::max<int>(kSub, int(ggml_blck_size(type)));
}

}  // namespace pyquant::compensate
