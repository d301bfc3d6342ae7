// GGUF headers through GGML's own reader and writer: what it accepts is what llama.cpp accepts, and
// a vocabulary of 150,000 tokens takes milliseconds.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <unordered_map>
#include <vector>

#include "bindings/checked_type.h"
#include "bindings/log_capture.h"
#include "bindings/register.h"
#include "ggml.h"
#include "ggml/table.h"
#include "gguf.h"
#include "gguf/bounds.h"
#include "llama/abort_guard.h"
#include "stream/file.h"

namespace pyquant::bindings {

namespace py = pybind11;

namespace {

struct CloseFile {
    void operator()(std::FILE * file) const { std::fclose(file); }
};

struct FreeGguf {
    void operator()(gguf_context * context) const { gguf_free(context); }
};

template <class T>
py::object numbers(const gguf_context * context, int64_t id) {
    return py::array_t<T>(py::ssize_t(gguf_get_arr_n(context, id)),
                          static_cast<const T *>(gguf_get_arr_data(context, id)));
}

// Text need not be UTF-8: bytes that are not go through Python as its file names do.
py::object decode_text(const char * text) {
    return py::reinterpret_steal<py::object>(
        PyUnicode_DecodeUTF8(text, py::ssize_t(std::string(text).size()), "surrogateescape"));
}

std::string encode_text(const py::str & text) {
    const auto bytes =
        py::reinterpret_steal<py::bytes>(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape"));
    if (!bytes) {
        throw py::error_already_set();
    }
    return bytes;
}

// GGML lets names pass that Python cannot spell, and ones that are empty or alike up to a zero byte:
// copying these runs into its assertions.
void check_names(std::vector<std::string> names, const std::string & what) {
    for (size_t i = 0; i < names.size(); ++i) {
        if (names[i].empty()) {
            throw py::value_error("the name of " + what + " " + std::to_string(i) + " is empty");
        }
        const auto text = py::reinterpret_steal<py::object>(
            PyUnicode_DecodeUTF8(names[i].data(), py::ssize_t(names[i].size()), nullptr));
        if (!text) {
            PyErr_Clear();
            throw py::value_error("the name of " + what + " " + std::to_string(i) + " is not UTF-8");
        }
    }
    std::sort(names.begin(), names.end());
    const auto twin = std::adjacent_find(names.begin(), names.end());
    if (twin != names.end()) {
        throw py::value_error("more than one " + what + " is named '" + *twin + "'");
    }
}

class Gguf {
public:
    Gguf() : context_(gguf_init_empty()) {}

    static std::unique_ptr<Gguf> read(const std::string & path) {
        const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
        if (!file) {
            throw stream::ReadError(errno, std::generic_category());
        }
        gguf::check_bounds(file.get());
        std::rewind(file.get());
        const LogCapture log;
        auto result = std::make_unique<Gguf>();
        result->context_.reset(gguf_init_from_file_ptr(file.get(), {/*no_alloc=*/true, /*ctx=*/nullptr}));
        if (!result->context_) {
            throw py::value_error(log.text);
        }
        check_names(result->keys(), "metadata key");
        std::vector<std::string> names;
        for (int64_t id = 0; id < gguf_get_n_tensors(result->get()); ++id) {
            names.emplace_back(gguf_get_tensor_name(result->get(), id));
        }
        check_names(names, "tensor");
        const std::vector<std::string> keys = result->keys();
        for (size_t id = 0; id < keys.size(); ++id) {
            result->ids_.emplace(keys[id], int64_t(id));
        }
        return result;
    }

    std::vector<std::string> keys() const {
        std::vector<std::string> keys;
        for (int64_t id = 0; id < gguf_get_n_kv(get()); ++id) {
            keys.emplace_back(gguf_get_key(get(), id));
        }
        return keys;
    }

    py::object value(const std::string & key) const {
        const auto known = ids_.find(key);
        const int64_t id = known != ids_.end() ? known->second : gguf_find_key(get(), key.c_str());
        if (id < 0) {
            throw py::key_error(key);
        }
        switch (gguf_get_kv_type(get(), id)) {
            case GGUF_TYPE_UINT8: return py::int_(gguf_get_val_u8(get(), id));
            case GGUF_TYPE_INT8: return py::int_(gguf_get_val_i8(get(), id));
            case GGUF_TYPE_UINT16: return py::int_(gguf_get_val_u16(get(), id));
            case GGUF_TYPE_INT16: return py::int_(gguf_get_val_i16(get(), id));
            case GGUF_TYPE_UINT32: return py::int_(gguf_get_val_u32(get(), id));
            case GGUF_TYPE_INT32: return py::int_(gguf_get_val_i32(get(), id));
            case GGUF_TYPE_UINT64: return py::int_(gguf_get_val_u64(get(), id));
            case GGUF_TYPE_INT64: return py::int_(gguf_get_val_i64(get(), id));
            case GGUF_TYPE_FLOAT32: return py::float_(gguf_get_val_f32(get(), id));
            case GGUF_TYPE_FLOAT64: return py::float_(gguf_get_val_f64(get(), id));
            case GGUF_TYPE_BOOL: return py::bool_(gguf_get_val_bool(get(), id));
            case GGUF_TYPE_STRING: return decode_text(gguf_get_val_str(get(), id));
            default: return array(id);
        }
    }

    void copy_keys(const Gguf & other) {
        if (&other != this) {
            gguf_set_kv(to_change(), other.get());
        }
    }
    void remove(const std::string & key) { gguf_remove_key(to_change(), key.c_str()); }
    void set_u32(const std::string & key, uint32_t value) {
        const in_llama::AbortGuard guard;  // no key, or an alignment that is no power of two
        gguf_set_val_u32(to_change(), key.c_str(), value);
    }
    void set_text(const std::string & key, const py::str & value) {
        const in_llama::AbortGuard guard;  // no key
        gguf_set_val_str(to_change(), key.c_str(), encode_text(value).c_str());
    }
    void set_texts(const std::string & key, const std::vector<py::str> & values) {
        std::vector<std::string> texts;
        std::transform(values.begin(), values.end(), std::back_inserter(texts), encode_text);
        std::vector<const char *> pointers;
        for (const std::string & text : texts) {
            pointers.push_back(text.c_str());
        }
        gguf_set_arr_str(to_change(), key.c_str(), pointers.data(), pointers.size());
    }

    // shape: as GGML has it, the length of a row first
    void add_tensor(const std::string & name, int type, const std::vector<int64_t> & shape) {
        const in_llama::AbortGuard guard;  // two tensors of one name, more than four lengths
        ggml_init_params params{ggml_tensor_overhead(), nullptr, /*no_alloc=*/true};
        const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init(params), ggml_free);
        ggml_tensor * tensor =
            ggml_new_tensor(context.get(), checked_type(type), int(shape.size()), shape.data());
        ggml_set_name(tensor, name.c_str());
        gguf_add_tensor(get(), tensor);
    }

    py::list tensors() const {
        py::list tensors;
        for (int64_t id = 0; id < gguf_get_n_tensors(get()); ++id) {
            const int64_t * ne = gguf_get_tensor_ne(get(), id);
            int n_dims = GGML_MAX_DIMS;
            while (n_dims > 1 && ne[n_dims - 1] == 1) {
                --n_dims;
            }
            py::tuple shape(n_dims);
            for (int i = 0; i < n_dims; ++i) {
                shape[size_t(i)] = ne[i];
            }
            tensors.append(py::make_tuple(
                decode_text(gguf_get_tensor_name(get(), id)), int(gguf_get_tensor_type(get(), id)), shape,
                gguf_get_tensor_offset(get(), id), gguf_get_tensor_size(get(), id)));
        }
        return tensors;
    }

    // (the 16 values of a Q4_T tensor's codes, the name of the stock type that it equals)
    py::tuple table(const std::string & tensor) const {
        try {
            const in_ggml::StoredTable table = in_ggml::read_table(get(), tensor.c_str());
            const char * stock = table.stock == GGML_TYPE_Q4_0 ? "Q4_0" : "Q8_0";
            return py::make_tuple(py::array_t<int8_t>(16, table.values), stock);
        } catch (const std::runtime_error & error) {
            throw py::value_error(error.what());
        }
    }

    py::bytes header() const {
        std::string bytes(gguf_get_meta_size(get()), '\0');
        gguf_get_meta_data(get(), bytes.data());
        return py::bytes(bytes);
    }

    size_t data_offset() const { return gguf_get_data_offset(get()); }

private:
    gguf_context * get() const { return context_.get(); }

    gguf_context * to_change() {
        ids_.clear();
        return get();
    }

    py::object array(int64_t id) const {
        switch (gguf_get_arr_type(get(), id)) {
            case GGUF_TYPE_UINT8: return numbers<uint8_t>(get(), id);
            case GGUF_TYPE_INT8: return numbers<int8_t>(get(), id);
            case GGUF_TYPE_UINT16: return numbers<uint16_t>(get(), id);
            case GGUF_TYPE_INT16: return numbers<int16_t>(get(), id);
            case GGUF_TYPE_UINT32: return numbers<uint32_t>(get(), id);
            case GGUF_TYPE_INT32: return numbers<int32_t>(get(), id);
            case GGUF_TYPE_UINT64: return numbers<uint64_t>(get(), id);
            case GGUF_TYPE_INT64: return numbers<int64_t>(get(), id);
            case GGUF_TYPE_FLOAT32: return numbers<float>(get(), id);
            case GGUF_TYPE_FLOAT64: return numbers<double>(get(), id);
            case GGUF_TYPE_BOOL: return numbers<bool>(get(), id);
            default: break;
        }
        py::list texts;
        for (size_t i = 0; i < gguf_get_arr_n(get(), id); ++i) {
            texts.append(decode_text(gguf_get_arr_str(get(), id, i)));
        }
        return texts;
    }

    std::unique_ptr<gguf_context, FreeGguf> context_;
    std::unordered_map<std::string, int64_t>
        ids_;  // of keys, in what was read: GGML goes through all of them
};

}  // namespace

void register_gguf(py::module_ & module) {
    py::class_<Gguf>(module, "Gguf")
        .def(py::init<>())
        .def_static("read", &Gguf::read, py::arg("path"))
        .def("keys", &Gguf::keys)
        .def("value", &Gguf::value, py::arg("key"))
        .def("copy_keys", &Gguf::copy_keys, py::arg("other"))
        .def("remove", &Gguf::remove, py::arg("key"))
        .def("set_u32", &Gguf::set_u32, py::arg("key"), py::arg("value"))
        .def("set_text", &Gguf::set_text, py::arg("key"), py::arg("value"))
        .def("set_texts", &Gguf::set_texts, py::arg("key"), py::arg("values"))
        .def("add_tensor", &Gguf::add_tensor, py::arg("name"), py::arg("type"), py::arg("shape"))
        .def("tensors", &Gguf::tensors)
        .def("table", &Gguf::table, py::arg("tensor"))
        .def("header", &Gguf::header)
        .def_property_readonly("data_offset", &Gguf::data_offset);

    module.attr("LARGEST_HEADER") = gguf::kMostBytes;
    module.attr("TYPE_Q4_T") = int(GGML_TYPE_Q4_T);
    module.def("requires_importance",
               [](int type) { return ggml_quantize_requires_imatrix(ggml_type(type)); });
    module.def("block_length", [](int type) { return ggml_blck_size(checked_type(type)); });
    module.def("row_bytes", [](int type, int64_t n) {
        const ggml_type known = checked_type(type);
        if (n < 0 || n % ggml_blck_size(known) != 0) {
            throw py::value_error("n: expected a multiple of the type's block");
        }
        return ggml_row_size(known, n);
    });
}

}  // namespace pyquant::bindings
