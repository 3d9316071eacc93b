// node agent.mjs QUESTION: a model that calls functions until it can answer.
import { load } from 'splitkv';

const MODEL = process.env.MODEL ?? 'qwen3-0.6b';
const question = process.argv[2] ?? 'where is the red key ?';
const STEPS = 5;

const NOTES = {
  home: 'mia put the red key in the kitchen box . leo hid the blue key in the attic chest .',
  garden: 'the owl slept under the tree . sam likes the brave frog .',
};
const TOOLS = {
  read_notes: {
    description: 'Reads the notes about a place',
    parameters: {
      type: 'object',
      properties: { place: { enum: Object.keys(NOTES) } },
      required: ['place'],
      additionalProperties: false,
    },
    run: ({ place }) => NOTES[place],
  },
};
const tools = Object.entries(TOOLS).map(([name, { description, parameters }]) => ({
  type: 'function',
  function: { name, description, parameters, strict: true },
}));

/** What a call came to. Errors are results, too: the model may try something else. */
async function call({ id, function: { name, arguments: given } }) {
  const result = await Promise.resolve(JSON.parse(given))
    .then((args) => TOOLS[name].run(args))
    .catch(({ message }) => `error: ${message}`);
  console.log(`${name}(${given}): ${result}`);
  // Small models forget what they were asked.
  return { role: 'tool', tool_call_id: id, content: `${result} ${question}` };
}

const model = await load(MODEL);
const talk = model.conversation();
// The first answer has to be a call; later ones may be.
let turn = await talk.send(question, { tools, toolChoice: 'required', maxTokens: 500 }).result;
for (let step = 1; step < STEPS && turn.tool_calls?.length > 0; step++) {
  turn = await talk.send(await Promise.all(turn.tool_calls.map(call)), { tools, maxTokens: 500 }).result;
}
console.log(turn.text.trim());
await model.dispose();
