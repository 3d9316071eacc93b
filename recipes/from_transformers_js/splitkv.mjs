import { load } from 'splitkv';

const MODEL = process.env.MODEL ?? 'HuggingFaceTB/SmolLM2-360M-Instruct';
const EMBEDDER = process.env.EMBEDDER ?? 'BAAI/bge-small-en-v1.5';
const messages = [{ role: 'user', content: 'mia put the red key in the kitchen box . where is the red key ?' }];

const generator = await load(MODEL, { weights: 'q4' });
const { text } = await generator.generate({ messages }, { maxTokens: 100, temperature: 0 }).result;
console.log(text);
await generator.dispose();

const extractor = await load(EMBEDDER);
const { embeddings: vectors } = await extractor.embed(['a red key', 'a red key', 'the owl'], { pooling: 'mean' });
const alike = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
console.log(alike(vectors[0], vectors[1]).toFixed(3), alike(vectors[0], vectors[2]).toFixed(3));
await extractor.dispose();
