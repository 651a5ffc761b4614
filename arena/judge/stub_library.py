"""Write a shared object that has another one's symbols, and in which every function ends the process with one sentence.

Names, versions and hash tables are copied, so that whatever links to the real library loads with the stub. Of its code, its data
and its constructors the stub has nothing. Architectures: x86-64 and aarch64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

STATUS = 86
"""Exit status of a process that called a function of a stub. No shell, signal or Python uses it."""
LONGEST_NAME = 1000
"""Characters of a function's name that its sentence shows."""

# The ELF format; its own names for the constants are in the comments.
HEADER, SEGMENT, SECTION = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ"), struct.Struct("<IIQQQQIIQQ")
SYMBOL, DYNAMIC = struct.Struct("<IBBHQQ"), struct.Struct("<qQ")
IDENT = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian, version 1
SHARED_OBJECT = 3  # ET_DYN
PROGBITS, STRTAB, DYNAMIC_TABLE, NOBITS, DYNSYM = 1, 3, 6, 8, 11  # SHT_*
ALLOC, WRITABLE = 2, 3  # SHF_ALLOC; with SHF_WRITE
EXECUTABLE, PER_THREAD = 6, 0x403  # SHF_ALLOC with SHF_EXECINSTR; with SHF_WRITE and SHF_TLS
STRING_BYTES, SYMBOL_BYTES, SONAME, VERSIONS = 10, 11, 14, 0x6FFFFFFD  # DT_STRSZ, DT_SYMENT, DT_SONAME, DT_VERDEFNUM
LOAD, DYNAMIC_SEGMENT, THREAD_SEGMENT, STACK = 1, 2, 7, 0x6474E551  # PT_*
READ_WRITE, READ_EXECUTE = 6, 5  # PF_*
UNDEFINED, ABSOLUTE = 0, 0xFFF1  # SHN_*
WEAK, FUNCTION, THREAD_LOCAL, INDIRECT_FUNCTION = 2, 2, 6, 10  # STB_WEAK; STT_FUNC, STT_TLS, STT_GNU_IFUNC
PAGE = 1 << 16
"""The largest page of these machines, in bytes."""
ALIGNMENT = 64
"""Of every section and every data symbol, in bytes."""


class Kept(NamedTuple):
    """A table of the real library that the stub keeps."""

    name: str
    tag: int  # DT_*
    link: str  # the table that it refers to


KEPT = {
    0x6FFFFFF6: Kept(".gnu.hash", 0x6FFFFEF5, ".dynsym"),
    5: Kept(".hash", 4, ".dynsym"),
    DYNSYM: Kept(".dynsym", 6, ".dynstr"),
    STRTAB: Kept(".dynstr", 5, ""),
    0x6FFFFFFF: Kept(".gnu.version", 0x6FFFFFF0, ".dynsym"),
    0x6FFFFFFD: Kept(".gnu.version_d", 0x6FFFFFFC, ".dynstr"),
}
"""By the type of its section (SHT_*)."""


class Section(NamedTuple):
    """A section of the stub, its fields as in a section's header."""

    type: int
    flags: int
    data: bytes  # empty where the section takes no room in the file
    link: str = ""
    info: int = 0
    entry_bytes: int = 0
    memory_bytes: int = 0  # of such a section


class Symbol(NamedTuple):
    """An entry of the table of symbols, its fields in the file's order."""

    name: int
    info: int
    other: int
    section: str | int
    """A section of the stub by name, or a number that stays."""
    value: int
    """The place in that section, in bytes."""
    size: int


class Bodies(NamedTuple):
    """What stands behind the symbols: code, and room for the data of the process and of each thread, in bytes."""

    symbols: tuple[Symbol, ...]
    versions: bytes
    code: bytes
    data_bytes: int
    thread_bytes: int


class Machine(NamedTuple):
    """The code of one architecture."""

    function: Callable[[int, int], bytes]
    """(bytes of the sentence, distance to `end` in bytes) -> code that points to the sentence behind it and jumps to `end`."""
    end: bytes
    """write(2, sentence, bytes), then exit_group(STATUS)."""


def x86_64(size: int, distance: int) -> bytes:
    """lea rsi, [rip + 10]; mov edx, size; jmp end."""
    return struct.pack("<3siBIBi", b"\x48\x8d\x35", 10, 0xBA, size, 0xE9, distance - 17)


