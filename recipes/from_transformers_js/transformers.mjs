import { pipeline } from '@huggingface/transformers';

const MODEL = process.env.MODEL ?? 'HuggingFaceTB/SmolLM2-360M-Instruct';
const EMBEDDER = process.env.EMBEDDER ?? 'BAAI/bge-small-en-v1.5';
const messages = [{ role: 'user', content: 'mia put the red key in the kitchen box . where is the red key ?' }];

const generator = await pipeline('text-generation', MODEL, { device: 'webgpu', dtype: 'q4' });
const [{ generated_text: turns }] = await generator(messages, { max_new_tokens: 100, do_sample: false });
console.log(turns.at(-1).content);
await generator.dispose();

const extractor = await pipeline('feature-extraction', EMBEDDER, { device: 'webgpu' });
const vectors = (await extractor(['a red key', 'a red key', 'the owl'], { pooling: 'mean', normalize: true })).tolist();
const alike = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
console.log(alike(vectors[0], vectors[1]).toFixed(3), alike(vectors[0], vectors[2]).toFixed(3));
await extractor.dispose();
