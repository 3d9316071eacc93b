/**
 * The libraries of some trees in one process, driven by scripts/pace.mjs: it runs what it is told by message, one thing at a time. Two
 * processes of the same tree may differ by a tenth as long as they live, so that trees are compared in one.
 */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** What a generation of so many tokens measured: the first token's time, and of those after it the time and what CPU they took. */
async function generate(model, prompt, tokens) {
  const started = performance.now();
  let first;
  let cpu;
  const generation = model.generate(prompt, { maxTokens: tokens, temperature: 0, ignoreEos: true });
  for await (const _ of generation) {
    if (first !== undefined) continue;
    first = performance.now();
    cpu = process.cpuUsage();
  }
  const ended = performance.now();
  const { user, system } = process.cpuUsage(cpu);
  const result = await generation.result;
  return { ttftMs: first - started, decodeMs: ended - first, cpuMs: (user + system) / 1000, tokens: result.tokens };
}

const trees = process.argv.slice(2);
const at = (tree, path) => import(pathToFileURL(join(tree, path)).href);
await at(trees[0], 'scripts/run_typescript.mjs');
const libraries = [];
for (const tree of trees) libraries.push(await at(tree, 'src/index.ts'));
const models = new Map();

const CALLS = {
  async open({ side, model, options }) {
    const loaded = await libraries[side].load(model, options);
    models.set(side, loaded);
    return { adapter: loaded.info.adapter, vocabSize: loaded.info.vocabSize };
  },
  async generate({ side, prompts, tokens }) {
    const results = [];
    for (const prompt of prompts) results.push(await generate(models.get(side), prompt, tokens));
    return results;
  },
};

process.on('message', ({ call, ...args }) => {
  CALLS[call](args).then(
    (answer) => process.send({ answer }),
    (error) => process.send({ error: error instanceof Error ? error.message : String(error) }),
  );
});
process.on('disconnect', () => process.exit());
process.send({ answer: true });
