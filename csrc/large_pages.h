/*
 * Pages of 2 MB for arrays of several MB. Images of a batch lie a workspace apart, and rows of weights some KB: a loop
 * over either needs the address of another page in each iteration, and a core keeps some hundred of them at hand. Linux
 * calls such pages huge, and gives them to those who ask, as NumPy does for its arrays.
 */

#ifndef LARGE_PAGES_H
#define LARGE_PAGES_H

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

/* A wish: without it, or where pages are of another size, the numbers are the same. To be called before they are used. */
static void prefer_large_pages(void *array, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t apart = (uintptr_t)array % page; /* arrays that are neighbours share a large page */
    if (bytes >= (size_t)1 << 21)
        (void)madvise((char *)array - apart, apart + bytes, MADV_HUGEPAGE);
#else
    (void)array, (void)bytes;
#endif
}

#endif
