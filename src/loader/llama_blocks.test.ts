import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { converter, loadDecoder } from './convert.js';
import { blockOf, BLOCK_TYPES, type BlockType } from './dtype.js';

const made = JSON.parse(readFileSync(new URL('./gguf/testing/llama_blocks.json', import.meta.url), 'utf8')) as Readonly<
  Record<BlockType, { readonly blocks: string; readonly sha256: string }>
>;

test.each(Object.keys(BLOCK_TYPES) as BlockType[])(
  "%s: llama.cpp's own numbers, bit for bit (testing/llama_blocks.py)",
  async (type) => {
    const bytes = Uint8Array.from(Buffer.from(made[type].blocks, 'base64'));
    const { elements, bytes: size } = blockOf(type);
    const values = new Float32Array((bytes.length / size) * elements);
    await loadDecoder(type);
    converter(type, bytes)(0, values.length, values, 0);
    expect(new Set(values).size).toBeGreaterThan(12);
    const sum = createHash('sha256').update(values.map((value) => value + 0));
    expect(sum.digest('hex')).toBe(made[type].sha256);
  },
);
