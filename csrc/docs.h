/*
 * What help() says of each function, with this model's own numbers. This is the one place of these texts: `make docs`
 * copies them into the stubs of nn and nn_infer, and `make docs ARGS=--check` fails if these are out of date.
 */

#ifndef DOCS_H
#define DOCS_H

#define AS_TEXT_(x) #x
#define AS_TEXT(x) AS_TEXT_(x)

#if FLOAT32
#define DOC_REAL "float32"
#else
#define DOC_REAL "float64"
#endif

#if INPUT_PIXELS
#define DOC_ELEMENTS "unsigned bytes"
#define DOC_BUFFERS "bytes, bytearray, memoryview or a NumPy array"
#else
#define DOC_ELEMENTS DOC_REAL
#define DOC_BUFFERS "array.array, memoryview or a NumPy array"
#endif
#define DOC_PIXELS \
    "pixels: a C-contiguous buffer of " AS_TEXT(INPUT_COUNT) " " DOC_ELEMENTS ", read in place: " DOC_BUFFERS "."
#define DOC_IMAGES \
    "images: a C-contiguous buffer of n * " AS_TEXT(INPUT_COUNT) " " DOC_ELEMENTS ", n >= 1, read in place:\n    " \
    DOC_BUFFERS "."

#if TARGET_LABEL
#define DOC_LABEL "label: an int, 0 <= label < " AS_TEXT(TARGET_COUNT) "."
#define DOC_LABELS "labels: a buffer of n unsigned bytes, each below " AS_TEXT(TARGET_COUNT) "."
#elif TARGET_COUNT
#define DOC_LABEL "label: a C-contiguous buffer of " AS_TEXT(TARGET_COUNT) " " DOC_REAL ", the targets."
#define DOC_LABELS "labels: a C-contiguous buffer of n * " AS_TEXT(TARGET_COUNT) " " DOC_REAL ", the targets."
#else
#define DOC_LABEL "label: None, as this model has no targets."
#define DOC_LABELS "labels: None, as this model has no targets."
#endif

#if HAS_PREDICTION
#define DOC_CLASSES ""
#else
#define DOC_CLASSES "\nRaises RuntimeError, as this model has no classes: see outputs()."
#endif

#define DOC_THREADS "threads: an int, 1 <= threads <= " AS_TEXT(MAX_THREADS) "; changes no bit of any result."
#if FROZEN
#define DOC_USE "predict(pixels), probabilities(pixels) and outputs(pixels) take an image; info() says the rest."
#else
#define DOC_USE \
    "zero_grad(), forward(label, pixels), backward(), update() is a step of training, train() does whole epochs.\n" \
    "predict(pixels), probabilities(pixels) and outputs(pixels) take an image; info() says the rest."
#endif
#define DOC_RAISES \
    "Raises TypeError for arguments of another type, ValueError for another size or range; nothing has changed then."

#define DOC_PREDICT \
    "predict($module, pixels, /)\n--\n\n" \
    "The most likely class of one image, as an int; the first one on a tie.\n\n" DOC_PIXELS "\n\n" DOC_RAISES DOC_CLASSES

#define DOC_PROBABILITIES \
    "probabilities($module, pixels, /)\n--\n\n" \
    "The probability of each class for one image, as a tuple of floats.\n\n" DOC_PIXELS "\n\n" DOC_RAISES "\n" \
    "Raises RuntimeError where no output of the model is named 'probabilities'."

#define DOC_OUTPUTS \
    "outputs($module, pixels, /)\n--\n\n" \
    "Every named output for one image: {name: tuple of floats}. info()['outputs'] has their lengths.\n\n" \
    DOC_PIXELS "\n\n" DOC_RAISES

#define DOC_PREDICT_BATCH \
    "predict_batch($module, images, *, threads=1, progress=None)\n--\n\n" \
    "The most likely class of each of n images, as n bytes. The GIL is released.\n\n" \
    DOC_IMAGES "\n" DOC_THREADS "\n" \
    "progress: is called now and then with (images done, n, None).\n\n" DOC_RAISES DOC_CLASSES

#define DOC_INFO \
    "info($module, /)\n--\n\n" \
    "What this module is, as a dict: architecture, dtype, mode, SIMD level, compiler, digest of the graph."

#define DOC_FORWARD \
    "forward($module, label, pixels, /)\n--\n\n" \
    "The loss of one image, as a float; backward() then goes back from it.\n\n" \
    DOC_LABEL "\n" DOC_PIXELS "\n\n" DOC_RAISES

#define DOC_BACKWARD \
    "backward($module, /)\n--\n\n" \
    "Adds the gradients of the last forward() to those of the parameters. Returns None.\n\n" \
    "Raises RuntimeError where there was no forward() since the import or the last reset()."

