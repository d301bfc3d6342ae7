#include "llama/abort_guard.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ggml.h"
#include "ggml/hook.h"

namespace pyquant::in_llama {

namespace {

thread_local int guards = 0;
std::mutex mutex;
std::vector<const std::string *> in_progress;  // of the guards that live and say what is done, of all threads

void say(const std::string & text) {
    std::fprintf(stderr, "%s\n", text.c_str());
}

std::atomic<void (*)(const std::string &)> say_and_end = say;

// No exception may leave a thread's share of what several compute: the others would wait for it for ever.
thread_local bool is_sharing = false;

void end(const std::string & text) {
    // One of the threads that fail together says it, and the others wait for the end.
    static std::atomic_flag said = ATOMIC_FLAG_INIT;
    while (said.test_and_set()) {
        pause();
    }
    std::string doing = "llama.cpp";
    {
        const std::lock_guard<std::mutex> lock(mutex);
        doing = in_progress.empty() ? doing : *in_progress.back();
    }
    say_and_end.load()(doing + ": " + text);
}

// ggml.c and ggml-quants.c are compiled with -fexceptions, so that this may leave them.
void on_abort(const char * message) {
    std::string text = message;  // FILE:LINE: WHAT
    text.erase(0, text.rfind('/', text.find(':')) + 1);
    if (guards > 0 && !is_sharing) {
        throw std::runtime_error(text);
    }
    end(text + "; a file of another type may run, and `pyquant info` prints what a report needs");
}

// llama.cpp reads what a sequence has from a device in a destructor, and one that is lost throws there.
void on_terminate() {
    try {
        if (const auto failure = std::current_exception()) {
            std::rethrow_exception(failure);
        }
    } catch (const std::exception & failure) {
        end(failure.what());
    } catch (...) {
    }
    std::abort();
}

}  // namespace

AbortGuard::AbortGuard(std::string doing) : doing_(std::move(doing)) {
    static std::once_flag once;
    std::call_once(once, [] {
        ggml_set_abort_callback(on_abort);
        std::set_terminate(on_terminate);
    });
    ++guards;
    if (!doing_.empty()) {
        const std::lock_guard<std::mutex> lock(mutex);
        in_progress.push_back(&doing_);
    }
}

AbortGuard::~AbortGuard() {
    --guards;
    if (!doing_.empty()) {
        const std::lock_guard<std::mutex> lock(mutex);
        in_progress.erase(std::remove(in_progress.begin(), in_progress.end(), &doing_), in_progress.end());
    }
}

void set_say_and_end(void (*function)(const std::string & text)) {
    say_and_end = function;
}

}  // namespace pyquant::in_llama

void pyquant_set_sharing(bool sharing) {
    pyquant::in_llama::is_sharing = sharing;
}
