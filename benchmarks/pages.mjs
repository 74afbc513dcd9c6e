// What benchmarks/pages.py has node run: node pages.mjs FOLDER, with images.bin, *.wasm and *.bin, model.onnx.
import fs from "fs";
import path from "path";
import { createRequire } from "module";

const folder = process.argv[2];
const read = (name) => fs.readFileSync(path.join(folder, name));
const images = read("images.bin");
const [size, repeats] = [784, 15];
const count = images.length / size;
const runs = {};

for (const dtype of ["float64", "float32"]) {
  const wasm = new WebAssembly.Instance(new WebAssembly.Module(read(`${dtype}.wasm`))).exports;
  const weights = read(`${dtype}.bin`);
  new Uint8Array(wasm.memory.buffer, wasm.parameters(), weights.length).set(weights);
  wasm.start();
  const input = new Uint8Array(wasm.memory.buffer, wasm.input0(), size);
  runs[`page, ${dtype}`] = () => {
    for (let i = 0; i < count; i++) {
      input.set(images.subarray(size * i, size * (i + 1)));
      wasm.output1();
    }
  };
}

try {
  const ort = createRequire(path.join(process.cwd(), "x"))("onnxruntime-web");
  ort.env.wasm.numThreads = 1;
  const session = await ort.InferenceSession.create(path.join(folder, "model.onnx"), { executionProviders: ["wasm"] });
  const tensors = Array.from({ length: count }, (_, i) =>
    new ort.Tensor("float32", Float32Array.from(images.subarray(size * i, size * (i + 1)), (x) => x / 255), [1, size]));
  runs["ONNX Runtime Web, float32"] = async () => {
    for (const x of tensors) await session.run({ x });
  };
} catch (error) {
  if (error.code !== "MODULE_NOT_FOUND") throw error;
}

const best = {};
for (let r = 0; r < repeats; r++)
  for (const name in runs) {
    const start = performance.now();
    await runs[name]();
    best[name] = Math.min(best[name] ?? Infinity, ((performance.now() - start) / count) * 1000);
  }
console.log(JSON.stringify(best));
