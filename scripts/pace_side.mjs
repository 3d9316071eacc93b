/** One tree's library, driven by scripts/pace.mjs: a process of its own, which runs what it is told by message, one thing at a time. */
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

const [tree] = process.argv.slice(2);
const at = (path) => import(pathToFileURL(join(tree, path)).href);
await at('scripts/run_typescript.mjs');
const { load } = await at('src/index.ts');
const models = new Map();

const CALLS = {
  async open({ model, options }) {
    const loaded = await load(model, options);
    models.set(model, loaded);
    return { adapter: loaded.info.adapter, vocabSize: loaded.info.vocabSize };
  },
  async generate({ model, prompts, tokens }) {
    const results = [];
    for (const prompt of prompts) results.push(await generate(models.get(model), prompt, tokens));
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
