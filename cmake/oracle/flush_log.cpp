// llama.cpp's tools end without waiting for the thread that prints their log: the last lines, where
// perplexity stands, come only now and then. This waits for it.
#include "log.h"

namespace {

struct FlushAtExit {
    ~FlushAtExit() { common_log_flush(common_log_main()); }
};

const FlushAtExit at_exit;

}  // namespace
