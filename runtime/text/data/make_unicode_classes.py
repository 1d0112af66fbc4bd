#!/usr/bin/env python3
"""Writes unicode_class_runs.cpp from tests/golden/text/unicode_classes.json.

Run from the root of the source tree: python3 runtime/text/data/make_unicode_classes.py
"""
import json
import pathlib

root = pathlib.Path(__file__).resolve().parents[3]
order = "OCRNLPS"  # char_class in unicode_class.hpp
runs = json.loads((root / "tests/golden/text/unicode_classes.json").read_text())["runs"]

packed, next_first, last_class = [], 0, None


def add(first, letter):
    global last_class
    if letter != last_class:
        packed.append(first << 3 | order.index(letter))
        last_class = letter


for first, last, letter in runs:
    if first > next_first:  # surrogates are in no run
        add(next_first, "O")
    add(first, letter)
    next_first = last + 1
if next_first < 0x110000:
    add(next_first, "O")

lines, line = [], " "
for value in packed:
    word = f" {value},"
    if len(line) + len(word) > 100:
        lines.append(line)
        line = " "
    line += word
lines.append(line)

(root / "runtime/text/data/unicode_class_runs.cpp").write_text(
    "// Made by make_unicode_classes.py (Unicode 16.0.0); do not edit.\n"
    '#include "runtime/text/unicode_class.hpp"\n\n'
    "namespace deepinfer {\n\nnamespace {\n\n"
    "// clang-format off\n"
    f"constexpr std::uint32_t runs[{len(packed)}] = {{\n" + "\n".join(lines) + "\n};\n"
    "// clang-format on\n\n"
    "}  // namespace\n\n"
    "constinit const std::span<const std::uint32_t> unicode_class_runs(runs);\n\n"
    "}  // namespace deepinfer\n")
print(f"{len(packed)} runs")
