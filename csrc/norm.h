/*
 * The norm of all gradients, each divided by the size of the batch: the square root of the sum of their squares. No bit
 * depends on the order of the numbers, so neither on the layout nor on the number of threads: see global_norm() in
 * micrograd/optim.py. The caller holds model_lock.
 */

#ifndef NORM_H
#define NORM_H

#include "model.h"

#if TAKES_NORM

#include "ops.h"
#include "pool.h"
#include "rows.h"

enum { NORM_LANES = 16 };

/* What each worker has found so far, side by side. */
struct norm {
    const struct step *step;
    double scale;
    struct {
        double largest[NORM_LANES], total[NORM_LANES], rest[NORM_LANES];
    } of[MAX_WORKERS];
};

/* The gradient that a rule gets. */
static inline double divided(real gradient, const struct step *step)
{
    return step->share != 0 ? gradient * (real)step->share : gradient / (real)step->batch;
}

static void find_largest(const real *gradient, int count, double *restrict largest, const struct norm *norm)
{
    for (int i = 0; i < count; i++) {
        const double x = fabs(divided(gradient[i], norm->step));
        largest[i] = largest[i] >= x || largest[i] != largest[i] ? largest[i] : x; /* keeps a nan */
    }
}

/* Each square is cut into two multiples of powers of 2, whose sums are exact. */
static void add_squares(const real *gradient, int count, double *restrict total, double *restrict rest,
                        const struct norm *norm)
{
    const double high = NORM_HIGH, low = NORM_LOW;
    for (int i = 0; i < count; i++) {
        const double x = divided(gradient[i], norm->step) * norm->scale;
        const double square = x * x, part = (square + high) - high;
        total[i] += part;
        rest[i] += ((square - part) + low) - low;
    }
}

/* Both go over rows of gradients, without the padding between them. */
static void visit_rows(struct norm *norm, int worker, int piece)
{
    const int pieces = pool_pieces();
    for (const struct gradient_rows *r = gradient_rows; r->count; r++)
        for (int k = part_start(r->rows, piece, pieces); k < part_start(r->rows, piece + 1, pieces); k++)
            for (int i = 0; i < r->count; i += NORM_LANES) {
                const real *const at = grad + r->offset + (ptrdiff_t)r->length * k + i;
                const int count = r->count - i < NORM_LANES ? r->count - i : NORM_LANES;
                if (norm->scale == 0)
                    find_largest(at, count, norm->of[worker].largest, norm);
                else
                    add_squares(at, count, norm->of[worker].total, norm->of[worker].rest, norm);
            }
}

static void norm_piece(int worker, int piece, void *argument) { visit_rows(argument, worker, piece); }

static double gradient_norm(const struct step *step)
{
    struct norm norm = {.step = step};
    double largest = 0.0, total = 0.0;
    int exponent;
    materialize_row_gradients();
    pool_run(norm_piece, pool_pieces(), &norm);
    for (int worker = 0; worker < MAX_WORKERS; worker++)
        for (int i = 0; i < NORM_LANES; i++) {
            const double x = norm.of[worker].largest[i];
            largest = largest >= x || largest != largest ? largest : x;
        }
    if (!(largest > 0) || !is_finite(largest))
        return largest;
    frexp(largest, &exponent);
    exponent = exponent < -1000 ? -1000 : exponent;
    norm.scale = ldexp(1.0, -exponent);
    pool_run(norm_piece, pool_pieces(), &norm);
    double rest = 0.0;
    for (int worker = 0; worker < MAX_WORKERS; worker++)
        for (int i = 0; i < NORM_LANES; i++) {
            total += norm.of[worker].total[i];
            rest += norm.of[worker].rest[i];
        }
    return ldexp(sqrt(total + rest), exponent);
}

#else
#define gradient_norm(step) 0.0
#endif

#endif
