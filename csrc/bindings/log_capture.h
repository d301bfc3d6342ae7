// Keeps what llama.cpp and GGML say during a call: the reason for a refusal.
#pragma once

#include <string>

#include "llama.h"

namespace pyquant::bindings {

class LogCapture {
public:
    LogCapture() {
        llama_log_get(&callback_, &data_);
        const auto append = [](ggml_log_level, const char * text, void * self) {
            static_cast<LogCapture *>(self)->text.append(text);
        };
        llama_log_set(append, this);
    }
    ~LogCapture() { llama_log_set(callback_, data_); }
    LogCapture(const LogCapture &) = delete;
    LogCapture & operator=(const LogCapture &) = delete;

    std::string text;

private:
    ggml_log_callback callback_;
    void * data_;
};

}  // namespace pyquant::bindings
