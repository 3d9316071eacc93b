// node speculate.mjs TEXT: the same answer, in fewer steps.
import { load } from 'splitkv';

const MODEL = process.env.MODEL ?? 'smollm2-360m-instruct';
const line = 'lena hid the red needle in the workshop bag . ivy hid the brown drum in the porch basket . ';
const prompt = process.argv[2] ?? line.repeat(3);

const model = await load(MODEL, { speculate: 'ngram' });
const ask = (options) => model.generate(prompt, { temperature: 0, maxTokens: 60, ...options }).result;
const plain = await ask({ speculate: 'off' });
const fast = await ask({});
const { drafted, accepted, steps } = fast.stats.speculation;
console.log(fast.text.trim());
console.log(`the same text: ${fast.text === plain.text}`);
console.log(
  `of ${fast.tokens.length} tokens ${accepted} were guessed, ${drafted - accepted} guesses wrong, in ${steps} steps`,
);
console.log(`${plain.stats.tokens_per_second.toFixed(0)} tokens/s became ${fast.stats.tokens_per_second.toFixed(0)}`);
await model.dispose();
