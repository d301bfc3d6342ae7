#include "llama/abort_guard.h"

#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <string>

#include "ggml.h"

// Part of the OpenMP that makes GGML's threads; null where another library makes them.
extern "C" [[gnu::weak]] int omp_get_level();

namespace pyquant::in_llama {

namespace {

thread_local int guards = 0;
ggml_abort_callback_t before = nullptr;

// No exception may leave a thread's share of what several compute: the others would wait for it for ever.
bool is_shared() {
    return omp_get_level != nullptr && omp_get_level() > 0;
}

// ggml.c and ggml-quants.c are compiled with -fexceptions, so that this may leave them.
void on_abort(const char * message) {
    if (guards > 0 && !is_shared()) {
        const std::string text = message;  // FILE:LINE: WHAT
        throw std::runtime_error(text.substr(text.rfind('/', text.find(':')) + 1));
    }
    if (before) {
        before(message);
    } else {
        std::fprintf(stderr, "%s\n", message);
    }
}

}  // namespace

AbortGuard::AbortGuard() {
    static std::once_flag once;
    std::call_once(once, [] { before = ggml_set_abort_callback(on_abort); });
    ++guards;
}

AbortGuard::~AbortGuard() {
    --guards;
}

}  // namespace pyquant::in_llama
