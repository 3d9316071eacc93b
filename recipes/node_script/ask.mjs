// node ask.mjs FILE QUESTION: an answer from a text file, as it comes.
import { readFile } from 'node:fs/promises';
import { load } from 'splitkv';

const MODEL = process.env.MODEL ?? 'smollm2-360m-instruct';
const [file, question] = process.argv.slice(2);
if (question === undefined) throw new Error('say a file and a question: node ask.mjs notes.txt "where is the key ?"');

const model = await load(MODEL, {
  onProgress: ({ loadedBytes, totalBytes }) => {
    if (totalBytes) process.stderr.write(`\r${Math.round((100 * loadedBytes) / totalBytes)} %  `);
  },
});
process.stderr.write('\n');
const content = `${(await readFile(file, 'utf8')).trim()}\n${question}`;
const answer = model.generate({ messages: [{ role: 'user', content }] }, { temperature: 0, maxTokens: 200 });
for await (const piece of answer) process.stdout.write(piece);
const { stats } = await answer.result;
process.stderr.write(`\n${stats.tokens_per_second.toFixed(0)} tokens/s on ${stats.adapter}\n`);
await model.dispose();
