import type { Device } from '../gpu/index.js';
import type { Region } from './communicator.js';

/** Bytes written between two flushes: see docs/decisions.md, "Uploads go by writeBuffer". */
const FLUSH_BYTES = 2 ** 20;

/** Queues the upload of a message into its regions; the bytes may be overwritten once it returns. */
export function uploadRegions(device: Device, bytes: Uint8Array, regions: readonly Region[]): void {
  const { queue } = device.gpu;
  let at = 0;
  let unflushed = 0;
  for (const { buffer, offset, size } of regions) {
    for (let done = 0; done < size;) {
      const part = Math.min(size - done, FLUSH_BYTES - unflushed);
      device.write(buffer, offset + done, bytes.subarray(at, at + part));
      at += part;
      done += part;
      unflushed += part;
      if (unflushed < FLUSH_BYTES) continue;
      queue.submit([]);
      unflushed = 0;
    }
  }
}
