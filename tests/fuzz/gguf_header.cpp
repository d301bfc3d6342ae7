// The header of a GGUF (a model, HESSIAN or an importance matrix), from any bytes: our bounds, then GGML's
// reader, then every key and tensor as pyquant asks for them. It is read, or refused; GGML may not abort.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "ggml.h"
#include "gguf.h"
#include "gguf/bounds.h"

namespace {

volatile size_t sink;  // so that what is read is read

void use(const char * text) {
    sink = sink + std::strlen(text);
}

void read_value(const gguf_context * context, int64_t id) {
    if (gguf_get_kv_type(context, id) == GGUF_TYPE_STRING) {
        use(gguf_get_val_str(context, id));
    } else if (gguf_get_kv_type(context, id) != GGUF_TYPE_ARRAY) {
        sink = sink + static_cast<const uint8_t *>(gguf_get_val_data(context, id))[0];
    } else if (gguf_get_arr_type(context, id) == GGUF_TYPE_STRING) {
        for (size_t i = 0; i < gguf_get_arr_n(context, id); ++i) {
            use(gguf_get_arr_str(context, id, i));
        }
    } else if (gguf_get_arr_n(context, id) > 0) {
        sink = sink + static_cast<const uint8_t *>(gguf_get_arr_data(context, id))[0];
    }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
    ggml_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    const std::unique_ptr<std::FILE, decltype(&std::fclose)> file(
        fmemopen(const_cast<uint8_t *>(data), size, "rb"), std::fclose);
    if (!file) {  // of no bytes there is no file
        return 0;
    }
    try {
        pyquant::gguf::check_bounds(file.get());
    } catch (const pyquant::gguf::TooLarge &) {
        return 0;
    }
    std::rewind(file.get());
    const std::unique_ptr<gguf_context, decltype(&gguf_free)> context(
        gguf_init_from_file_ptr(file.get(), {/*no_alloc=*/true, /*ctx=*/nullptr}), gguf_free);
    if (!context) {
        return 0;
    }
    for (int64_t id = 0; id < gguf_get_n_kv(context.get()); ++id) {
        use(gguf_get_key(context.get(), id));
        read_value(context.get(), id);
    }
    for (int64_t id = 0; id < gguf_get_n_tensors(context.get()); ++id) {
        use(gguf_get_tensor_name(context.get(), id));
        sink = sink + gguf_get_tensor_offset(context.get(), id) + gguf_get_tensor_size(context.get(), id) +
               size_t(gguf_get_tensor_ne(context.get(), id)[0]);
    }
    return 0;
}