def aarch64(size: int, distance: int) -> bytes:
    """adr x1, . + 16; movz w2, size; b end; nop."""
    return struct.pack("<4I", 0x10000081, 0x52800002 | size << 5, 0x14000000 | (distance - 8) >> 2 & 0x3FFFFFF, 0xD503201F)


MACHINES = {
    # mov edi, 2; mov eax, 1; syscall; mov edi, STATUS; mov eax, 231; syscall; ud2
    62: Machine(x86_64, struct.pack("<BIBIHBIBIHH", 0xBF, 2, 0xB8, 1, 0x050F, 0xBF, STATUS, 0xB8, 231, 0x050F, 0x0B0F)),
    # movz x0, 2; movz x8, 64; svc 0; movz x0, STATUS; movz x8, 94; svc 0; brk 0
    183: Machine(
        aarch64,
        struct.pack("<7I", 0xD2800040, 0xD2800808, 0xD4000001, 0xD2800000 | STATUS << 5, 0xD2800BC8, 0xD4000001, 0xD4200000),
    ),
}
"""By the architecture's number in an ELF header: EM_X86_64, EM_AARCH64."""


def stub(real: memoryview, library: str) -> bytes | None:
    """The stub of a shared object that belongs to `library`; None for a file that no program of these machines can load."""
    if len(real) < HEADER.size or real[: len(IDENT)] != IDENT:
        return None
    header = HEADER.unpack_from(real)
    tables, soname = _tables(real, header[6], header[12])
    if header[1] != SHARED_OBJECT or header[2] not in MACHINES or ".dynsym" not in tables:
        return None
    return _written(header[2], tables, soname, _bodies(tables, MACHINES[header[2]], library))


def _tables(real: memoryview, offset: int, count: int) -> tuple[dict[str, Section], int | None]:
    """The tables to keep, and where the library's own name stands in its strings."""
    headers = [SECTION.unpack_from(real, offset + number * SECTION.size) for number in range(count)]
    found = {header[1]: header for header in headers if header[1] in KEPT and header[1] != STRTAB}
    if DYNSYM in found:
        found[STRTAB] = headers[found[DYNSYM][6]]
    tables = {}
    for kind, kept in KEPT.items():
        if kind in found:
            _, _, _, _, start, size, _, info, _, entry_bytes = found[kind]
            tables[kept.name] = Section(kind, ALLOC, bytes(real[start : start + size]), kept.link, info, entry_bytes)
    for header in headers:
        if header[1] == DYNAMIC_TABLE:
            for tag, value in DYNAMIC.iter_unpack(real[header[4] : header[4] + header[5]]):
                if tag == SONAME:
                    return tables, value
    return tables, None


def _bodies(tables: dict[str, Section], machine: Machine, library: str) -> Bodies:
    """Code for every function, and room for every other symbol that the library defines."""
    code, sizes, symbols = bytearray(machine.end), {".bss": 0, ".tbss": 0}, []
    names, versions = tables[".dynstr"].data, bytearray(tables[".gnu.version"].data if ".gnu.version" in tables else b"")
    for number, symbol in enumerate(map(Symbol._make, SYMBOL.iter_unpack(tables[".dynsym"].data))):
        kind, binding = symbol.info & 15, symbol.info >> 4
        if symbol.section == UNDEFINED:  # what the real library takes from others, the stub does not need
            symbol = symbol._replace(info=WEAK << 4 | kind if binding else symbol.info, value=0)
            versions[2 * number : 2 * number + 2] = bytes(2) if versions else b""
        elif kind in (FUNCTION, INDIRECT_FUNCTION):
            code += bytes(_aligned(len(code)) - len(code))
            called = names[symbol.name : names.index(b"\0", symbol.name)].decode(errors="replace")[:LONGEST_NAME]
            sentence = f"arena: this problem excludes {library}; solution.py called {called}\n".encode()
            body = machine.function(len(sentence), -len(code)) + sentence
            symbol = Symbol(symbol.name, binding << 4 | FUNCTION, symbol.other, ".text", len(code), len(body))
            code += body
        elif symbol.section != ABSOLUTE:  # the names of versions
            section = ".tbss" if kind == THREAD_LOCAL else ".bss"
            symbol = symbol._replace(section=section, value=sizes[section])
            sizes[section] += _aligned(symbol.size)
        symbols.append(symbol)
    return Bodies(tuple(symbols), bytes(versions), bytes(code), sizes[".bss"], sizes[".tbss"])


