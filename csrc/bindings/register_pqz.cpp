// Frames of entropy-coded files, packed and unpacked. pyquant.models.pqz says what else is in a file.
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/progress.h"
#include "bindings/register.h"
#include "pqz/transfer.h"

namespace pyquant::bindings {

namespace py = pybind11;
using namespace pqz;

namespace {

Layout make_layout(const std::vector<std::pair<int, Content>> & fields) {
    Layout layout;
    for (const auto & [length, content] : fields) {
        if (length < 1 || length > 1 << 16) {
            throw py::value_error("a field has 1..65536 bytes");
        }
        layout.fields.push_back({length, content});
    }
    if (fields.empty() || fields.size() > 64) {
        throw py::value_error("a block has 1..64 fields");
    }
    return layout;
}

void check_frames(const std::vector<Frame> & frames, const std::vector<Layout> & layouts) {
    for (const Frame & frame : frames) {
        if (frame.part >= layouts.size()) {
            throw py::value_error("a frame is of a part without a layout");
        }
        if (frame.begin < 0 || frame.n_bytes < 0 || frame.coded_begin < 0 || frame.coded_bytes < 0 ||
            frame.n_bytes % layouts[frame.part].block_bytes() != 0) {
            throw py::value_error("a frame has whole blocks, in a file");
        }
    }
}

// Returns the frames with their places and, for each part, (counts (n_fields, 256), coded bytes of each).
py::tuple pack(int in_file, std::vector<Frame> frames, const std::vector<Layout> & layouts, int out_file,
               int64_t out_begin, int n_threads, const Progress & progress) {
    check_frames(frames, layouts);
    const auto tick = tick_of(progress);
    std::vector<std::vector<FieldUse>> uses;
    {
        const py::gil_scoped_release release;
        uses = pack_frames(in_file, frames, layouts, out_file, out_begin, n_threads, tick);
    }
    py::list parts;
    for (const std::vector<FieldUse> & use : uses) {
        py::array_t<uint64_t> counts({py::ssize_t(use.size()), py::ssize_t(256)});
        std::vector<uint64_t> coded;
        for (size_t field = 0; field < use.size(); ++field) {
            std::copy_n(use[field].counts, 256, counts.mutable_data(py::ssize_t(field), 0));
            coded.push_back(use[field].coded_bytes);
        }
        parts.append(py::make_tuple(counts, coded));
    }
    return py::make_tuple(frames, parts);
}

void unpack(int in_file, const std::vector<Frame> & frames, const std::vector<Layout> & layouts, int out_file,
            int n_threads, const Progress & progress) {
    check_frames(frames, layouts);
    const auto tick = tick_of(progress);
    const py::gil_scoped_release release;
    unpack_frames(in_file, frames, layouts, out_file, n_threads, tick);
}

std::string_view view(const py::bytes & data) {
    return std::string_view(data);
}

const uint8_t * bytes_of(std::string_view data) {
    return reinterpret_cast<const uint8_t *>(data.data());
}

py::bytes encode(const Layout & layout, const py::bytes & data) {
    const std::string_view bytes = view(data);
    if (bytes.size() % size_t(layout.block_bytes()) != 0) {
        throw py::value_error("expected whole blocks");
    }
    std::vector<FieldUse> use(layout.fields.size());
    const Bytes coded = FrameEncoder().encode(layout, bytes_of(bytes), bytes.size(), use);
    return py::bytes(reinterpret_cast<const char *>(coded.data()), coded.size());
}

py::bytes decode(const Layout & layout, const py::bytes & coded, size_t n) {
    if (n % size_t(layout.block_bytes()) != 0) {
        throw py::value_error("expected whole blocks");
    }
    const std::string_view bytes = view(coded);
    std::string data(n, '\0');
    FrameDecoder().decode(layout, bytes_of(bytes), bytes.size(), reinterpret_cast<uint8_t *>(data.data()), n);
    return py::bytes(data);
}

// Checksum of anything whose bytes stand side by side in memory.
uint64_t checksum_of(const py::buffer & data) {
    Py_buffer bytes;
    if (PyObject_GetBuffer(data.ptr(), &bytes, PyBUF_SIMPLE) != 0) {
        throw py::error_already_set();
    }
    const uint64_t result = checksum(static_cast<const uint8_t *>(bytes.buf), size_t(bytes.len));
    PyBuffer_Release(&bytes);
    return result;
}

}  // namespace

void register_pqz(py::module_ & module) {
    static py::handle frame_error = py::exception<BadFrame>(module, "FrameError", PyExc_ValueError).release();
    frame_error.attr("frame") = -1;  // its number
    py::register_exception_translator([](std::exception_ptr raised) {
        try {
            std::rethrow_exception(raised);
        } catch (const BadFrame & bad) {
            const py::object error = frame_error(bad.what());
            error.attr("frame") = bad.frame;
            PyErr_SetObject(frame_error.ptr(), error.ptr());
        }
    });
    py::register_exception<Damaged>(module, "DamagedError", PyExc_ValueError);

    py::enum_<Content>(module, "Content")
        .value("codes", Content::codes)
        .value("numbers", Content::numbers)
        .value("text", Content::text);
    py::class_<Layout>(module, "Layout")
        .def(py::init(&make_layout), py::arg("fields"))
        .def_property_readonly("block_bytes", &Layout::block_bytes);
    py::class_<Frame>(module, "Frame")
        .def(py::init([](int64_t begin, int64_t n_bytes, size_t part, int64_t coded_begin,
                         int64_t coded_bytes, uint64_t checksum) {
                 return Frame{begin, n_bytes, part, coded_begin, coded_bytes, checksum};
             }),
             py::arg("begin"), py::arg("n_bytes"), py::arg("part"), py::arg("coded_begin") = 0,
             py::arg("coded_bytes") = 0, py::arg("checksum") = 0)
        .def_readonly("begin", &Frame::begin)
        .def_readonly("n_bytes", &Frame::n_bytes)
        .def_readonly("part", &Frame::part)
        .def_readonly("coded_begin", &Frame::coded_begin)
        .def_readonly("coded_bytes", &Frame::coded_bytes)
        .def_readonly("checksum", &Frame::checksum);

    module.def("pack_frames", &pack, py::kw_only(), py::arg("in_file"), py::arg("frames"), py::arg("layouts"),
               py::arg("out_file"), py::arg("out_begin"), py::arg("n_threads") = 1,
               py::arg("progress") = py::none());
    module.def("unpack_frames", &unpack, py::kw_only(), py::arg("in_file"), py::arg("frames"),
               py::arg("layouts"), py::arg("out_file"), py::arg("n_threads") = 1,
               py::arg("progress") = py::none());
    module.def("encode_frame", &encode, py::arg("layout"), py::arg("data"));
    module.def("decode_frame", &decode, py::arg("layout"), py::arg("coded"), py::arg("n_bytes"));
    module.def("checksum", &checksum_of, py::arg("data"));
    module.attr("ZSTD_VERSION") = ZSTD_versionString();
}

}  // namespace pyquant::bindings
