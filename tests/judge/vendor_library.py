"""A small library like a vendor's, built with the C compiler: versions, data, data of each thread, a loud constructor."""

import subprocess

FATBIN = b"\x50\xed\x55\xba fatbin of a vendor"
"""Stands for a GPU program in the library: no sandbox may show it."""
SOURCE = """
#include <stdio.h>
const char vendorFatbin[] __attribute__((used)) = "\\x50\\xed\\x55\\xba fatbin of a vendor";
int vendorData = 7;
__thread int vendorThread = 3;
static void __attribute__((constructor)) load(void) { fputs("constructor\\n", stderr); }
static void __attribute__((destructor)) unload(void) { fputs("destructor\\n", stderr); }
__asm__(".symver vendorOld,vendorCreate@LIB_1");
__asm__(".symver vendorNew,vendorCreate@@LIB_2");
int vendorOld(void) { return 1; }
int vendorNew(void) { return 2; }
int vendorMultiply(int by) { return by * vendorData * vendorThread; }
static int chosen(void) { return 5; }
static void *choose(void) { return chosen; }
int vendorIndirect(void) __attribute__((ifunc("choose")));
__attribute__((weak)) int vendorWeak(void) { return 6; }
"""
VERSIONS = """
LIB_1 { global: vendorCreate; vendorMultiply; vendorData; vendorThread; vendorIndirect; vendorWeak; vendorFatbin; local: *; };
LIB_2 { global: vendorCreate; } LIB_1;
"""
PROGRAM = """
#include <stdio.h>
extern int vendorData;
extern __thread int vendorThread;
int vendorMultiply(int);
int vendorCreate(void);
int main(int count, char **names) {
    setvbuf(stdout, 0, _IONBF, 0);
    printf("loaded %d %d\\n", vendorData, vendorThread);
    if (count > 1) printf("multiplied %d\\n", vendorMultiply(2));
    if (count > 1) printf("created %d\\n", vendorCreate());
    return 0;
}
"""


def compiled(folder, *arguments, source):
    """Run the C compiler in a folder on this source."""
    subprocess.run(["gcc", *arguments, "-x", "c", "-"], cwd=folder, input=source, check=True, text=True, capture_output=True)


def build(folder, name="libcublas.so.12.8.4", soname="libcublas.so.12"):
    """The library's path."""
    (folder / "versions").write_text(VERSIONS)
    compiled(
        folder, "-shared", "-fPIC", "-O1", f"-Wl,-soname,{soname}", "-Wl,--version-script=versions", "-o", name, source=SOURCE
    )
    return folder / name


def build_program(folder, library, name="program"):
    """A program that is linked with the library; all its symbols are looked up when it starts."""
    source = folder / f"{name}.c"
    source.write_text(PROGRAM)
    subprocess.run(["gcc", source, library, "-Wl,-z,now", "-o", folder / name], check=True, capture_output=True)
    return folder / name