#define DOC_ZERO_GRAD "zero_grad($module, /)\n--\n\nSets the parameters' gradients to 0. Returns None."

#define DOC_UPDATE \
    "update($module, /, step=0, batch_size=1, *, learning_rate=None)\n--\n\n" \
    "data -= learning_rate * grad / batch_size for each parameter. Returns None.\n\n" \
    "step: an int >= 0, for loops that count; changes nothing.\n" \
    "batch_size: an int >= 1, how many images the gradients are the sum of.\n" \
    "learning_rate: a finite float; None is the model's own, info()['learning_rate'].\n\n" DOC_RAISES

#define DOC_EVALUATE \
    "evaluate($module, images, labels, *, threads=1, progress=None)\n--\n\n" \
    "(mean loss, accuracy) over n images, as floats; the accuracy is None where the model has no classes. The GIL is\n" \
    "released.\n\n" \
    DOC_IMAGES "\n" DOC_LABELS "\n" DOC_THREADS "\n" \
    "progress: is called now and then with (images done, n, mean loss so far).\n\n" DOC_RAISES

#define DOC_TRAIN \
    "train($module, images, labels, *, batch_size=1, learning_rate=None, epochs=1, seed=None, threads=1, " \
    "progress=None, check_finite=False)\n--\n\n" \
    "Whole epochs of gradient descent over n images; the mean loss of each epoch, as a list of floats. The GIL is\n" \
    "released.\n\n" \
    "For each batch: zero_grad, forward and backward for each image, update by the batch's true size.\n\n" \
    DOC_IMAGES "\n" DOC_LABELS "\n" \
    "batch_size: an int >= 1.\n" \
    "learning_rate: a finite float; None is the model's own, info()['learning_rate'].\n" \
    "epochs: an int, 0 <= epochs <= 1000000000.\n" \
    "seed: an int, 0 <= seed < 2**64: the images are shuffled before each epoch, as random.Random(seed).shuffle does;\n" \
    "    None: they stay in order.\n" \
    DOC_THREADS "\n" \
    "    They share the images of a batch: batches of one image have no use for them.\n" \
    "progress: is called now and then with (images done, n * epochs, mean loss of the epoch so far). It may read the\n" \
    "    model; to change it is a RuntimeError. Other threads' calls that change the model, evaluate() and\n" \
    "    predict_batch() wait until train() is done: a progress() that waits for one of them waits for ever.\n" \
    "check_finite: with True, FloatingPointError stops train() before a step that makes a parameter inf or nan. It names\n" \
    "    that parameter, the step and its images; the parameters are those before the step, the gradients its own. Nor\n" \
    "    does train() start with such a parameter.\n\n" \
    DOC_RAISES

#define DOC_STATE_DICT \
    "state_dict($module, /)\n--\n\n" \
    "The parameters, as {name: memoryview of " DOC_REAL "}: writable, strided, shared with the model, nothing copied.\n\n" \
    "Passes are slower while such a view is alive, because anybody may write to it."

#define DOC_GRAD_DICT \
    "grad_dict($module, /)\n--\n\n" \
    "The gradients, as {name: memoryview of " DOC_REAL "}, with the names and shapes of state_dict()."

#define DOC_LOAD_STATE_DICT \
    "load_state_dict($module, mapping, /)\n--\n\n" \
    "Copies all parameters from {name: buffer of " DOC_REAL "}, strided or not. Returns None.\n\n" \
    "Names and shapes must be those of state_dict(), all of them.\n\n" \
    "Raises TypeError for anything else than a mapping and for buffers of another type, ValueError for a name that is\n" \
    "missing or unknown and for another shape; nothing has changed then."

#define DOC_DATA \
    "data($module, i, /)\n--\n\n" \
    "Parameter i, as a float, in the order of the model's parameters().\n\n" \
    "i: an int, 0 <= i < " AS_TEXT(PARAMETER_COUNT) ".\n\n" DOC_RAISES

#define DOC_GRAD \
    "grad($module, i, /)\n--\n\n" \
    "The gradient of parameter i, as a float.\n\n" \
    "i: an int, 0 <= i < " AS_TEXT(PARAMETER_COUNT) ".\n\n" DOC_RAISES

#if HAS_DISTRIBUTIONS
#define DOC_FRESH \
    "Fresh weights, the same as those of the micrograd model made after random.seed(seed); gradients become 0.\n" \
    "Returns None.\n\n" \
    "seed: an int, 0 <= seed < 2**64; None: another one each time."
#else
#define DOC_FRESH \
    "The weights that the model was built with; gradients become 0. Returns None.\n\n" \
    "seed: None, as the model declares no initial distribution."
#endif
#define DOC_RESET "reset($module, /, seed=None)\n--\n\n" DOC_FRESH "\n\n" DOC_RAISES

#endif
