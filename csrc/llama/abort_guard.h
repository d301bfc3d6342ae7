// GGML's assertions as exceptions: what a damaged file or an unknown case breaks is an error, not the end of
// the process.
#pragma once

namespace pyquant::in_llama {

// While one lives, a failed assertion of GGML or llama.cpp in this thread throws std::runtime_error, whose
// text is the assertion and its place. In other threads, and in what several threads compute together, it
// ends the process, as ever.
class AbortGuard {
public:
    AbortGuard();
    ~AbortGuard();
    AbortGuard(const AbortGuard &) = delete;
    AbortGuard & operator=(const AbortGuard &) = delete;
};

}  // namespace pyquant::in_llama
