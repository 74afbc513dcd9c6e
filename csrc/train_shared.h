/*
 * train() with shares.h.
 */

#ifndef TRAIN_SHARED_H
#define TRAIN_SHARED_H

#include "arguments.h"
#include "images.h"
#include "lock.h"
#include "passes.h"
#include "shares.h"
#include "train.h"
#include "update.h"

/* EXACT of shares.h: the images of a block are divided among ranks, then the gradients of parameters. */

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
    copy_computed_once(w, once);
#endif
    memcpy(&block_images.loss[image], from, sizeof(double));
    from += sizeof(double);
    for (const struct values *part = sent; part->count; part++) {
        memcpy(w->value + part->first, from, (size_t)part->count * sizeof(real));
        from += (size_t)part->count * sizeof(real);
    }
    keep_row_factors(image, image + 1);
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

/* TREE of shares.h: gradients of leaves, which are parts of a batch, are added along a tree. */

struct tree {
    const struct share *share;
    int leaves, round; /* in each round, a rank sends one subtree */
};

static int first_leaf(const struct tree *tree, int rank) { return part_start(tree->leaves, rank, tree->share->ranks); }

/* The end of the largest subtree that begins with leaf `first` and has no leaf from `end` on. */
static int subtree_end(const struct tree *tree, int first, int end)
{
    int low = 0, high = tree->leaves;
    while (low < first || high > end) {
        const int middle = low + (high - low) / 2;
        if (first < middle)
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* How many subtrees begin with one of the leaves start .. first - 1 and end before `end`: so many sums are complete. */
static int count_additions(const struct tree *tree, int start, int first, int end)
{
    int low = 0, high = tree->leaves, count = 0;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        count += high == end && start <= low && low < first;
        if (end <= middle)
            high = middle;
        else
            low = middle;
    }
    return count;
}

static int count_subtrees(const struct tree *tree, int rank)
{
    int count = 0;
    for (int leaf = first_leaf(tree, rank), end = first_leaf(tree, rank + 1); leaf < end; count++)
        leaf = subtree_end(tree, leaf, end);
    return count;
}

static Py_ssize_t slice_start(const struct share *share, int rank) { return rank_start(DATA_COUNT, rank, share->ranks); }

static Py_ssize_t slice_count(const struct share *share, int rank)
{
    return slice_start(share, rank + 1) - slice_start(share, rank);
}

static Py_ssize_t bytes_of_slice(int rank, const void *share) { return slice_count(share, rank) * (Py_ssize_t)sizeof(real); }

static Py_ssize_t bytes_to_send(int rank, const void *what)
{
    const struct tree *const tree = what;
    return tree->round < count_subtrees(tree, tree->share->rank) ? bytes_of_slice(rank, tree->share) : 0;
}

static Py_ssize_t bytes_to_receive(int rank, const void *what)
{
    const struct tree *const tree = what;
    return tree->round < count_subtrees(tree, rank) ? bytes_of_slice(tree->share->rank, tree->share) : 0;
}

/* The flag of each rank, and the losses of its leaves. */
static Py_ssize_t bytes_of_losses(int rank, const void *what)
{
    const struct tree *const tree = what;
    return (Py_ssize_t)sizeof(double) * (1 + first_leaf(tree, rank + 1) - first_leaf(tree, rank));
}

static void add_reals(real *restrict to, const real *restrict from, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        to[i] += from[i];
}

/* After a leaf has been added up in grad[]: `sums` are the subtrees of this rank that are complete so far. */
static int push_leaf(const struct tree *tree, int leaf, real *sums, int count)
{
    int additions = count_additions(tree, first_leaf(tree, tree->share->rank), leaf, leaf + 1);
    if (additions == 0) {
        memcpy(sums + (Py_ssize_t)DATA_COUNT * count, grad, DATA_COUNT * sizeof(real));
        return count + 1;
    }
    add_reals(sums + (Py_ssize_t)DATA_COUNT * (count - 1), grad, DATA_COUNT);
    for (; --additions > 0; count--)
        add_reals(sums + (Py_ssize_t)DATA_COUNT * (count - 2), sums + (Py_ssize_t)DATA_COUNT * (count - 1), DATA_COUNT);
    return count;
}

/* How many sums of subtrees are there at the same time. */
static int most_sums(const struct tree *tree)
{
    const int first = first_leaf(tree, tree->share->rank), end = first_leaf(tree, tree->share->rank + 1);
    int count = 0, most = 0;
    for (int leaf = first; leaf < end; leaf++) {
        const int additions = count_additions(tree, first, leaf, leaf + 1);
        count += additions == 0 ? 1 : 1 - additions;
        most = count > most ? count : most;
    }
    return most;
}

/* Adds the subtrees of all ranks, of which this rank has its slice: in `received`, round after round. */
static void add_subtrees(const struct tree *tree, real *received)
{
    enum { MAX_DEPTH = 32 };
    const struct share *const share = tree->share;
    const Py_ssize_t count = slice_count(share, share->rank);
    real *sums[MAX_DEPTH + 1];
    int depth = 0;
    for (int rank = 0; rank < share->ranks; rank++) {
        const int end = first_leaf(tree, rank + 1);
        for (int leaf = first_leaf(tree, rank), round = 0, next; leaf < end; leaf = next, round++) {
            Py_ssize_t before = 0; /* subtrees of earlier rounds, and of earlier ranks in this one */
            for (int other = 0; other < share->ranks; other++) {
                const int subtrees = count_subtrees(tree, other);
                before += at_most(subtrees, round) + (other < rank && subtrees > round);
            }
            next = subtree_end(tree, leaf, end);
            sums[depth++] = received + before * count;
            for (int i = count_additions(tree, 0, leaf, next); i > 0; i--, depth--)
                add_reals(sums[depth - 2], sums[depth - 1], count);
        }
    }
    memcpy(grad + slice_start(share, share->rank), sums[0], (size_t)count * sizeof(real));
}

/* Sends this rank's subtrees to the ranks whose slices they are. */
static int call_trade(const struct tree *tree, real *sums, real *received)
{
    const struct share *const share = tree->share;
    Py_ssize_t size = 0;
    for (int rank = 0; rank < share->ranks; rank++)
        size += bytes_to_receive(rank, tree);
    PyObject *const from = view_of(sums, DATA_COUNT * (Py_ssize_t)sizeof(real)), *const to = view_of(received, size);
    PyObject *const to_send = tuple_of_bytes(share, bytes_to_send, tree);
    PyObject *const to_receive = tuple_of_bytes(share, bytes_to_receive, tree);
    PyObject *const result = from == NULL || to == NULL || to_send == NULL || to_receive == NULL
                                 ? NULL
                                 : PyObject_CallMethod(share->exchange, "trade", "OOOO", from, to, to_send, to_receive);
    Py_XDECREF(from);
    Py_XDECREF(to);
    Py_XDECREF(to_send);
    Py_XDECREF(to_receive);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int add_tree(const struct training_run *run, Py_ssize_t first, Py_ssize_t size, double *total)
{
    struct share *const share = run->share;
    struct tree tree = {share, (int)((size + LEAF_IMAGES - 1) / LEAF_IMAGES), 0};
    const int own = first_leaf(&tree, share->rank), end = first_leaf(&tree, share->rank + 1), kept = most_sums(&tree);
    const Py_ssize_t losses_bytes = (Py_ssize_t)sizeof(double) * (tree.leaves + share->ranks);
    Py_ssize_t subtrees = 0;
    int rounds = 0;
    for (int rank = 0; rank < share->ranks; rank++) {
        const int count = count_subtrees(&tree, rank);
        subtrees += count;
        rounds = count > rounds ? count : rounds;
    }
    const Py_ssize_t received_count = subtrees * slice_count(share, share->rank);
    const Py_ssize_t numbers = (Py_ssize_t)DATA_COUNT * kept + received_count;
    const int stop = is_to_stop(share);
    if (stop < 0 || take_memory(share, losses_bytes + numbers * (Py_ssize_t)sizeof(real)) < 0)
        return -1;
    double *const losses = (double *)share->bytes, *loss = losses + own + share->rank;
    real *const sums = (real *)(share->bytes + losses_bytes), *received = sums + (Py_ssize_t)DATA_COUNT * kept;
    int count = 0;
    *loss++ = stop;
    for (int leaf = own; leaf < end; leaf++) {
        const Py_ssize_t from = (Py_ssize_t)leaf * LEAF_IMAGES, to = from + LEAF_IMAGES < size ? from + LEAF_IMAGES : size;
        *loss = 0.0;
        begin_step(run, first, leaf == own ? first + from : first);
        if (add_range(run, first + from, first + to, loss++) < 0 || PyErr_CheckSignals() < 0)
            return -1;
        count = push_leaf(&tree, leaf, sums, count);
    }
    if (own == end)
        begin_step(run, first, first + size);
    else if (end < tree.leaves)
        skip_images(run, first + (Py_ssize_t)end * LEAF_IMAGES, first + size);
    if (call_gather(share, losses, losses_bytes, bytes_of_losses, &tree) < 0)
        return -1;
    for (; tree.round < rounds; tree.round++) {
        real *const next = tree.round < count ? sums + (Py_ssize_t)DATA_COUNT * tree.round : sums;
        if (call_trade(&tree, next, received) < 0)
            return -1;
        for (int rank = 0; rank < share->ranks; rank++)
            received += bytes_to_receive(rank, &tree) / (Py_ssize_t)sizeof(real);
    }
    add_subtrees(&tree, received - received_count);
    if (call_gather(share, grad, DATA_COUNT * (Py_ssize_t)sizeof(real), bytes_of_slice, share) < 0)
        return -1;
    for (int rank = 0, leaf = 0; rank < share->ranks; rank++) {
        const double *const of_rank = losses + rank + leaf;
        share->stop |= of_rank[0] != 0;
        for (const int last = first_leaf(&tree, rank + 1), start = leaf; leaf < last; leaf++)
            *total += of_rank[1 + leaf - start];
    }
    end_exchange();
    return 0;
}

/* All three */

static int train_shared_epoch(struct training_run *run, Py_ssize_t epoch)
{
    struct share *const share = run->share;
    const Py_ssize_t count = run->batch.count;
    Py_ssize_t reported = 0;
    double total = 0.0;
    for (Py_ssize_t i = 0; i < count;) {
        const Py_ssize_t first = i, size = batch_size_at(run, first);
        const int is_leaf = size <= LEAF_IMAGES;
        int refused;
        share->stop = 0;
        if ((share->mode == FAST                        ? add_fast
             : share->mode == EXACT || is_leaf ? add_exact
                                               : add_tree)(run, first, size, &total) < 0)
            return -1;
        Py_BEGIN_ALLOW_THREADS
        const int pooled = lock_section(run);
        refused = take_step(run, epoch, first, size);
        if (is_given(run->progress))
            show_gradients();
        unlock_section(pooled);
        Py_END_ALLOW_THREADS
        if (refused < 0) {
            raise_not_finite(run, epoch, first);
            return -1;
        }
        i += size;
        run->mean = total / (double)i;
        if (i - reported < CHUNK_IMAGES && i < count && !share->stop)
            continue;
        reported = i;
        if (report(run->progress, epoch * count + i, run->epochs * count, 1, run->mean) < 0)
            return -1;
        if (share->stop) {
            PyObject *const result = PyObject_CallMethod(share->exchange, "stopped", "n", step_number(run, epoch, first) + 1);
            Py_XDECREF(result);
            return -1;
        }
    }
    return 0;
}

/* _train_shared(exchange, mode, rank, ranks, images, labels, ...): the rest as train() has it. */
static PyObject *api_train_shared(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (nargs < 4) {
        PyErr_Format(PyExc_TypeError, "_train_shared() takes at least 4 positional arguments, got %zd", nargs);
        return NULL;
    }
    const Py_ssize_t mode = parse_int(args[1], "mode", 0, MODES - 1), ranks = parse_int(args[3], "ranks", 1, MAX_RANKS);
    const Py_ssize_t rank = mode < 0 || ranks < 0 ? -1 : parse_int(args[2], "rank", 0, ranks - 1);
    if (rank < 0)
        return NULL;
    struct share share = {.exchange = args[0], .mode = (int)mode, .rank = (int)rank, .ranks = (int)ranks};
    PyObject *const losses = train_model(module, args + 4, nargs - 4, kwnames, train_shared_epoch, &share);
    Py_XDECREF(share.memory);
    return losses;
}

#endif
