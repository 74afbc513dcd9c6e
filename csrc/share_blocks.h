/*
 * EXACT of shares.h: the images of a block are divided among ranks, then the gradients of parameters.
 */

#ifndef SHARE_BLOCKS_H
#define SHARE_BLOCKS_H

#include "images.h"
#include "lock.h"
#include "passes.h"
#include "shares.h"
#include "train.h"
#include "update.h"

static int block_start(const struct share *share, int rank) { return part_start(block_images.count, rank, share->ranks); }

static Py_ssize_t block_bytes(int rank, const void *share)
{
    return FLAG_BYTES + (Py_ssize_t)IMAGE_BYTES * (block_start(share, rank + 1) - block_start(share, rank));
}

/* Where the images of the block from the first one of a rank on are, and before them its flag. */
static char *place_of(const struct share *share, int rank, int image)
{
    return share->bytes + (Py_ssize_t)FLAG_BYTES * (rank + 1) + (Py_ssize_t)IMAGE_BYTES * image;
}

static void send_image(int image, char *to)
{
    memcpy(to, &block_images.loss[image], sizeof(double));
    to += sizeof(double);
    for (const struct values *part = sent; part->count; part++) {
        memcpy(to, block[image].value + part->first, (size_t)part->count * sizeof(real));
        to += (size_t)part->count * sizeof(real);
    }
}

static void receive_image(int image, const char *from, struct active_list *list)
{
    struct workspace *const w = &block[image];
    if (READS_IMAGES || block_images.count == 1)
        set_image(image, list);
    else
        set_targets(w, block_images.targets[image]);
#if SIDE_BY_SIDE
    copy_computed_once(w);
#endif
    memcpy(&block_images.loss[image], from, sizeof(double));
    from += sizeof(double);
    for (const struct values *part = sent; part->count; part++) {
        memcpy(w->value + part->first, from, (size_t)part->count * sizeof(real));
        from += (size_t)part->count * sizeof(real);
    }
    keep_row_factors(image);
}

static void receive_piece(int worker, int piece, void *argument)
{
    const struct share *const share = argument;
    const int size = piece_size(block_images.count);
    const int first = piece * size, end = first + at_most(block_images.count - first, size);
    int rank = 0;
    for (int image = first; image < end; image++) {
        while (image >= block_start(share, rank + 1))
            rank++;
        if (rank != share->rank)
            receive_image(image, place_of(share, rank, image), &lists[worker][image - first]);
    }
    find_masks(first, end);
}

/* The first half of a block: what this rank sends. */
static void send_block(const struct training_run *run, Py_ssize_t i, Py_ssize_t rest, int stop)
{
    const struct share *const share = run->share;
    const double flag = stop;
    fill_block(run, i, rest);
    block_images.first = block_start(share, share->rank);
    block_images.end = block_start(share, share->rank + 1);
    block_images.are_shared = 1;
    compute_block(run->random);
    memcpy(place_of(share, share->rank, block_images.first) - FLAG_BYTES, &flag, FLAG_BYTES);
    for (int image = block_images.first; image < block_images.end; image++)
        send_image(image, place_of(share, share->rank, image));
}

/* The second one: what it has received, and the gradients. */
static void receive_block(struct share *share, int defers, double *total)
{
    for (int rank = 0; rank < share->ranks; rank++) {
        double flag;
        memcpy(&flag, place_of(share, rank, block_start(share, rank)) - FLAG_BYTES, FLAG_BYTES);
        share->stop |= flag != 0;
    }
    if (share->ranks > 1)
        pool_run(receive_piece, pieces_of(block_images.count), share);
    *total = add_block(*total, defers);
    forward_done = 0;
}

struct row_bytes {
    int ranks;
    Py_ssize_t length;
};

static Py_ssize_t bytes_of_rows(int rank, const void *what)
{
    const struct row_bytes *const rows = what;
    return rows->length * (part_start(INPUT_COUNT, rank + 1, rows->ranks) - part_start(INPUT_COUNT, rank, rows->ranks));
}

