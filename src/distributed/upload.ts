import type { Device } from '../gpu/index.js';
import type { Region } from './communicator.js';

/** Longer messages are written in pieces with a flush after each: see docs/decisions.md, "Messages are uploaded by writeBuffer". */
const WHOLE_BYTES = 4 * 2 ** 20;
const PIECE_BYTES = 2 ** 20;

/** Queues the upload of a message into its regions; the bytes may be overwritten once it returns. */
export function uploadRegions(device: Device, bytes: Uint8Array, regions: readonly Region[]): void {
  const most = bytes.byteLength > WHOLE_BYTES ? PIECE_BYTES : WHOLE_BYTES;
  let at = 0;
  let unflushed = 0;
  for (const { buffer, offset, size } of regions) {
    for (let done = 0; done < size;) {
      const piece = Math.min(size - done, most - unflushed);
      device.write(buffer, offset + done, bytes.subarray(at, at + piece));
      at += piece;
      done += piece;
      unflushed += piece;
      if (unflushed < most) continue;
      device.gpu.queue.submit([]);
      unflushed = 0;
    }
  }
}
