import { describe, expect, it } from 'vitest';
import { Random } from '../../base/random.js';
import { readJson, readText, type Source } from '../source.js';

/** Bytes that no shift or cut leaves alike. */
export const randomBytes = (length: number, seed = 1): Uint8Array<ArrayBuffer> => {
  const random = new Random(seed);
  return Uint8Array.from({ length }, () => random.integer(256));
};

/** The folder every Source of the conformance suite holds. `big.bin` is larger than anything fetched in one go. */
export const suiteFiles: Readonly<Record<string, Uint8Array<ArrayBuffer>>> = {
  'config.json': new TextEncoder().encode('{"model_type": "llama", "name": "é"}'),
  'bad.json': new TextEncoder().encode('{"a": '),
  'latin1.txt': Uint8Array.of(0x61, 0xe9),
  'empty.txt': new Uint8Array(0),
  'nested/a b#1.txt': new TextEncoder().encode('nested'),
  'big.bin': randomBytes(300_000),
};

const big = suiteFiles['big.bin']!;

/** What any Source must do; `open` gives one that holds `suiteFiles`. */
export function testSource(name: string, open: () => Promise<Source>): void {
  describe(`Source: ${name}`, () => {
    it('tells sizes, and undefined for a missing file', async () => {
      const source = await open();
      for (const [file, bytes] of Object.entries(suiteFiles))
        expect(await source.size(file), file).toBe(bytes.byteLength);
      expect(await source.size('missing.json')).toBeUndefined();
      expect(await source.size('nested/missing.json')).toBeUndefined();
    });

    it('reads any range', async () => {
      const source = await open();
      const ends = [0, 1, 2, 4095, 65535, 65536, 65537, 131072, 299_999, 300_000];
      for (const start of ends) {
        for (const end of ends.filter((candidate) => candidate >= start)) {
          expect(
            Buffer.compare(await source.read('big.bin', start, end), big.subarray(start, end)),
            `${start}-${end}`,
          ).toBe(0);
        }
      }
      expect(await source.read('empty.txt', 0, 0)).toHaveLength(0);
    });

    it("gives buffers that are the caller's own", async () => {
      const source = await open();
      const first = await source.read('config.json', 0, 5);
      first.fill(0);
      expect(await source.read('config.json', 0, 5)).toEqual(suiteFiles['config.json']!.slice(0, 5));
    });

    it('refuses ranges beyond the file, missing files and wrong arguments', async () => {
      const source = await open();
      await expect(source.read('big.bin', 299_999, 300_001)).rejects.toMatchObject({
        code: 'io',
        message: expect.stringContaining('300001'),
      });
      await expect(source.read('big.bin', 400_000, 400_001)).rejects.toMatchObject({ code: 'io' });
      await expect(source.read('missing.json', 0, 1)).rejects.toMatchObject({
        code: 'io',
        message: expect.stringContaining('missing.json'),
      });
      await expect(source.version('missing.json')).rejects.toMatchObject({ code: 'io' });
      for (const [start, end] of [
        [-1, 2],
        [2, 1],
        [0.5, 1],
        [0, Number.NaN],
      ] as const) {
        await expect(source.read('big.bin', start, end)).rejects.toMatchObject({ code: 'usage' });
      }
    });

    it('never leaves its folder', async () => {
      const source = await open();
      for (const file of [
        '../config.json',
        '/etc/hostname',
        'nested/../config.json',
        '',
        'nested\\a',
        './config.json',
      ]) {
        await expect(source.size(file), file).rejects.toMatchObject({ code: 'format' });
        await expect(source.read(file, 0, 1), file).rejects.toMatchObject({ code: 'format' });
      }
    });

    it('has a version that stays while the file does', async () => {
      const source = await open();
      expect(await source.version('big.bin')).toBe(await (await open()).version('big.bin'));
    });

    it('rejects with `aborted` when the signal has fired', async () => {
      const source = await open();
      const signal = AbortSignal.abort();
      await expect(source.size('big.bin', signal)).rejects.toMatchObject({ code: 'aborted' });
      await expect(source.version('big.bin', signal)).rejects.toMatchObject({ code: 'aborted' });
      await expect(source.read('big.bin', 0, 300_000, signal)).rejects.toMatchObject({ code: 'aborted' });
    });

    it('rejects with `aborted` when the signal fires meanwhile', async () => {
      const source = await open();
      await source.size('big.bin');
      const stop = new AbortController();
      const work = source.read('big.bin', 100_000, 300_000, stop.signal);
      stop.abort();
      await expect(work).rejects.toMatchObject({ code: 'aborted' });
    });

    it('gives text and JSON', async () => {
      const source = await open();
      expect(await readJson(source, 'config.json')).toEqual({ model_type: 'llama', name: 'é' });
      expect(await readText(source, 'nested/a b#1.txt')).toBe('nested');
      expect(await readText(source, 'empty.txt')).toBe('');
      expect(await readJson(source, 'missing.json')).toBeUndefined();
      await expect(readJson(source, 'bad.json')).rejects.toMatchObject({
        code: 'format',
        message: expect.stringContaining('bad.json'),
      });
      await expect(readText(source, 'latin1.txt')).rejects.toMatchObject({ code: 'format' });
    });
  });
}
