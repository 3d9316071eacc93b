import { Random } from '../../base/random.js';
import type { Picture } from '../picture.js';

/** A picture of random pixels. */
export function noise(width: number, height: number, seed = 1): Picture {
  const random = new Random(seed);
  return { width, height, data: Uint8Array.from({ length: width * height * 3 }, () => random.integer(256)) };
}

/** As a PNG file, which pages and Node read alike. */
export async function pngOf({ width, height, data }: Picture): Promise<Uint8Array<ArrayBuffer>> {
  const lines = new Uint8Array(height * (1 + 3 * width)); // each begins with its filter: none
  for (let line = 0; line < height; line++)
    lines.set(data.subarray(3 * width * line, 3 * width * (line + 1)), line * (1 + 3 * width) + 1);
  const packed = new Blob([lines]).stream().pipeThrough(new CompressionStream('deflate'));
  const header = new DataView(new ArrayBuffer(13));
  header.setUint32(0, width);
  header.setUint32(4, height);
  header.setUint16(8, 0x0802); // 8 bits of red, green and blue
  const parts = [
    Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a),
    chunk('IHDR', new Uint8Array(header.buffer)),
    chunk('IDAT', new Uint8Array(await new Response(packed).arrayBuffer())),
    chunk('IEND', new Uint8Array(0)),
  ];
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

function chunk(type: string, content: Uint8Array): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(12 + content.length);
  const view = new DataView(out.buffer);
  view.setUint32(0, content.length);
  out.set(new TextEncoder().encode(type), 4);
  out.set(content, 8);
  view.setUint32(8 + content.length, crc32(out.subarray(4, 8 + content.length)));
  return out;
}

function crc32(bytes: Uint8Array): number {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}
