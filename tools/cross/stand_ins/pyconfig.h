/* Instead of the pyconfig.h of a Python for macOS or Windows, 64 bits: what its other headers and csrc/ depend on. */

#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_FLOAT 4
#define SIZEOF_DOUBLE 8
#define SIZEOF_TIME_T 8
#define SIZEOF_PID_T 4

#ifdef _WIN32
#include <io.h>
#include <limits.h>
#include <stdio.h>
#define MS_WINDOWS
#define MS_WIN32
#define MS_WIN64
#define COMPILER "[a name that Windows' own pyconfig.h takes]"
#define SIZEOF_LONG 4
#define SIZEOF_WCHAR_T 2
#define HAVE_PY_SSIZE_T 1
typedef long long Py_ssize_t;
#define PY_SSIZE_T_MAX LLONG_MAX
#define HAVE_DECLSPEC_DLL
#define Py_ENABLE_SHARED 1
#else
#define SIZEOF_LONG 8
#define SIZEOF_WCHAR_T 4
#define HAVE_SSIZE_T 1
#endif
