import type { Region } from '../distributed/communicator.js';
import type { Forward } from '../model/forward.js';

/** Bytes of one message, about: what a hop stages at once. */
const MESSAGE_BYTES = 2 ** 24;

/**
 * Where KV blocks lie in every cache buffer, cut into messages. Ranks that keep the same layers and heads cut alike, whatever the blocks'
 * numbers: the messages of two lists of as many blocks match one by one.
 */
export function blockMessages(buffers: Forward['cacheBuffers'], blocks: readonly number[]): Region[][] {
  const messages: Region[][] = [];
  let room = 0;
  for (const { buffer, blockBytes } of buffers) {
    for (const block of blocks) {
      if (blockBytes > room) {
        messages.push([]);
        room = MESSAGE_BYTES;
      }
      messages.at(-1)!.push({ buffer, offset: block * blockBytes, size: blockBytes });
      room -= blockBytes;
    }
  }
  return messages;
}
