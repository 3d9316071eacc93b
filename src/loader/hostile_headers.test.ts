import { describe, expect, it } from 'vitest';
import { readGgufHeader } from './gguf/header.js';
import { readSafetensorsHeader } from './safetensors_header.js';
import { readJson, type Source } from './source.js';
import { readTensorIndex, SHARD_INDEX } from './tensor_index.js';
import { bytesOf, MAGIC } from './testing/header_bytes.js';
import { MemorySource } from './testing/memory_source.js';

/** A file of `size` bytes that begins with these, the rest zeros: what a sparse file costs nobody. */
const sparse = (start: Uint8Array, size: number): Source => ({
  name: 'sparse',
  size: async () => size,
  version: async () => undefined,
  read: async (_, from, to) => {
    const bytes = new Uint8Array(to - from);
    if (from < start.length) bytes.set(start.subarray(from, to));
    return bytes;
  },
});

const [U8, STRING, ARRAY] = [0, 8, 9];
const MI = 1024 * 1024;

/** Each ended the process, took more than ten seconds, or failed with an error of JavaScript's own. */
describe('GGUF headers that nobody needs', () => {
  it.each<[name: string, start: Uint8Array, size: number, message: RegExp]>([
    [
      'a list of 512 Mi bytes',
      bytesOf(MAGIC, 3, 0n, 1n, 'k', ARRAY, U8, 2n ** 29n),
      513 * MI,
      /has 536.?870.?912 values; expected at most 2.?097.?152/,
    ],
    [
      '2^27 empty texts',
      bytesOf(MAGIC, 3, 0n, 1n, 'k', ARRAY, STRING, 2n ** 27n),
      1025 * MI,
      /has 134.?217.?728 values/,
    ],
    [
      'a text of 600 MB',
      bytesOf(MAGIC, 3, 0n, 1n, 'k', STRING, 600_000_000n),
      601_000_000,
      /bytes of text; expected at most 67.?108.?864/,
    ],
    ['2^27 keys', bytesOf(MAGIC, 3, 0n, 2n ** 27n), 4096 * MI, /claims 0 tensors and 134217728 metadata keys/],
    [
      'a million tensors',
      bytesOf(MAGIC, 3, 10n ** 6n, 0n),
      100 * MI,
      /has 1.?000.?000 tensors; expected at most 131.?072/,
    ],
    ['lists of lists', bytesOf(MAGIC, 3, 0n, 1n, 'k', ARRAY, ARRAY, 2n ** 24n), 1024 * MI, /values; expected at most/],
  ])('%s', async (_, start, size, message) => {
    const error = expect.objectContaining({ code: 'format', message: expect.stringMatching(message) });
    await expect(readGgufHeader(sparse(start, size), 'm.gguf')).rejects.toEqual(error);
  });

  it('a text longer than the file is one cut short', async () => {
    const start = bytesOf(MAGIC, 3, 0n, 1n, 'k', STRING, 2n ** 62n);
    await expect(readGgufHeader(sparse(start, MI), 'm.gguf')).rejects.toThrow(/truncated/);
  });
});

const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);

function safetensors(json: string): MemorySource {
  const header = new TextEncoder().encode(json);
  const bytes = new Uint8Array(8 + header.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(header.length), true);
  bytes.set(header, 8);
  return new MemorySource({ m: bytes });
}

describe('safetensors headers that nobody needs', () => {
  const deep = nested(200_000);
  it.each<[name: string, json: string, message: RegExp]>([
    ['lists as dtype', `{"a":{"dtype":${deep},"shape":[],"data_offsets":[0,0]}}`, /nests lists 200002 deep/],
    ['lists as shape', `{"a":{"dtype":"F32","shape":${deep},"data_offsets":[0,0]}}`, /nests lists 200002 deep/],
    ['lists as metadata', `{"__metadata__":{"a":${deep}}}`, /nests lists 200002 deep/],
    [
      'a long shape',
      `{"a":{"dtype":"F32","shape":[${'1,'.repeat(3e6)}1],"data_offsets":[0,4]}}`,
      /3.?000.?00\d values/,
    ],
    [
      'half a million tensors',
      `{${Array.from({ length: 5e5 }, (_, i) => `"t${i}":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}`).join()}}`,
      /500.?000 tensors; expected at most/,
    ],
  ])('%s', async (_, json, message) => {
    const error = expect.objectContaining({ code: 'format', message: expect.stringMatching(message) });
    await expect(readSafetensorsHeader(safetensors(json), 'm')).rejects.toEqual(error);
  });

  it('brackets in texts nest nothing', async () => {
    const text = JSON.stringify({ __metadata__: { config: `${nested(50)}{"\\`.repeat(1000) } });
    const { metadata } = await readSafetensorsHeader(safetensors(text), 'm');
    expect(metadata.get('config')).toContain('[[[');
  });

  it('a configuration of a million keys', async () => {
    const json = JSON.stringify(Object.fromEntries(Array.from({ length: 1e6 }, (_, i) => [`hidden_siz${i}`, i])));
    await expect(readJson(new MemorySource({ 'config.json': json }), 'config.json')).rejects.toEqual(
      expect.objectContaining({
        code: 'format',
        message: expect.stringMatching(/config.json of memory has .*at most 2/),
      }),
    );
  });

  it('lists in an index', async () => {
    const source = new MemorySource({ [SHARD_INDEX]: `{"weight_map":${deep}}` });
    await expect(readTensorIndex(source)).rejects.toEqual(
      expect.objectContaining({
        code: 'format',
        message: expect.stringMatching(/nested 200,001 deep; expected at most/),
      }),
    );
  });
});
