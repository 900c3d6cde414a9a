"""How the kernel was built; the test run prints it."""

cdef extern from *:
    """
    #if defined(__clang__)
    #define KARROW_COMPILER "clang " __clang_version__
    #elif defined(__GNUC__)
    #define KARROW_COMPILER "gcc " __VERSION__
    #else
    #define KARROW_COMPILER "unknown compiler"
    #endif
    #if defined(__SANITIZE_ADDRESS__)
    #define KARROW_SANITIZER ", AddressSanitizer"
    #else
    #define KARROW_SANITIZER ""
    #endif
    static const char* karrow_compiler = KARROW_COMPILER KARROW_SANITIZER;
    """
    const char* karrow_compiler
    long CYTHON_HEX_VERSION


def build_info():
    """The compilers behind the running kernel, as one line."""
    version = ".".join(str(CYTHON_HEX_VERSION >> shift & 0xFF) for shift in (24, 16, 8))
    return f"Cython {version}, {karrow_compiler.decode()}"
