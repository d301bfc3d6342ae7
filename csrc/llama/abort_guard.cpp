#include "llama/abort_guard.h"

#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <string>

#include "ggml.h"
#include "ggml/hook.h"

namespace pyquant::in_llama {

namespace {

thread_local int guards = 0;
// No exception may leave a thread's share of what several compute: the others would wait for it for ever.
thread_local bool is_sharing = false;
ggml_abort_callback_t before = nullptr;

// ggml.c and ggml-quants.c are compiled with -fexceptions, so that this may leave them.
void on_abort(const char * message) {
    if (guards > 0 && !is_sharing) {
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

void pyquant_set_sharing(bool sharing) {
    pyquant::in_llama::is_sharing = sharing;
}