def _written(machine: int, tables: dict[str, Section], soname: int | None, bodies: Bodies) -> bytes:
    """The file. An address is an offset in it; what is writable lies a page further."""
    entries = [(STRING_BYTES, len(tables[".dynstr"].data)), (SYMBOL_BYTES, SYMBOL.size)]
    entries += [(SONAME, soname)] if soname is not None else []
    entries += [(VERSIONS, tables[".gnu.version_d"].info)] if ".gnu.version_d" in tables else []
    dynamic = bytes((len(tables) + len(entries) + 1) * DYNAMIC.size)
    names = "\0".join(("", *tables, ".text", ".dynamic", ".shstrtab", ".tbss", ".bss", "")).encode()
    sections = tables | {
        ".text": Section(PROGBITS, EXECUTABLE, bodies.code),
        ".shstrtab": Section(STRTAB, 0, names),
        ".dynamic": Section(DYNAMIC_TABLE, WRITABLE, dynamic, ".dynstr", 0, DYNAMIC.size),
        ".tbss": Section(NOBITS, PER_THREAD, b"", memory_bytes=bodies.thread_bytes),
        ".bss": Section(NOBITS, WRITABLE, b"", memory_bytes=bodies.data_bytes),
    }
    offsets, end = dict[str, int](), _aligned(HEADER.size + 5 * SEGMENT.size)
    for name, section in sections.items():
        offsets[name] = end
        end = _aligned(end + len(section.data))
    addresses = {name: offsets[name] + (PAGE if section.flags & 1 else 0) for name, section in sections.items()}
    numbers = {name: number for number, name in enumerate(("", *sections))}
    tags = [(kept.tag, addresses[kept.name]) for kept in KEPT.values() if kept.name in tables]
    contents = {name: section.data for name, section in sections.items()} | {
        ".dynsym": b"".join(_symbol(symbol, numbers, addresses) for symbol in bodies.symbols),
        ".dynamic": b"".join(DYNAMIC.pack(*entry) for entry in (*tags, *entries, (0, 0))),
        ".gnu.version": bodies.versions,
    }
    file = bytearray(end)
    for name, offset in offsets.items():
        file[offset : offset + len(contents[name])] = contents[name]
    segments = _segments(sections, offsets, addresses)
    sizes = (HEADER.size, SEGMENT.size, len(segments), SECTION.size, len(numbers), numbers[".shstrtab"])
    header = HEADER.pack(IDENT, SHARED_OBJECT, machine, 1, 0, HEADER.size, end, 0, *sizes)
    start = header + b"".join(segments)
    file[: len(start)] = start
    file += bytes(SECTION.size)
    for name, section in sections.items():
        place = (addresses[name] if section.flags else 0, offsets[name], len(section.data) or section.memory_bytes)
        more = (numbers[section.link], section.info, ALIGNMENT, section.entry_bytes)
        file += SECTION.pack(names.index(f"\0{name}\0".encode()) + 1, section.type, section.flags, *place, *more)
    return bytes(file)


def _symbol(symbol: Symbol, numbers: dict[str, int], addresses: dict[str, int]) -> bytes:
    if isinstance(symbol.section, int):
        return SYMBOL.pack(*symbol)
    start = 0 if symbol.section == ".tbss" else addresses[symbol.section]
    return SYMBOL.pack(*symbol[:3], numbers[symbol.section], start + symbol.value, symbol.size)


def _segments(sections: dict[str, Section], offsets: dict[str, int], addresses: dict[str, int]) -> list[bytes]:
    """What the loader maps: names and code, then what is writable."""
    fixed, place = offsets[".dynamic"], (offsets[".dynamic"], addresses[".dynamic"], addresses[".dynamic"])
    dynamic, threads = len(sections[".dynamic"].data), sections[".tbss"].memory_bytes
    writable = addresses[".bss"] + sections[".bss"].memory_bytes - addresses[".dynamic"]
    rows = (
        (LOAD, READ_EXECUTE, 0, 0, 0, fixed, fixed, PAGE),
        (LOAD, READ_WRITE, *place, dynamic, writable, PAGE),
        (DYNAMIC_SEGMENT, READ_WRITE, *place, dynamic, dynamic, ALIGNMENT),
        (THREAD_SEGMENT, READ_WRITE, offsets[".tbss"], addresses[".tbss"], addresses[".tbss"], 0, threads, ALIGNMENT),
        (STACK, READ_WRITE, 0, 0, 0, 0, 0, 16),
    )
    return [SEGMENT.pack(*row) for row in rows]


def _aligned(size: int) -> int:
    return size + -size % ALIGNMENT
