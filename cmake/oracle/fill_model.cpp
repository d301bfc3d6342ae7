// fill-model METADATA.gguf MODEL.gguf [PART]: a model of these metadata, with every tensor that llama.cpp
// makes for its architecture, but for those whose names have PART, and for scales of matrices
// (NVFP4, BitNet). test-llama-archs saves most architectures; this is for those that it leaves out.
#include "ggml-backend.h"
#include "gguf.h"
#include "llama.h"

#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr float spread = 0.15f;  // as tests/support/architectures.py

struct Model {
    gguf_context * file;
    const char * left_out;
};

void fill(ggml_tensor * tensor, void * of) {
    const std::string name = tensor->name;
    std::mt19937 random(std::hash<std::string>{}(name));
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> values(ggml_nelements(tensor));
    const bool norm = name.find("norm.weight") != name.npos;
    for (float & value : values) {
        value = normal(random) + float(norm);
    }
    ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
    const auto & model = *static_cast<Model *>(of);
    const bool scale = name.size() > 5 && name.compare(name.size() - 5, 5, "scale") == 0;
    const bool twice = gguf_find_tensor(model.file, name.c_str()) >= 0;  // a matrix that is the output's too
    if (!twice && !scale && !(model.left_out && name.find(model.left_out) != name.npos)) {
        gguf_add_tensor(model.file, tensor);
    }
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 3 && argc != 4) {
        std::fprintf(stderr, "fill-model METADATA.gguf MODEL.gguf [PART]\n");
        return 2;
    }
    gguf_context * metadata = gguf_init_from_file(argv[1], {/*no_alloc=*/true, /*ctx=*/nullptr});
    if (!metadata) {
        return 1;
    }
    Model filled = {gguf_init_empty(), argc == 4 ? argv[3] : nullptr};
    gguf_set_kv(filled.file, metadata);
    ggml_backend_load_all();
    llama_model_params params = llama_model_default_params();
    params.progress_callback = [](float, void *) { return true; };
    // The model stays until the process ends: the file's tensors are its own.
    if (!llama_model_init_from_user(metadata, fill, &filled, params)) {
        return 1;
    }
    return gguf_write_to_file(filled.file, argv[2], /*only_meta=*/false) ? 0 : 1;
}
