#!/usr/bin/env python3
"""Writes what the smallest types of GGUF need: their tables of points, and blocks with what they stand for.

    pip install gguf safetensors numpy && scripts/lattice.py

The tables are part of the format; they are read out of the package `gguf` (MIT, ggml-org/llama.cpp) and written to
src/kernel/block/points.rs, a point in sixteen bits. Golden numbers are what that package decodes blocks of random bytes
to, written to tests/fixtures/quantised/lattice.gguf and lattice_golden.safetensors.
"""

import pathlib

import gguf
import numpy
from gguf import GGMLQuantizationType as Type
from gguf import quants
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = [("IQ2_XXS", 2), ("IQ2_XS", 2), ("IQ2_S", 2), ("IQ3_XXS", 3), ("IQ3_S", 3), ("IQ1_S", 2)]
TYPES = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
BLOCKS = 6


def table(name, bits):
    kind = getattr(quants, name)
    kind.init_grid()
    places = {value: place for place, value in enumerate(kind.grid_map)}
    points = kind.grid.reshape(kind.grid_shape)
    codes = [sum(places[int(value)] << (bits * at) for at, value in enumerate(point)) for point in points]
    rows = [codes[at : at + 16] for at in range(0, len(codes), 16)]
    lines = ["    " + ", ".join(f"0x{code:04x}" for code in row) + "," for row in rows]
    length, width = kind.grid_shape
    head = f"/// `{name}`: {length} points of {width} coordinates, {bits} bits each, the lowest first."
    return "\n".join([head, f"pub(super) static {name}: [u16; {length}] = [", *lines, "];"])


def write_tables():
    head = '''//! The points that blocks of the smallest types choose from. Made by `scripts/lattice.py`, never edited.
//!
//! # Source
//! `ggml-org/llama.cpp gguf-py/gguf/quants.py`, `grid_hex`, MIT: part of the format.

'''
    text = head + "\n\n".join(f"#[rustfmt::skip]\n{table(*entry)}".replace("#[rustfmt::skip]\n///", "///", 1)
                              for entry in TABLES) + "\n"
    text = text.replace("\npub(super)", "\n#[rustfmt::skip]\npub(super)")
    (ROOT / "src/kernel/block/points.rs").write_text(text)


def blocks(kind, random):
    """Random bytes whose numbers are finite: scales in half precision are sometimes none."""
    numbers, length = gguf.GGML_QUANT_SIZES[kind]
    found = []
    while len(found) < BLOCKS:
        block = random.integers(0, 256, length, dtype=numpy.uint8)
        decoded = quants.dequantize(block, kind)
        if numpy.isfinite(decoded).all() and numpy.abs(decoded).max() < 1e4:
            found.append((block, decoded))
    return numpy.concatenate([block for block, _ in found]), numpy.concatenate([decoded for _, decoded in found])


def write_golden():
    random = numpy.random.default_rng(20261201)
    folder = ROOT / "tests/fixtures/quantised"
    writer = gguf.GGUFWriter(folder / "lattice.gguf", "flux")
    golden = {}
    for name in TYPES:
        kind = Type[name]
        numbers, length = gguf.GGML_QUANT_SIZES[kind]
        bytes, decoded = blocks(kind, random)
        writer.add_tensor(name, bytes.reshape(2, -1), raw_dtype=kind)
        golden[name] = decoded.reshape(2, -1).astype(numpy.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(golden, folder / "lattice_golden.safetensors")


write_tables()
write_golden()
