/*
 * Instead of the Python module around a generated model, a program. It takes the inputs, targets and first parameters
 * of a run of the module, and does what step_by_step() and the first predictions() of tools/cross/driver.py do. With an
 * argument it does what train_epoch() does, on label, image, label, ... in the order of the steps.
 */

#ifndef MODULE_H
#define MODULE_H

#include "passes.h"
#include "record.h"

enum { STEPS = 5 };
static const int batches[STEPS] = {1, 1, 3, 2, 1};
static input_type images[IMAGES][INPUT_SPACE];
static target_type targets[IMAGES][TARGETS_PER_IMAGE + 1];

/* Of one stage. */
static double numbers[IMAGES * (INPUT_SPACE + TARGETS_PER_IMAGE) + PARAMETER_COUNT + VALUE_COUNT];

static void read_examples(void)
{
    read_stage("images", numbers, IMAGES * INPUT_COUNT);
    for (int i = 0; i < IMAGES * INPUT_COUNT; i++)
        images[i / INPUT_SPACE][i % INPUT_SPACE] = (input_type)numbers[i];
    read_stage("targets", numbers, IMAGES * TARGETS_PER_IMAGE);
    for (int i = 0; i < IMAGES; i++)
        for (int k = 0; k < TARGETS_PER_IMAGE; k++)
            targets[i][k] = (target_type)numbers[i * TARGETS_PER_IMAGE + k];
}

/* The index in data[] and grad[] of element i of a tensor, in C order. */
static Py_ssize_t place_of(const struct tensor *t, Py_ssize_t i)
{
    Py_ssize_t place = t->offset;
    for (int d = t->dimensions - 1; d >= 0; i /= t->shape[d--])
        place += i % t->shape[d] * t->strides[d];
    return place;
}

static void read_parameters(const char *stage)
{
    const double *from = numbers;
    read_stage(stage, numbers, PARAMETER_COUNT);
    for (const struct tensor *t = tensors; t < tensors + TENSOR_COUNT; t++)
        for (Py_ssize_t i = 0; i < t->size; i++)
            data[place_of(t, i)] = (real)*from++;
    find_nonfinite_rows();
}

static void write_tensors(const real *array, const char *when, const char *what)
{
    double *to = numbers;
    for (const struct tensor *t = tensors; t < tensors + TENSOR_COUNT; t++)
        for (Py_ssize_t i = 0; i < t->size; i++)
            *to++ = array[place_of(t, i)];
    write_stage(numbers, PARAMETER_COUNT, "%s: %s", when, what);
}

static void write_outputs(void)
{
    struct workspace *const w = workspaces_of(&inference[0], 1);
    for (int image = 0; image < PREDICTED; image++) {
        level->set_inputs(w, images[image]);
        level->compute_outputs(w);
        for (int o = 0; o < OUTPUT_COUNT; o++) {
            for (int i = 0; i < outputs[o].count; i++)
                numbers[i] = output_element(w, &outputs[o], i);
            write_stage(numbers, outputs[o].count, "fresh, image %d: %s", image, outputs[o].name);
        }
    }
}

static void write_classes(void)
{
    struct workspace *const w = workspaces_of(&inference[0], 1);
    for (int image = 0; image < IMAGES; image++) {
        level->set_inputs(w, images[image]);
        level->compute_prediction(w);
        numbers[image] = class_of(w, &outputs[PREDICTION]);
    }
    write_stage(numbers, IMAGES, "fresh: classes, 1 threads");
}

static void train_step_by_step(void)
{
    int image = 0;
    for (int step = 0; step < STEPS; step++) {
        char when[MAX_NAME];
        snprintf(when, sizeof(when), "step %d", step);
        if (step != 3)
            run_zero_grad();
        for (int k = 0; k < batches[step]; k++, image++) {
            double loss = run_forward(targets[image], images[image], MODEL_RANDOM);
            write_stage(&loss, 1, "%s, image %d: loss", when, image);
            run_backward();
        }
        if (step % 2) {
            materialize_row_gradients();
            write_tensors(grad, when, "gradients");
        }
        run_update(LEARNING_RATE, batches[step]);
        write_tensors(data, when, "parameters");
    }
}

static void train_epoch(void)
{
    unsigned char example[1 + INPUT_COUNT];
    while (fread(example, 1, sizeof(example), stdin) == sizeof(example)) {
        targets[0][0] = example[0];
        for (int i = 0; i < INPUT_COUNT; i++)
            images[0][i] = example[1 + i];
        run_zero_grad();
        run_forward(targets[0], images[0], MODEL_RANDOM);
        run_backward();
        run_update(LEARNING_RATE, 1);
    }
    write_tensors(data, "after the epoch", "parameters");
}

int main(int argc, char **Py_UNUSED(argv))
{
    fill_pixel_values();
    if (choose_level() < 0)
        return 1;
    read_about(0);
    printf("{\"byteorder\": \"little\", \"info\": {\"digest\": \"%s\", \"compiler\": \"%s\", \"fma\": %s}}\n", DIGEST,
           BUILT_BY, level->fuses ? "true" : "false");
    if (argc > 1) {
        read_parameters("before the epoch: parameters");
        train_epoch();
        return fflush(stdout) != 0;
    }
    read_examples();
    read_parameters("fresh: parameters");
    write_outputs();
    if (TARGET_LABEL)
        write_classes();
    train_step_by_step();
    return fflush(stdout) != 0;
}

#endif