/* Copies all gradients outside of rows, one tensor after the other, to an array or back; returns how many. */
static Py_ssize_t copy_dense(real *array, int back)
{
    Py_ssize_t count = 0;
    for (const struct tensor *t = tensors; t < tensors + TENSOR_COUNT; t++)
        if (!is_in_rows(t)) {
            real *const other = array + count, *const own = grad + t->offset;
            memcpy(back ? own : other, back ? other : own, (size_t)t->extent * sizeof(real));
            count += t->extent;
        }
    return count;
}

/* After each rank has its own rows, and its own parts of the rest among zeros: 0 + x is x, in whatever order. */
static int gather_gradients(struct share *share)
{
    for (int t = 0; t < ROW_TENSOR_COUNT; t++) {
        const Py_ssize_t length = row_tensors[t].length * (Py_ssize_t)sizeof(real);
        const struct row_bytes rows = {share->ranks, length};
        if (call_gather(share, grad + row_tensors[t].offset, length * INPUT_COUNT, bytes_of_rows, &rows) < 0)
            return -1;
    }
    if (ROW_TENSOR_COUNT == 0) {
        if (take_memory(share, DATA_COUNT * (Py_ssize_t)sizeof(real)) < 0)
            return -1;
        if (call_sum(share, (real *)share->bytes, copy_dense((real *)share->bytes, 0)) < 0)
            return -1;
        copy_dense((real *)share->bytes, 1);
    }
    end_exchange();
    return 0;
}

/*
 * Whether it pays that each rank computes its share of the gradients, and sends it to all others: from so many operations
 * on for each number that is sent. With fewer, each rank computes all gradients, and no bit is another one. Rows of inputs
 * that are 0 are operations too, and skipped.
 */
#ifndef SHARED_OPERATIONS
#define SHARED_OPERATIONS (ROW_TENSOR_COUNT ? 2048 : 512)
#endif

static int shares_gradients(const struct share *share, Py_ssize_t size)
{
    return share->ranks > 1 && (double)size * OPERATIONS >= (double)SHARED_OPERATIONS * DATA_COUNT;
}

static int add_exact(const struct training_run *run, Py_ssize_t first, Py_ssize_t size, double *total)
{
    struct share *const share = run->share;
    const int shares = shares_gradients(share, size), stop = is_to_stop(share);
    const Py_ssize_t block_size = size < BLOCK_IMAGES ? size : BLOCK_IMAGES;
    const Py_ssize_t bytes = (Py_ssize_t)FLAG_BYTES * share->ranks + (Py_ssize_t)IMAGE_BYTES * block_size;
    const struct gradient_share all = {0, 1}, own = {share->rank, share->ranks};
    if (stop < 0 || take_memory(share, bytes) < 0)
        return -1;
    begin_step(run, first, first);
    for (Py_ssize_t i = first; i < first + size; i += block_images.count) {
        Py_BEGIN_ALLOW_THREADS
        const int pooled = lock_section(run);
        send_block(run, i, first + size - i, stop);
        unlock_section(pooled);
        Py_END_ALLOW_THREADS
        const Py_ssize_t sent_bytes = bytes - (Py_ssize_t)IMAGE_BYTES * (block_size - block_images.count);
        if (call_gather(share, share->bytes, sent_bytes, block_bytes, share) < 0)
            return -1;
        Py_BEGIN_ALLOW_THREADS
        const int pooled = lock_section(run);
        row_share = shares ? own : all;
        dense_share = shares && ROW_TENSOR_COUNT == 0 ? own : all;
        receive_block(share, block_images.count == size, total);
        row_share = dense_share = all;
        unlock_section(pooled);
        Py_END_ALLOW_THREADS
    }
    return shares ? gather_gradients(share) : 0;
}

#endif
