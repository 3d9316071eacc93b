import type { Region, Transfer } from '../../distributed/communicator.js';
import type { Device } from '../../gpu/index.js';
import type { CacheBuffer, Decoder } from '../../model/forward/decoder.js';
import type { World } from '../../model/layers/world.js';
import { blockRegions, headBuffers } from './cache_blocks.js';
import type { MovedBlocks, PeerMoves } from './head_pages.js';

/** Bytes of one message, about: what an exchange stages at once. */
const MESSAGE_BYTES = 2 ** 24;

/**
 * Where KV blocks lie in every cache buffer, cut into messages. Ranks that keep the same layers and heads cut alike, whatever the blocks'
 * numbers: the messages of two lists of as many blocks match one by one.
 */
export const blockMessages = (
  buffers: readonly CacheBuffer[],
  blocksOf: (buffer: CacheBuffer) => readonly number[],
): Region[][] => messagesOf(buffers.flatMap((cache) => blockRegions(cache, blocksOf(cache))));

/** Regions in order, cut into messages between two of them. */
function messagesOf(regions: readonly Region[]): Region[][] {
  const messages: Region[][] = [];
  let room = 0;
  for (const region of regions) {
    if (region.size > room) {
      messages.push([]);
      room = MESSAGE_BYTES;
    }
    messages.at(-1)!.push(region);
    room -= region.size;
  }
  return messages;
}

/** Copies kv heads' blocks between this rank and its peers, all of which make this call with what they have to do. */
export async function exchangePieces(
  world: World,
  device: Device,
  forward: Pick<Decoder, 'layerCache'>,
  peers: readonly PeerMoves[],
): Promise<void> {
  const messages = (pieces: readonly MovedBlocks[]): Region[][] =>
    messagesOf(
      pieces.flatMap(({ layer, blocks }) => headBuffers(forward, layer).flatMap((of) => blockRegions(of, blocks))),
    );
  const lists = peers.map(({ peer, sends, receives }) => ({
    peer,
    sends: messages(sends),
    receives: messages(receives),
  }));
  const rounds = Math.max(0, ...lists.map(({ sends, receives }) => Math.max(sends.length, receives.length)));
  for (let round = 0; round < rounds; round++) {
    const inRound = (of: 'sends' | 'receives'): Transfer[] =>
      lists.flatMap(({ peer, [of]: { [round]: regions } }) => (regions ? [{ peer, regions }] : []));
    await world.exchange(device.gpu.createCommandEncoder(), {
      label: 'moved KV',
      sends: inRound('sends'),
      receives: inRound('receives'),
    });
  }
}
