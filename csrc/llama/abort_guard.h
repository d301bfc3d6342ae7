// GGML's assertions as exceptions: what a damaged file or an unknown case breaks is an error, not the end of
// the process.
#pragma once

#include <string>

namespace pyquant::in_llama {

// While one lives, a failed assertion of GGML or llama.cpp in this thread throws std::runtime_error, whose
// text is the assertion and its place. In other threads, and in what several threads compute together, it
// ends the process, by `say_and_end`; so does an exception that nobody can catch, as of a destructor.
class AbortGuard {
public:
    // doing: what is said before the assertion then, such as "MODEL: llama.cpp cannot run it".
    explicit AbortGuard(std::string doing = {});
    ~AbortGuard();
    AbortGuard(const AbortGuard &) = delete;
    AbortGuard & operator=(const AbortGuard &) = delete;

private:
    const std::string doing_;
};

// Lets a function end the process, in place of an abort behind a line on standard error. It may be called
// in any thread, once. The text: what was being done, then the assertion and its place.
void set_say_and_end(void (*function)(const std::string & text));

}  // namespace pyquant::in_llama
