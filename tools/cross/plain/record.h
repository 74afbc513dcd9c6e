/*
 * The files of tools/cross/driver.py: a run of a module is read from standard input, for its inputs and first
 * parameters, and one of this program is written to standard output. For little-endian processors.
 */

#ifndef RECORD_H
#define RECORD_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 40, PREDICTED = 5, MAX_NAME = 256 }; /* as in driver.py */

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
            return;
        }
        for (double skipped; size > 0; size--)
            if (fread(&skipped, sizeof(skipped), 1, stdin) != 1)
                fail(header);
    }
    fail(wanted);
}

static void write_stage(const double *numbers, long count, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    printf("\t%ld\n", count);
    fwrite(numbers, sizeof(double), (size_t)count, stdout);
}

#endif
