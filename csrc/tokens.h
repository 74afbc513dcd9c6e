/*
 * Tables of parameters whose rows tokens select, as embeddings are: see codegen/schedule/tokens.py. Nothing here takes
 * time in proportion to the vocabulary, except after a number that is not finite or that came from outside.
 *
 * TOKEN_TABLES(X) is the generated table, with constants for X(number, offset, words, lanes, length, word, first, tokens,
 * rows, gradients, span, rule):
 *
 *     data[offset + length * k + lane]     a parameter of word k, 0 <= k < words, 0 <= lane < lanes
 *     word                                 its first word is this one of those of all tables
 *     w->token[first + t]                  the words of an image, 0 <= t < tokens
 *     value[rows + lanes * t + lane]       where the row of such a word goes
 *     token_gradients_<number>[gradients]  {token, factor, lane}: a backward pass adds value[factor + i], i < span, to
 *                                          lanes lane + i of the row of the token's word, in this order
 *
 * Declared, a token is 1 among zeros, and its row is a sum over all words. A word that is 0 adds nothing unless its row
 * has inf or nan, and its gradient is 0 times a factor: nothing, unless the factor is inf or nan. Both are looked for.
 *
 * Gradients of tables are always complete in grad[]; rows that are not dirty are 0. The caller holds model_lock. Like
 * rows.h, this header has a part that is included once, and loops that are included once for each SIMD level.
 */

#ifndef TOKENS_H
#define TOKENS_H

#if !FROZEN
#include "level.h"
#include "model.h"
#include "pool.h"

#if TOKEN_TABLE_COUNT
static int some_nonfinite_words;
static unsigned char nonfinite_word[TOKEN_WORDS];

struct token_table {
    Py_ssize_t offset, length;
    int words, lanes, word;
};

#define TOKEN_TABLE(number, offset, words, lanes, length, word, first, tokens, rows, gradients, span, rule) \
    {offset, length, words, lanes, word},
static const struct token_table token_tables[] = {TOKEN_TABLES(TOKEN_TABLE)};
#undef TOKEN_TABLE

/* The words whose gradients may not be 0: all, or those that are listed. */
static struct {
    int all, count;
    int listed[TOKEN_WORDS + 1]; /* one more: list_word() writes before it counts */
    unsigned char is_dirty[TOKEN_WORDS];
} dirty_words;

/* `count` words have been listed; returns how many are then. */
static inline int list_word(int word, int count)
{
    dirty_words.listed[count] = word;
    count += !dirty_words.is_dirty[word];
    dirty_words.is_dirty[word] = 1;
    return count;
}

