import { describe, expect, test } from 'vitest';
import { HEAD_TABLE_TAIL } from '../../../shaders/cache/head_tables.js';
import { NO_BLOCK } from '../../base/kv_units.js';
import { Random } from '../../base/random.js';
import { HeadBlocks } from './head_blocks.js';

const shape = { layers: 2, kvHeads: 2, slots: 3, numBlocks: 20, block: 64, contextLength: 640 };

/** Every block in at most one table, and none in both a table and the free list. */
function check(blocks: HeadBlocks): void {
  for (let layer = 0; layer < shape.layers; layer++) {
    const seen = new Set<number>();
    for (let slot = 0; slot < shape.slots; slot++) {
      const table = blocks.table(layer, slot);
      for (const [i, word] of table.entries()) {
        const place = i % blocks.tableStride;
        if (place === 0 || place === blocks.tableStride - HEAD_TABLE_TAIL || word === NO_BLOCK) continue;
        expect(word).toBeLessThan(shape.numBlocks);
        expect(seen.has(word), `block ${word} of layer ${layer} twice`).toBe(false);
        seen.add(word);
      }
    }
  }
}

describe('blocks of heads', () => {
  test('compression gives back what lies behind the kept entries, and appending goes on there', () => {
    const blocks = new HeadBlocks(shape);
    expect(blocks.reserve(1, 300)).toBe(true);
    expect(blocks.used).toBe(20);
    const before = blocks.table(0, 1);
    const kept = [
      [100, 300],
      [64, 32],
    ];
    expect(blocks.compressed(1, 300, kept)).toBe(3 + 0 + 4 + 4);
    const after = blocks.table(0, 1);
    expect([after[0], after[blocks.tableStride]]).toEqual([200, 0]);
    expect([...after.subarray(1, 4)]).toEqual([before[1], before[2], NO_BLOCK]);
    expect(blocks.reserve(1, 328)).toBe(true); // 128, 328, 92 and 60 entries
    expect(blocks.used).toBe(2 + 6 + 2 + 1);
    expect(blocks.reserve(1, 328)).toBe(false);
    expect(blocks.reserve(1, 329)).toBe(true); // 129, 329, 93 and 61
    expect(blocks.used).toBe(3 + 6 + 2 + 1);
    check(blocks);
    blocks.release(1);
    expect(blocks.used).toBe(0);
    expect(blocks.table(0, 1)[0]).toBe(0);
  });

  test('what does not fit is refused as a whole', () => {
    const blocks = new HeadBlocks(shape);
    blocks.reserve(0, 500);
    expect(blocks.missing(1, 129)).toBe(2);
    const { used } = blocks;
    expect(() => blocks.reserve(1, 129)).toThrow(/need 2 KV blocks more/);
    expect(blocks.used).toBe(used);
    expect(blocks.reserve(1, 128)).toBe(true);
    check(blocks);
    expect(() => blocks.compressed(0, 500, [[1, 2]])).toThrow(/layer 1, head 0 of slot 0 kept undefined/);
  });

  test('random sequences never share a block, and all blocks come back', () => {
    const random = new Random(3);
    const blocks = new HeadBlocks(shape);
    const lengths = [0, 0, 0];
    for (let i = 0; i < 400; i++) {
      const slot = random.integer(3);
      if (random.next() < 0.2) {
        blocks.release(slot);
        lengths[slot] = 0;
      } else if (lengths[slot] === 0) {
        const length = 40 + random.integer(300);
        if (blocks.missing(slot, length) > 0) continue;
        blocks.reserve(slot, length);
        blocks.compressed(
          slot,
          length,
          Array.from({ length: 2 }, () => Array.from({ length: 2 }, () => 32 + random.integer(length - 31))),
        );
        lengths[slot] = length;
      } else if (lengths[slot]! < 600 && blocks.missing(slot, lengths[slot]! + 40) <= 0) {
        lengths[slot]! += 40;
        blocks.reserve(slot, lengths[slot]!);
      }
      check(blocks);
    }
    for (let slot = 0; slot < 3; slot++) blocks.release(slot);
    expect(blocks.used).toBe(0);
  });

  test('a head goes from one rank to another: as many blocks there, none here, and it grows there only', () => {
    const here = new Set(['0 0', '0 1']);
    const there = new Set<string>();
    const [from, to] = [here, there].map(
      (held) => new HeadBlocks({ ...shape, holds: (_, slot, head) => held.has(`${slot} ${head}`) }),
    ) as [HeadBlocks, HeadBlocks];
    for (const blocks of [from, to]) {
      blocks.reserve(0, 300);
      blocks.compressed(0, 300, [
        [100, 200],
        [130, 300],
      ]);
      blocks.reserve(0, 330);
    }
    expect([from.used, to.used]).toEqual([3 + 4 + 3 + 6, 0]);
    // The second head, of 200 and 300 entries of the prompt: now 210 and 310.
    const [sent, taken] = [from.blocksBelow(0, 1, 310), to.takeIn(0, 1, 310)];
    expect([sent, taken].map((layers) => layers.map(({ length }) => length))).toEqual([
      [4, 5],
      [4, 5],
    ]);
    here.delete('0 1');
    there.add('0 1');
    from.giveAway(0, 1);
    for (const blocks of [from, to]) check(blocks);
    expect([from.used, to.used]).toEqual([6, 10]);
    expect([0, 1].map((layer) => [from, to].map((blocks) => blocks.entries(layer, 0, 310)))).toEqual([
      [110, 210],
      [140, 310],
    ]);
    for (const blocks of [from, to]) blocks.reserve(0, 400);
    expect([from.used, to.used]).toEqual([4 + 4, 5 + 7]);
    from.release(0);
    to.release(0);
    expect([from.used, to.used]).toEqual([0, 0]);
    const full = new HeadBlocks({ ...shape, numBlocks: 4, holds: (_, slot) => slot === 1 });
    full.reserve(1, 128);
    full.reserve(0, 64);
    expect(() => full.takeIn(0, 1, 64)).toThrow('no room for kv head 1 of slot 0');
  });
});
