#include "ggml/table.h"

#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>

namespace pyquant::in_ggml {

using namespace kernels;

namespace {

constexpr uint32_t kVersion = 2;  // version 1 has another key for the stock type

// Stands in op_params, which leaves of a graph have no other use for.
struct BoundTable {
    uint32_t mark;  // tells a table from the zeros of a tensor that was given none
    Table values;
};
constexpr uint32_t bound = 0x71347431;
static_assert(sizeof(BoundTable) <= GGML_MAX_OP_PARAMS, "a table fits into a tensor");

int64_t find(const gguf_context * metadata, const std::string & key, gguf_type type) {
    const int64_t id = gguf_find_key(metadata, key.c_str());
    return id >= 0 && gguf_get_kv_type(metadata, id) == type ? id : -1;
}

// Says whether text is 16 integers in lowest..highest.
bool parse(const char * text, int lowest, int highest, Table & values) {
    std::istringstream in(text);
    for (int8_t & value : values) {
        int number;
        if (!(in >> number) || number < lowest || number > highest) {
            return false;
        }
        value = int8_t(number);
    }
    return (in >> std::ws).eof();
}

}  // namespace

StoredTable read_table(const gguf_context * metadata, const char * tensor) {
    const auto fail = [&](const std::string & why) {
        std::string message = "tensor '" + std::string(tensor) + "' is of type Q4_T, and " + why;
        // Control characters, which a damaged file may have in any text, become question marks.
        for (char & c : message) {
            c = uint8_t(c) < 0x20 || c == 0x7f ? '?' : c;
        }
        return std::runtime_error(message);
    };
    const int64_t version_id = find(metadata, "pyquant.q4_t.version", GGUF_TYPE_UINT32);
    if (version_id < 0) {
        throw fail("the metadata has no pyquant.q4_t.version");
    }
    const uint32_t version = gguf_get_val_u32(metadata, version_id);
    if (version < 1 || version > kVersion) {
        throw fail("version " + std::to_string(version) +
                   " of its tables is not known here: made by a newer pyquant");
    }
    const std::string stock_key = version == 1 ? "pyquant.q4_t.container" : "pyquant.q4_t.stock";
    const int64_t stock = find(metadata, stock_key, GGUF_TYPE_STRING);
    const std::string name = stock < 0 ? "" : gguf_get_val_str(metadata, stock);
    if (name != "Q4_0" && name != "Q8_0") {
        throw fail(stock_key + " is '" + name + "', not Q4_0 or Q8_0");
    }
    const std::string key = "pyquant.q4_t.table." + std::string(tensor);
    const int64_t table = find(metadata, key, GGUF_TYPE_STRING);
    if (table < 0) {
        throw fail("its table is missing: no text " + key);
    }
    StoredTable found{{}, name == "Q4_0" ? GGML_TYPE_Q4_0 : GGML_TYPE_Q8_0};
    const int lowest = name == "Q4_0" ? -8 : -128, highest = name == "Q4_0" ? 7 : 127;
    if (!parse(gguf_get_val_str(metadata, table), lowest, highest, found.values)) {
        throw fail("its table is '" + std::string(gguf_get_val_str(metadata, table)) +
                   "', not 16 integers in " + std::to_string(lowest) + ".." + std::to_string(highest) +
                   " as " + name + " holds them");
    }
    return found;
}

const Table & table_of(const ggml_tensor * tensor) {
    const ggml_tensor * leaf = tensor->view_src ? tensor->view_src : tensor;
    const auto * table = reinterpret_cast<const BoundTable *>(leaf->op_params);
    if (table->mark != bound) {
        GGML_ABORT("tensor '%s' is of type Q4_T and was given no table", leaf->name);
    }
    return table->values;
}

}  // namespace pyquant::in_ggml

void pyquant_set_table(ggml_tensor * tensor, const int8_t * values) {
    using namespace pyquant::in_ggml;
    BoundTable table{bound, {}};
    std::memcpy(table.values, values, sizeof table.values);
    std::memcpy(tensor->op_params, &table, sizeof table);
}

void pyquant::bind_table(ggml_tensor * tensor, const gguf_context * metadata) {
    if (tensor->type == GGML_TYPE_Q4_T) {
        pyquant_set_table(tensor, in_ggml::read_table(metadata, tensor->name).values);
    }
}
