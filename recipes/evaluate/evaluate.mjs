// node evaluate.mjs QUESTIONS.jsonl REPORT.json: how many answers are right.
import { readFile, writeFile } from 'node:fs/promises';
import { load } from 'splitkv';

const MODEL = process.env.MODEL ?? 'smollm2-360m-instruct';
const [from = 'questions.jsonl', to = 'report.json'] = process.argv.slice(2);

/** What may differ in a right answer. */
const plain = (text) =>
  text
    .toLowerCase()
    .replaceAll(/[\s.]+/g, ' ')
    .trim();

const questions = (await readFile(from, 'utf8'))
  .split('\n')
  .filter((line) => line.trim() !== '')
  .map((line) => JSON.parse(line));
const model = await load(MODEL);
const answers = [];
const prompts = questions.map(({ prompt }) => ({ messages: [{ role: 'user', content: prompt }] }));
for await (const { index, text } of model.generateMany(prompts, { temperature: 0, maxTokens: 50 })) {
  answers[index] = text.trim();
  process.stderr.write(`\r${Object.keys(answers).length} of ${questions.length}`);
}
const rows = questions.map(({ kind = 'all', prompt, answer }, at) => ({
  kind,
  prompt,
  wanted: answer.trim(),
  said: answers[at],
  right: plain(answers[at]) === plain(answer),
}));
console.log('');
for (const kind of new Set(rows.map((row) => row.kind))) {
  const of = rows.filter((row) => row.kind === kind);
  console.log(`${kind}: ${of.filter(({ right }) => right).length} of ${of.length} right`);
}
for (const { prompt, wanted, said } of rows.filter(({ right }) => !right)) {
  console.log(`wrong: …${prompt.slice(-60)}\n  wanted ${wanted}\n  said   ${said}`);
}
await writeFile(to, JSON.stringify({ model: model.info.name, rows }, undefined, 2));
await model.dispose();
