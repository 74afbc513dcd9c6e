"""The names of generated code, and how those that a user chose become names that collide with nothing.

Example: the parameters `w`, `W` and `all` and the outputs `out` and `path` become

    P_W   P_W_2   P_ALL_0   O_OUT   O_PATH_0

because C libraries have macros P_ALL and O_PATH. A user's name always gets a prefix. If that gives a name of C, of C++,
of their libraries or of the rest of the generated code, it gets a number too. In comments a name is text, of ASCII
characters.
"""

import re
from collections.abc import Iterable, Sequence, Set

from codegen.ir.graph import Graph
from codegen.reroll.layout import GroupLayout

# What C, C++ and their libraries use, as far as a name with a prefix can be equal to it: with a _ inside.
RESERVED = re.compile(
    r"static_assert|thread_local|typeof_unqual|(const|static|dynamic|reinterpret)_cast|(and|not|or|xor)_eq|"
    r"co_(await|return|yield)|"
    r"\w+_t|"  # POSIX reserves them for types
    r"(aligned|atomic|at|call|clock|cnd|feature|kill|memory|mtx|offsetof|once|posix|pthread|quick|sched|sem|shm|sig|"
    r"sigset|thrd|timer|tss|va)_\w+|"
    r"(ATOMIC|BUS|CHAR|CLD|CLOCK|CLOCKS|DBL|DEC\d*|EXIT|FE|FILENAME|FLT|FOPEN|FP|FPE|HUGE|ILL|LC|LDBL|LLONG|LONG|MATH|"
    r"MB|ONCE|PATH|POSIX|PTHREAD|PTRDIFF|RAND|RTLD|SA|SCHAR|SEEK|SEGV|SHRT|SI|SIG|SIGEV|SIZE|SSIZE|TIME|TIMER|TMP|TRAP|"
    r"TSS|UCHAR|ULLONG|ULONG|USHRT|WCHAR|WINT|U?INT(\d+|_FAST\d+|_LEAST\d+|MAX|PTR)?)_\w+|"
    r"DECIMAL_DIG|L_(ctermid|cuserid|tmpnam)|P_tmpdir|TG_ARG|fd_(set|mask)|(sig)?jmp_buf|u_(char|int|long|short)|"
    r"(is|to|str|wcs|wctrans|wctype)\w*_(l|r)|\w+_(np|unlocked)|f(max|min)imum_(mag|num)\w*|lgamma\w*_r|timespec_get\w*|"
    r"(asctime|ctime|gmtime|localtime|[a-z]+48|q?[ef]cvt|getdate|getlogin|initstate|ptsname|qsort|s?random|setstate|tmpnam|"
    r"ttyname)_r|(arc4random|obstack|pkey|process)_\w+|(canonicalize_file|get_current_dir)_name|explicit_bzero|on_exit|"
    r"(close|copy_file|sync_file)_range|group_member|memfd_create|name_to_handle_at|open_(by_handle_at|w?memstream)|"
    r"remap_file_pages|secure_getenv|st_[acm]time|sysv_signal|"
    r"M_(E|LOG2E|LOG10E|LN2|LN10|PI|PI_[24]|[12]_PI|1_SQRTPI|2_SQRTPI|SQRT2|SQRT1_2|SQRT3|EGAMMA|PHI)[FLfl]?\w*|"
    r"O_(ACCMODE|ALERT|APPEND|ASYNC|BINARY|CLOEXEC|CLOFORK|CREAT|DIRECT|DIRECTORY|DSYNC|EMPTY_PATH|EVTONLY|EXCL|EXEC|"
    r"EXLOCK|FSYNC|LARGEFILE|NDELAY|NOATIME|NOCTTY|NOFOLLOW\w*|NOINHERIT|NONBLOCK|NOSIGPIPE|OBTAIN_DIR|PATH|POPUP|RANDOM|"
    r"RAW|RDONLY|RDWR|RESOLVE_BENEATH|RSYNC|SEARCH|SEQUENTIAL|SHLOCK|SHORT_LIVED|SYMLINK|SYNC|TEMPORARY|TEXT|TMPFILE|"
    r"TRUNC|TTY_INIT|U16TEXT|U8TEXT|UNIQUE|VERIFY|WRONLY|WTEXT|_ACCMODE)|"
    r"P_(ALL|DETACH|NOWAIT|NOWAITO|OVERLAY|PGID|PID|PIDFD|WAIT)"
)


# Modules cannot have these names: Windows has no such files, and a NAME.h would take the place of a header.
DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}
HEADERS = set(
    "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic "  # noqa: SIM905
    "stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype "
    "dirent fcntl grp memory netdb poll pthread pwd regex sched search semaphore spawn strings syslog termios unistd "
    "utime windows winsock intrin immintrin io direct process malloc features python".split()
)


def is_reserved(name: str) -> bool:
    """Whether C, C++ or their libraries may have this name."""
    return RESERVED.fullmatch(name) is not None


def tensor_names(names: Iterable[str]) -> list[str]:
    """C names for named tensors: `layers.0.weight` is P_LAYERS_0_WEIGHT; names that would clash get a number."""
    return unique_names("P_" + c_identifier(name).upper() for name in names)


def c_identifier(name: str) -> str:
    """The name with _ for each character that a C identifier cannot contain."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def unique_names(names: Iterable[str], used: Set[str] = frozenset(), in_capitals: bool = False) -> list[str]:
    """The names, with _0 after those that are reserved, and _2, _3, ... after those that occur again or are `used`.

    With `in_capitals` all this holds for each name in capital letters too, which is another name then.
    """

    def forms(name: str) -> set[str]:
        return {name, name.upper()} if in_capitals else {name}

    taken = set(used)
    result: list[str] = []
    for given in names:
        name = f"{given}_0" if any(map(is_reserved, forms(given))) else given
        unique, n = name, 2
        while not taken.isdisjoint(forms(unique)):
            unique, n = f"{name}_{n}", n + 1
        taken |= forms(unique)
        result.append(unique)
    return result


def comment(text: str) -> str:
    """A text that no language reads anything into, for a comment: printable ASCII that begins and ends none."""
    plain = re.sub(r"[^ -~]", "_", re.sub(r"\s", " ", text)).replace("\\", "_").replace("??", "__")
    return plain.replace("*/", "* /").replace("/*", "/ *")


def group_names(graph: Graph, groups: Sequence[GroupLayout]) -> list[tuple[str, str]]:
    """Names and titles of groups: LOSS and loss; O_LOGITS and logits for an output `logits`; GROUP_3 and group_3."""
    output_of = {n: output for output, nodes in graph.outputs.items() for n in nodes}
    names = []
    for stored in groups:
        roots = (stored.grid or stored.group).roots.tolist()
        outputs = {output_of.get(n) for n in roots}
        (output,) = outputs if len(outputs) == 1 else (None,)
        if roots == [graph.loss]:
            names.append(("LOSS", "loss"))
        elif output is not None:
            names.append((f"O_{c_identifier(output).upper()}", output))
        else:
            names.append((f"GROUP_{stored.number}", f"group_{stored.number}"))
    unique = unique_names(name for name, _ in names)
    return [(name, title) for name, (_, title) in zip(unique, names, strict=True)]
