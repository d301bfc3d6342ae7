// Ctrl-C while llama.cpp computes. A handler of Python's runs between two steps of Python, of which there are
// none then, so the signal is noted here. llama.cpp asks between any two operations of a model's graph, some
// hundreds of times for a token: a question that goes through Python takes some percent of a small model's
// time.
#include <pybind11/pybind11.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <string>

#include "bindings/register.h"

namespace pyquant::bindings {

namespace py = pybind11;

namespace {

class Interrupt {
public:
    // A signal is noted from now on, and does nothing else.
    void begin(int signal) {
        struct sigaction action{};
        action.sa_handler = note;
        action.sa_flags = SA_RESTART;  // what llama.cpp reads from a file goes on
        sigemptyset(&action.sa_mask);
        outer_ = current.exchange(this);
        if (sigaction(signal, &action, &before_) != 0) {
            current = outer_;
            throw py::value_error("no signal that can be noted: " + std::to_string(signal));
        }
        signal_ = signal;
    }

    // What the signal did before, it does again. Says whether it came.
    bool end() {
        sigaction(signal_, &before_, nullptr);
        current = outer_;
        return heard_.exchange(false);
    }

    bool heard() const { return heard_; }

    // What ggml_abort_callback calls.
    static bool wants_to_stop(void * self) { return static_cast<const Interrupt *>(self)->heard(); }

private:
    static void note(int) {
        if (Interrupt * its = current) {
            its->heard_ = true;
        }
    }

    static std::atomic<Interrupt *> current;  // the one that is between begin and end

    std::atomic<bool> heard_{false};
    Interrupt * outer_ = nullptr;
    struct sigaction before_{};
    int signal_ = 0;
};

std::atomic<Interrupt *> Interrupt::current{nullptr};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<Interrupt *>::is_always_lock_free);

}  // namespace

void register_interrupt(py::module_ & module) {
    py::class_<Interrupt>(module, "Interrupt")
        .def(py::init<>())
        .def("begin", &Interrupt::begin, py::arg("signal"))
        .def("end", &Interrupt::end)
        .def_property_readonly("heard", &Interrupt::heard)
        .def_property_readonly("address",
                               [](const Interrupt & self) { return reinterpret_cast<uintptr_t>(&self); })
        .def_property_readonly_static("callback", [](const py::object &) {
            return reinterpret_cast<uintptr_t>(&Interrupt::wants_to_stop);
        });
}

}  // namespace pyquant::bindings