/* Before the gradients of some images are added, none of which is larger than the bound. */
static void expect_word_gradients(const struct workspace *images, int images_count, double bound)
{
    int count = dirty_words.count;
    dirty_words.all |= !is_finite(bound);
#define LIST(number, offset, words, lanes, length, word, first, tokens, rows, gradients, span, rule) \
    for (int image = 0; image < images_count; image++) \
        for (int g = 0; g < gradients; g++) \
            count = list_word(word + images[image].token[token_gradients_##number[g][0]], count);
    TOKEN_TABLES(LIST)
#undef LIST
    dirty_words.count = count;
}

/* The words with gradients, or all: word i of so many is word_at(i). */
static int word_count(int all) { return all || dirty_words.all ? TOKEN_WORDS : dirty_words.count; }

static int word_at(int i, int all) { return all || dirty_words.all ? i : dirty_words.listed[i]; }

/* The largest magnitude in the rows of all words, of data[] or grad[]; `mark` is told about each row. */
static real look_at_words(const real *array, void (*mark)(int word, real largest))
{
    real largest = 0;
    for (int t = 0; t < TOKEN_TABLE_COUNT; t++) {
        const struct token_table *const table = &token_tables[t];
        for (int k = 0; k < table->words; k++) {
            const real found = level->largest(array + table->offset + table->length * k, table->lanes);
            mark(table->word + k, found);
            largest = larger(largest, found);
        }
    }
    return largest;
}

static void mark_nonfinite_word(int word, real largest)
{
    const unsigned char nonfinite = !is_finite(largest);
    if (nonfinite_word[word] != nonfinite) /* calls that read may be running, and are to see no writes but these */
        nonfinite_word[word] = nonfinite;
}

static void mark_nonzero_word(int word, real largest)
{
    if (largest != 0)
        dirty_words.count = list_word(word, dirty_words.count);
}
#endif

/* After parameters have been written: the largest, inf or nan if one is not finite. */
static double find_nonfinite_words(void)
{
#if TOKEN_TABLE_COUNT
    const double largest = look_at_words(data, mark_nonfinite_word);
    const int some = !is_finite(largest);
    if (some_nonfinite_words != some)
        some_nonfinite_words = some;
    return largest;
#else
    return 0.0;
#endif
}

/* The same for gradients. */
static double find_dirty_words(void)
{
#if TOKEN_TABLE_COUNT
    return look_at_words(grad, mark_nonzero_word);
#else
    return 0.0;
#endif
}

static MAYBE_UNUSED void mark_all_words_dirty(void)
{
#if TOKEN_TABLE_COUNT
    dirty_words.all = 1;
#endif
}

/* Sets the rows of a piece of the dirty words to 0. */
static void clear_dirty_words(int piece, int pieces)
{
#if TOKEN_TABLE_COUNT
    const int count = word_count(0);
    level->clear_words(part_start(count, piece, pieces), part_start(count, piece + 1, pieces));
#else
    (void)piece;
    (void)pieces;
#endif
}

/* After all pieces. */
static void forget_dirty_words(void)
{
#if TOKEN_TABLE_COUNT
    for (int i = 0; i < dirty_words.count; i++)
        dirty_words.is_dirty[dirty_words.listed[i]] = 0;
    dirty_words.all = dirty_words.count = 0;
#endif
}

/* A step of a piece of the words; returns whether a parameter has become inf or nan: see level.h. */
static int update_words(const struct step *step, int piece, int pieces)
{
#if TOKEN_TABLE_COUNT
    const int count = word_count(!step->skips);
    return level->update_words(step, part_start(count, piece, pieces), part_start(count, piece + 1, pieces));
#else
    (void)step;
    (void)piece;
    (void)pieces;
    return 0;
#endif
}

static int is_token_table(Py_ssize_t offset)
{
    int found = 0;
#if TOKEN_TABLE_COUNT
    for (int t = 0; t < TOKEN_TABLE_COUNT; t++)
        found |= token_tables[t].offset == offset;
#endif
    (void)offset;
    return found;
}
#endif

#endif

#ifdef AT_LEVEL

#if TOKEN_TABLE_COUNT
/* The rows of an image's words. */
SPECIALISED void AT_LEVEL(copy_words)(struct workspace *w, ptrdiff_t offset, int words, int lanes, ptrdiff_t length,
                                      int word, int first, int tokens, int rows)
{
    for (int t = 0; t < tokens; t++) {
        const real *restrict const row = data + offset + length * w->token[first + t];
        real *restrict const to = w->value + rows + lanes * t;
        UNROLLED(3) /* fewer than lanes of a vector */
        for (int lane = 0; lane < lanes; lane++)
            to[lane] = row[lane];
    }
#if !FROZEN
    for (int k = 0; some_nonfinite_words && k < words; k++)
        for (int t = 0; nonfinite_word[word + k] && t < tokens; t++)
            for (int lane = 0; lane < lanes && w->token[first + t] != k; lane++)
                w->value[rows + lanes * t + lane] += 0 * data[offset + length * k + lane];
#endif
    (void)words;
    (void)word;
}
#endif

#if TOKEN_COUNT
static void AT_LEVEL(set_tokens)(struct workspace *w, const input_type *inputs)
{
    for (int t = 0; t < TOKEN_COUNT; t++)
        w->token[t] = (int)input_value(inputs, INPUT_COUNT + t);
#define COPY(number, offset, words, lanes, length, word, first, tokens, rows, gradients, span, rule) \
    AT_LEVEL(copy_words)(w, offset, words, lanes, length, word, first, tokens, rows);
    TOKEN_TABLES(COPY)
#undef COPY
}
#endif

#if TOKEN_TABLE_COUNT && !FROZEN
/*
 * Adds the magnitudes of all factors of a table, lane by lane, and once what several words in turn have in common. `rest` is
 * for lanes that fill no cache line.
 */
SPECIALISED void AT_LEVEL(add_factors)(real *restrict sum, real *restrict rest, const struct workspace *images, int count,
                                       const int (*gradients)[3], int gradient_count, int span)
{
    const int whole = span - span % CACHE_LINE;
    for (int image = 0; image < count; image++)
        for (int g = 0; g < gradient_count; g++) {
            const real *restrict const factor = images[image].value + gradients[g][1];
            if (g > 0 && gradients[g][1] == gradients[g - 1][1])
                continue;
            for (int first = 0; first < whole; first += CACHE_LINE)
                VECTORS(CACHE_LINE) for (int lane = 0; lane < CACHE_LINE; lane++)
                    sum[lane] += FABS(factor[first + lane]);
            UNROLLED(3) /* fewer than lanes of a vector */
            for (int lane = whole; lane < span; lane++)
                rest[lane - whole] += FABS(factor[lane]);
        }
}

/* Some images add no more to a gradient of a table; inf or nan if a factor is. */
static real AT_LEVEL(word_gradient_bound)(const struct workspace *images, int count)
{
    real sum[CACHE_LINE] = {0}, rest[CACHE_LINE] = {0}, bound = 0;
#define ADD(number, offset, words, lanes, length, word, first, tokens, rows, gradients, span, rule) \
    AT_LEVEL(add_factors)(sum, rest, images, count, token_gradients_##number, gradients, span);
    TOKEN_TABLES(ADD)
#undef ADD
    for (int lane = 0; lane < CACHE_LINE; lane++)
        bound += sum[lane] + rest[lane];
    return bound * TOKEN_GRADIENTS;
}

/* Adds 0 times factors that may be inf or nan to `rows` of all words but one, in this part of the words. */
static void AT_LEVEL(add_to_other_words)(const struct token_table *table, real *rows, const real *factor, int span,
                                         int except, int part, int parts)
{
    for (int k = 0; k < table->words; k++)
        for (int i = 0; k != except && (table->word + k) % parts == part && i < span; i++)
            rows[table->length * k + i] += 0 * factor[i];
}

SPECIALISED void AT_LEVEL(add_words)(const struct workspace *images, int count, int part, int parts, int number,
                                     const int (*gradients)[3], int gradient_count, int span)
{
    const struct token_table *const table = &token_tables[number];
    for (int image = 0; image < count; image++)
        for (int g = 0; g < gradient_count; g++) {
            const real *restrict const factor = images[image].value + gradients[g][1];
            const int k = images[image].token[gradients[g][0]];
            real *const rows = grad + table->offset + gradients[g][2];
            real *restrict const row = rows + table->length * k;
            if (parts == 1 || (table->word + k) % parts == part)
                UNROLLED(3)
                for (int i = 0; i < span; i++)
                    row[i] += factor[i];
            if (dirty_words.all && !all_finite(factor, span))
                AT_LEVEL(add_to_other_words)(table, rows, factor, span, k, part, parts);
        }
}

/* Adds the gradients of some images, in order, to one of `parts` parts of the words. */
static void AT_LEVEL(add_word_gradients)(const struct workspace *images, int count, int part, int parts)
{
#define ADD(number, offset, words, lanes, length, word, first, tokens, rows, gradients, span, rule) \
    AT_LEVEL(add_words)(images, count, part, parts, number, token_gradients_##number, gradients, span);
    TOKEN_TABLES(ADD)
#undef ADD
}

static void AT_LEVEL(clear_words)(int begin, int end)
{
    for (int i = begin; i < end; i++) {
        const int at = word_at(i, 0);
#define CLEAR(number, offset, words, lanes, length, word, first, tokens, rows, gradients, span, rule) \
    for (int lane = 0; at >= word && at < word + words && lane < lanes; lane++) \
        grad[offset + length * (at - word) + lane] = 0;
        TOKEN_TABLES(CLEAR)
#undef CLEAR
    }
}

static int AT_LEVEL(update_words)(const struct step *step, int begin, int end)
{
    int nonfinite = 0;
    for (int i = begin; i < end; i++) {
        const int at = word_at(i, !step->skips);
#define UPDATE(number, offset, words, lanes, length, word, first, tokens, rows, gradients, span, rule) \
    if (at >= word && at < word + words) \
        nonfinite |= AT_LEVEL(rules)[rule](offset + length * (at - word), grad + offset + length * (at - word), lanes, step);
        TOKEN_TABLES(UPDATE)
#undef UPDATE
    }
    return nonfinite;
}
#endif

#endif
