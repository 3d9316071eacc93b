import type { Client } from '../priority.js';
import type { Scheduler } from '../scheduler.js';

/** Throws unless every block and slot is accounted for: held by exactly the running sequences that name it, otherwise free. */
export function audit(scheduler: Scheduler): void {
  const groupRows = scheduler.ranks[0]!.groupRows.map(() => 0);
  for (const rank of scheduler.ranks) {
    const holders = new Map<number, number>();
    const windows = new Map<number, number>();
    const prompts = new Map<number, number>();
    const slots = new Set<number>();
    for (const sequence of rank.running) {
      for (const block of sequence.blocks) holders.set(block, (holders.get(block) ?? 0) + 1);
      if (slots.has(sequence.slot)) throw new Error(`rank ${rank.index}: slot ${sequence.slot} has two sequences`);
      slots.add(sequence.slot);
      groupRows[rank.groupOf(sequence)]!++;
      for (const block of sequence.windows.blocks) windows.set(block, (windows.get(block) ?? 0) + 1);
      if (new Set(sequence.blocks).size < sequence.blocks.length) {
        throw new Error(`${sequence.id} has a block twice: ${sequence.blocks.join(' ')}`);
      }
    }
    for (const { keptBlocks } of rank.running) {
      for (const block of keptBlocks) prompts.set(block, (prompts.get(block) ?? 0) + 1);
    }
    for (const [pool, held] of [
      [rank.pool, holders] as const,
      [rank.windows?.pool, windows] as const,
      [rank.prompts?.pool, prompts] as const,
    ]) {
      for (let block = 0; block < (pool?.size ?? 0); block++) {
        const expected = held.get(block) ?? 0;
        if (pool!.holders(block) !== expected) {
          throw new Error(`rank ${rank.index}: block ${block} has ${pool!.holders(block)} holders, not ${expected}`);
        }
      }
      const expectFree = (pool?.size ?? 0) - held.size;
      if (pool && pool.numFree !== expectFree) {
        throw new Error(`rank ${rank.index}: ${pool.numFree} blocks free, not ${expectFree}`);
      }
    }
    if (rank.numFreeSlots !== rank.limits.slots - slots.size) {
      throw new Error(`rank ${rank.index}: ${rank.numFreeSlots} slots free, not ${rank.limits.slots - slots.size}`);
    }
    for (const sequence of rank.pending) {
      if (sequence.blocks.length + sequence.windows.blocks.length + sequence.keptBlocks.length > 0)
        throw new Error(`${sequence.id} waits and holds blocks`);
    }
    const decoding = rank.running.filter(({ status }) => status === 'decode').length;
    if (rank.numDecoding !== decoding)
      throw new Error(`rank ${rank.index}: ${rank.numDecoding} decoding, not ${decoding}`);
    const tokens = [...rank.running, ...rank.pending].reduce((sum, { promptLength }) => sum + promptLength, 0);
    if (rank.promptTokens !== tokens)
      throw new Error(`rank ${rank.index}: ${rank.promptTokens} prompt tokens, not ${tokens}`);
  }
  const held = new Map<Client, number>();
  for (const { running } of scheduler.ranks) {
    for (const { client } of running) held.set(client, (held.get(client) ?? 0) + 1);
  }
  for (const [client, slots] of held) {
    if (client.running !== slots) throw new Error(`client ${client.name}: ${client.running} slots, not ${slots}`);
  }
  for (const [group, rows] of scheduler.ranks[0]!.groupRows.entries()) {
    if (rows !== groupRows[group]) throw new Error(`micro-batch ${group}: ${rows} rows, not ${groupRows[group]}`);
  }
}
