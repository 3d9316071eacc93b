// node places.mjs TEXT QUESTION: an answer that a program can take apart.
import { load } from 'splitkv';

const MODEL = process.env.MODEL ?? 'smollm2-360m-instruct';
const [text = 'mia put the red key in the kitchen box . leo hid the blue key in the attic chest .', question] =
  process.argv.slice(2);

const GRAMMAR = `
root  ::= " "? "in the " room " " thing " ."
room  ::= "kitchen" | "attic" | "garden" | "cellar"
thing ::= "box" | "chest" | "bag"
`;

const model = await load(MODEL);
const content = `${text} ${question ?? 'where is the blue key ?'}`;
const { text: answer } = await model.generate(
  { messages: [{ role: 'user', content }] },
  { grammar: GRAMMAR, temperature: 0 },
).result;
const [, room, thing] = /in the (\w+) (\w+)/.exec(answer);
console.log(JSON.stringify({ room, thing }));
await model.dispose();
