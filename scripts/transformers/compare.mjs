/**
 * `npm run transformers -- [NAME]...`: small random models of Hugging Face's transformers, as it saves them, beside what its own code
 * computes in float64: logits, pictures, sound, vectors, scores, adapters. Ends with code 1 where anything is off by more than 1e-4 of the largest.
 *
 * make.py needs torch, transformers 5, pillow, and peft for adapters: PYTHON names the interpreter that has them (default python3).
 * The recurrences of Qwen3.5 lose more digits than other layers, in transformers' float32, too.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureVulkan } from '../setup.mjs';

const MOST = 1e-4;

ensureVulkan();
await import('../run_typescript.mjs');
const { load } = await import('../../src/index.ts');
const { decodeSound } = await import('../../src/sound/decode.ts');
const { melFrames } = await import('../../src/sound/mel.ts');

const folder = mkdtempSync(join(tmpdir(), 'splitkv-transformers-'));
const make = fileURLToPath(new URL('make.py', import.meta.url));
const names = process.argv.slice(2);
let off = 0;

function tell(what, error) {
  if (!(error <= MOST)) off++;
  console.log(`${error <= MOST ? 'ok ' : 'OFF'} ${what.padEnd(32)} ${error.toExponential(1)}`);
}

const read = (path) => JSON.parse(readFileSync(path, 'utf8'));

/** The largest difference over the largest number. */
function errorOf(file, valueAt) {
  const { buffer, byteOffset, length } = readFileSync(file);
  const expected = new Float64Array(buffer.slice(byteOffset, byteOffset + length));
  let largest = 0;
  let error = 0;
  for (const [i, value] of expected.entries()) {
    largest = Math.max(largest, Math.abs(value));
    const difference = Math.abs(value - valueAt(i));
    error = difference <= error ? error : difference;
  }
  return error / largest;
}

function logitError(at, rows) {
  const { vocabulary } = read(join(at, 'expected.json'));
  return errorOf(join(at, 'logits.f64'), (i) => rows[Math.floor(i / vocabulary)][i % vocabulary]);
}

async function compareLogits(model, name, at, { ids, pictures = 0, recordings = 0 }) {
  const images = Array.from({ length: pictures }, (_, i) => readFileSync(join(at, `picture${i}.png`)));
  const sounds = Array.from({ length: recordings }, (_, i) => readFileSync(join(at, `recording${i}.wav`)));
  for (const [i, sound] of sounds.entries()) {
    if (!existsSync(join(at, `frames${i}.f64`))) continue;
    const frames = melFrames(await decodeSound(sound));
    tell(
      `${name}: frames ${i}`,
      errorOf(join(at, `frames${i}.f64`), (element) => frames[element]),
    );
  }
  const prompt = pictures + recordings > 0 ? await model.readPrompt({ prompt: ids, images, sounds }) : ids;
  tell(name, logitError(at, (await model.logits(prompt, { all: true })).rows));
  const lora = join(at, 'lora');
  if (!existsSync(join(lora, 'expected.json'))) return;
  const { rows } = await model.logits(ids, { all: true, adapter: 'lora' });
  tell(`${name} with an adapter`, logitError(lora, rows));
}

const compareTexts = async (model, name, { texts, vectors, scores }) => {
  const made = vectors
    ? (await model.embed(texts)).embeddings
    : (await model.rerank(texts[0], texts.slice(1))).results
        .toSorted((a, b) => a.index - b.index)
        .map(({ relevance_score: score }) => [score]);
  const differences = (vectors ?? scores.map((score) => [score])).map((expected, i) =>
    Math.max(...expected.map((value, k) => Math.abs(value - made[i][k]))),
  );
  tell(name, Math.max(...differences));
};

try {
  const { status } = spawnSync(process.env.PYTHON ?? 'python3', [make, folder, ...names], {
    stdio: ['ignore', 2, 'inherit'],
    env: { ...process.env, HF_HUB_DISABLE_PROGRESS_BARS: '1' },
  });
  if (status !== 0)
    throw new Error(`make.py ended with ${status}: it needs torch, transformers 5 and pillow; PYTHON=...`);
  for (const name of readdirSync(folder)) {
    const at = join(folder, name);
    const expected = read(join(at, 'expected.json'));
    const lora = join(at, 'lora');
    try {
      const model = await load(at, {
        weights: 'f32',
        contextLength: expected.recordings ? 1024 : 512,
        images: expected.pictures !== undefined,
        sound: expected.recordings !== undefined,
        ...(existsSync(join(lora, 'expected.json')) && { adapters: { lora } }),
      });
      await (expected.texts ? compareTexts(model, name, expected) : compareLogits(model, name, at, expected));
      await model.dispose();
    } catch (error) {
      off++;
      console.log(`OFF ${name}: ${error.message}`);
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
if (off > 0) console.error(`${off} differ`);
process.exit(off > 0 ? 1 : 0);
