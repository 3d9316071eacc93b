// node label.mjs TEXTS.txt LABELS.jsonl: a label for each line of a file.
import { readFile, writeFile } from 'node:fs/promises';
import { load } from 'splitkv';

const MODEL = process.env.MODEL ?? 'smollm2-360m-instruct';
const [from = 'texts.txt', to = 'labels.jsonl'] = process.argv.slice(2);
const QUESTION = 'where is the red key ?';
const LABELS = ['in the kitchen box .', 'in the attic chest .', 'in the garden bag .'];

const texts = (await readFile(from, 'utf8')).split('\n').filter((line) => line.trim() !== '');
const model = await load(MODEL);
// Some models begin with a blank.
const grammar = `root ::= " "? (${LABELS.map((label) => JSON.stringify(label)).join(' | ')})`;
const prompts = texts.map((text) => ({ messages: [{ role: 'user', content: `${text} ${QUESTION}` }] }));
const labels = [];
for await (const { index, text } of model.generateMany(prompts, { grammar, temperature: 0 })) {
  labels[index] = text.trim();
  process.stderr.write(`\r${Object.keys(labels).length} of ${texts.length}`);
}
await writeFile(to, texts.map((text, at) => `${JSON.stringify({ text, label: labels[at] })}\n`).join(''));
console.log(`\n${LABELS.map((label) => `${labels.filter((each) => each === label).length} ${label}`).join('\n')}`);
await model.dispose();
