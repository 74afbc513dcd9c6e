/*
 * zero_grad and update: whole tensors, and those rows of row tensors that are not zero. Also bounds on parameters and
 * gradients: from these, most steps know without a scan that no parameter becomes inf or nan. The caller holds
 * model_lock.
 */

#ifndef UPDATE_H
#define UPDATE_H

#include "level.h"
#include "model.h"
#include "ops.h"
#include "pool.h"
#include "rows.h"
#include "tokens.h"

/*
 * The norm of all gradients, each divided by the size of the batch: the square root of the sum of their squares. No bit
 * depends on the order of the numbers, so neither on the layout nor on the number of threads: see global_norm() in
 * micrograd/optim.py.
 */
#if TAKES_NORM

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
                const int count = at_most(r->count - i, NORM_LANES);
                if (norm->scale == 0)
                    find_largest(at, count, norm->of[worker].largest, norm);
                else
                    add_squares(at, count, norm->of[worker].total, norm->of[worker].rest, norm);
            }
}

static void norm_piece(int worker, int piece, void *argument) { visit_rows(argument, worker, piece); }

static double gradient_norm(const struct step *step)
{
    static struct norm norm; /* too large for the stack of a small thread; belongs to model_lock */
    norm = (struct norm){.step = step};
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

/*
 * No parameter of a row tensor or of a table of tokens exceeds weight_bound in absolute value, and none of their
 * gradients exceeds grad_bound; infinity if nothing is known. While both stay far from overflow, no update can make a
 * parameter infinite.
 */
static double weight_bound, grad_bound;

enum { HAS_ROWS = ROW_TENSOR_COUNT + TOKEN_TABLE_COUNT > 0 };

/* The same for all other parameters, if train(check_finite=True) keeps it up to date. */
static double dense_bound;

#define SAFE_BOUND (REAL_MAX * 1e-8)

/* The larger one, and infinity where one is infinite or nan. */
static double common_bound(double a, double b)
{
    if (!is_finite(a) || !is_finite(b))
        return (double)INFINITY;
    return a > b ? a : b;
}

static real largest_in_row[INPUT_SPACE]; /* of data[] or grad[] */

/* The largest of all rows. */
static real find_largest_in_rows(const real *array)
{
    level->find_largest_in_rows(array, largest_in_row);
    return level->largest(largest_in_row, INPUT_COUNT);
}

/* Returns no less than any weight of a row tensor; inf or nan if one is not finite. */
static double find_nonfinite_inputs(void)
{
    static int some_nonfinite;
    const int were_nonfinite = some_nonfinite;
    if (!ROW_TENSOR_COUNT)
        return 0.0;
    const double largest = find_largest_in_rows(data);
    some_nonfinite = !is_finite(largest);
    for (int i = 0; i < INPUT_COUNT && (some_nonfinite || were_nonfinite); i++) {
        const unsigned char nonfinite = !is_finite(largest_in_row[i]);
        if (nonfinite_row[i] != nonfinite) /* calls that read may be running, and are to see no writes but these */
            nonfinite_row[i] = nonfinite;
    }
    return largest;
}

/* After parameters have been written from outside, or may have overflowed. */
static void find_nonfinite_rows(void)
{
    dense_bound = (double)INFINITY;
    if (!HAS_ROWS)
        return;
    weight_bound = common_bound(find_nonfinite_inputs(), find_nonfinite_words());
}

/* The same for gradients of row tensors. */
static double find_dirty_inputs(void)
{
    if (!ROW_TENSOR_COUNT)
        return 0.0;
    const double largest = find_largest_in_rows(grad);
    if (largest == 0)
        return 0.0;
    expect_dirty_rows();
    for (int i = 0; i < INPUT_COUNT; i++)
        row_gradients.is_dirty[i] |= largest_in_row[i] != 0;
    return largest;
}

/* After any gradients may have been written from outside. */
static void find_dirty_rows(void)
{
    materialize_row_gradients();
    grad_bound = common_bound(find_dirty_inputs(), find_dirty_words());
}

/*
 * Views: others may read and write whenever model_lock is free. So whatever computes looks at the start of a locked
 * section for what has been written, and shows its gradients at the end; in between, views cost nothing.
 */
static void notice_written_weights(void)
{
    if (row_data_views)
        find_nonfinite_rows();
}

static void notice_written_gradients(void)
{
    if (row_grad_views)
        find_dirty_rows();
}

static void show_gradients(void)
{
    if (row_grad_views)
        materialize_row_gradients();
}

/*
 * Whether the image in block[] makes its step at once: then nobody sees the gradients of dense tensors, which are neither
 * cleared nor stored. Only train() asks for that, and never for the last step before it unlocks the model.
 */
#if TAKES_STEPS
static int at_once;
#else
enum { at_once = 0 };
#endif

/* Whether a tensor is updated row by row: those of active inputs, or of the words of tokens. */
static int is_in_rows(const struct tensor *tensor)
{
    for (int t = 0; t < ROW_TENSOR_COUNT; t++)
        if (row_tensors[t].offset == tensor->offset)
            return 1;
    return is_token_table(tensor->offset);
}

/*
 * Called through a pointer: gcc expands a memset of this known size into `rep stos`, which takes three times as long.
 */
static void *(*volatile const library_memset)(void *, int, size_t) = memset;

static void clear_span(Py_ssize_t offset, Py_ssize_t count)
{
    library_memset(grad + offset, 0, (size_t)count * sizeof(real));
}

/* The part of a tensor that belongs to a piece, in whole cache lines. */
struct part {
    Py_ssize_t first, count;
};

static struct part part_of(const struct tensor *tensor, int part, int parts)
{
    const Py_ssize_t lines = (tensor->extent + CACHE_LINE - 1) / CACHE_LINE;
    const Py_ssize_t first = lines * part / parts * CACHE_LINE, end = lines * (part + 1) / parts * CACHE_LINE;
    return (struct part){tensor->offset + first, (end < tensor->extent ? end : tensor->extent) - first};
}

static void clear_dirty_rows(int first, int end)
{
    for (int input = first; input < end; input++)
        for (int t = 0; t < ROW_TENSOR_COUNT && is_dirty(input); t++)
            clear_span(row_tensors[t].offset + input * row_tensors[t].length, row_tensors[t].length);
    memset(row_gradients.is_dirty + first, 0, (size_t)(end - first));
}

/* Clears a part of each dense tensor, and of the dirty rows. */
static void clear_piece(int Py_UNUSED(worker), int piece, void *argument)
{
    const int pieces = *(const int *)argument;
    for (int t = 0; t < TENSOR_COUNT && !at_once; t++)
        if (!is_in_rows(&tensors[t])) {
            const struct part part = part_of(&tensors[t], piece, pieces);
            clear_span(part.first, part.count);
        }
    if (has_dirty_rows())
        clear_dirty_rows(part_start(INPUT_COUNT, piece, pieces), part_start(INPUT_COUNT, piece + 1, pieces));
    clear_dirty_words(piece, pieces);
}

static void run_zero_grad(void)
{
    int pieces = has_dirty_rows() ? pool_pieces() : 1; /* 1 if there is little to do */
    pool_run(clear_piece, pieces, &pieces);
    forget_row_gradients();
    forget_dirty_words();
    grad_bound = 0.0;
}

static struct step make_step(double rate, double batch)
{
    int exponent;
    const int is_power = batch == 1 || frexp(batch, &exponent) == 0.5; /* of two */
    const int skips = 1 / rate > 0; /* -0.0 - rate * 0.0 is 0.0 if the rate is negative, or -0.0 */
    return (struct step){.rate = rate, .batch = batch, .share = is_power ? 1.0 / batch : 0.0, .skips = skips};
}

/* A part of each dense tensor, and of the rows of dirty words. */
static int update_dense_tensors(const struct step *step, int piece, int pieces)
{
    int nonfinite = 0;
#if TAKES_STEPS
    if (at_once) {
        const real rate = (real)-step->rate;
        level->take_steps(block, piece, pieces, &rate);
        return update_words(step, piece, pieces);
    }
#endif
    for (int t = 0; t < TENSOR_COUNT; t++) {
        if (is_in_rows(&tensors[t]))
            continue;
        const struct part part = part_of(&tensors[t], piece, pieces);
        nonfinite |= level->rules[tensors[t].rule](part.first, grad + part.first, part.count, step);
    }
    return nonfinite | update_words(step, piece, pieces);
}

/* Rows first .. end - 1, or those of them that are not zero. */
static int update_rows(int worker, int first, int end, const struct step *step)
{
    int nonfinite = 0;
#if RULES
    if (is_pending() && row_gradients.images == 1)
        return level->update_image_rows(block, first, end, step);
#endif
    if (is_pending())
        return level->update_pending_rows(worker, first, end, row_gradients.images, step);
    for (int input = first; input < end && (has_dirty_rows() || !step->skips); input++)
        if (!step->skips || is_dirty(input))
            nonfinite |= level->update_row(input, step);
    return nonfinite;
}

/* One piece of an update: a part of each dense tensor, and of the rows. */
static void update_piece(int worker, int piece, void *argument)
{
    struct step *const step = argument;
    const int pieces = pool_pieces();
    const int dense = update_dense_tensors(step, piece, pieces);
    const int first = part_start(INPUT_COUNT, piece, pieces), end = part_start(INPUT_COUNT, piece + 1, pieces);
    const int rows = ROW_TENSOR_COUNT ? update_rows(worker, first, end, step) : 0;
#if RULES
    step->nonfinite[worker] |= (unsigned char)(dense | rows);
#else
    (void)dense;
    (void)rows;
#endif
}

#if RULES

/* A rule may move a parameter by any distance, so the loops themselves look for inf and nan, padding included. */
static void run_update(double rate, double batch)
{
    struct step step = make_step(rate, batch);
    int nonfinite = 0;
    steps += steps < MAX_STEPS;
    prepare_step((double)steps, rate, TAKES_NORM ? gradient_norm(&step) : 0.0, step.number);
    step.skips = rows_stay(step.number);
    pool_run(update_piece, pool_pieces(), &step);
    for (int worker = 0; worker < MAX_WORKERS; worker++)
        nonfinite |= step.nonfinite[worker];
    if (nonfinite || !(weight_bound <= REAL_MAX))
        find_nonfinite_rows();
    else
        weight_bound = REAL_MAX;
    dense_bound = nonfinite ? (double)INFINITY : REAL_MAX;
}

#else

static void run_update(double rate, double batch)
{
    struct step step = make_step(rate, batch);
    steps += steps < MAX_STEPS;
    if (!step.skips)
        materialize_row_gradients(); /* pending ones are of rows that are not 0 */
    if (is_pending() && row_gradients.images == 1) {
        update_dense_tensors(&step, 0, 1);
        level->update_pending_image(block, &step);
    }
    else
        pool_run(update_piece, pool_pieces(), &step);
    if (!HAS_ROWS)
        return;
    const double move = fabs(rate) * grad_bound; /* must not overflow before the division either */
    weight_bound += move / batch;
    if (!(move < SAFE_BOUND && weight_bound < SAFE_BOUND))
        find_nonfinite_rows();
}

#endif

#endif
