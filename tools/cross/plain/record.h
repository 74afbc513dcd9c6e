/*
 * The files of tools/cross/driver.py: a run of a module is read from standard input, for its inputs and first
 * parameters, and one of this program is written to standard output.
 */

#ifndef RECORD_H
#define RECORD_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 40, PREDICTED = 5, MAX_NAME = 256 }; /* as in driver.py */

#if defined(BUILT_BY)
#elif defined(__clang__)
#define BUILT_BY "clang " __clang_version__
#else
#define BUILT_BY "gcc " __VERSION__
#endif

/* The numbers in the files are little-endian. */
static void turn(double *numbers, long count)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    for (unsigned char *bytes = (unsigned char *)numbers; count > 0; count--, bytes += 8)
        for (int i = 0; i < 4; i++) {
            const unsigned char other = bytes[i];
            bytes[i] = bytes[7 - i];
            bytes[7 - i] = other;
        }
#else
    (void)numbers;
    (void)count;
#endif
}

static void fail(const char *what)
{
    fprintf(stderr, "not the run of this model: %s\n", what);
    exit(1);
}

/* The line that says what ran. */
static void read_about(int is_copied)
{
    for (int byte = getchar(); byte != EOF; byte = byte == '\n' ? EOF : getchar())
        if (is_copied)
            putchar(byte);
}

/* The numbers of the next stage of this name. */
static void read_stage(const char *wanted, double *numbers, long count)
{
    char header[MAX_NAME];
    while (fgets(header, sizeof(header), stdin) != NULL) {
        char *const tab = strrchr(header, '\t');
        long size = tab == NULL ? 0 : atol(tab + 1);
        if (tab != NULL)
            *tab = '\0';
        if (strcmp(header, wanted) == 0) {
            if (size != count || fread(numbers, sizeof(double), (size_t)count, stdin) != (size_t)count)
                fail(wanted);
            turn(numbers, count);
            return;
        }
        for (double skipped; size > 0; size--)
            if (fread(&skipped, sizeof(skipped), 1, stdin) != 1)
                fail(header);
    }
    fail(wanted);
}

static void write_stage(double *numbers, long count, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    printf("\t%ld\n", count);
    turn(numbers, count);
    fwrite(numbers, sizeof(double), (size_t)count, stdout);
    turn(numbers, count);
}

#endif
