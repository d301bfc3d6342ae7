// Checks and conversions of arrays that several bindings share.
#pragma once

#include <pybind11/numpy.h>

#include <algorithm>

#include "kernels/block.h"

namespace pyquant::bindings {

template <class T>
using Array = pybind11::array_t<T, pybind11::array::c_style>;

inline void copy_table(const Array<int8_t> & from, kernels::Table & table) {
    if (from.size() != 16) {
        throw pybind11::value_error("table: expected shape (16,)");
    }
    std::copy_n(from.data(), 16, table);
}

template <class Block>
int64_t whole_blocks(const Array<uint8_t> & blocks) {
    if (blocks.size() % pybind11::ssize_t(sizeof(Block)) != 0) {
        throw pybind11::value_error("blocks: expected whole blocks");
    }
    return blocks.size() / pybind11::ssize_t(sizeof(Block));
}

}  // namespace pyquant::bindings
