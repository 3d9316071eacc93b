// node lora.mjs ADAPTER QUESTION: one model with and without a low-rank adapter.
import { load } from 'splitkv';

const MODEL = process.env.MODEL ?? 'qwen3-0.6b';
const [adapter, question = 'where is the red key ?'] = process.argv.slice(2);
if (adapter === undefined) throw new Error("say the adapter: a folder of PEFT's, or a .gguf file");

const model = await load(MODEL, { adapters: { mine: adapter } });
const prompt = { messages: [{ role: 'user', content: question }] };
const ask = (options) => model.generate(prompt, { temperature: 0, maxTokens: 100, ...options }).result;
// Both at once: requests with several adapters, or none, share the weights and run together.
const [plain, adapted] = await Promise.all([ask({}), ask({ adapter: 'mine' })]);
console.log(`without: ${plain.text.trim()}`);
console.log(`with:    ${adapted.text.trim()}`);

await model.adapters.add('half', { from: adapter, scale: 0.5 });
console.log(`by half: ${(await ask({ adapter: 'half' })).text.trim()}`);
await model.dispose();
