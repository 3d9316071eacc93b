import { toBase64 } from '../../src/base/math.js';

/**
 * A text for the fragment of an address, which no server is told: compressed, in base64url.
 * @param most bytes that it may take compressed
 * @throws Error where it takes more
 */
export async function pack(text: string, most: number): Promise<string> {
  const packed = await through(new TextEncoder().encode(text), new CompressionStream('deflate-raw'), most);
  return toBase64(packed).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

/**
 * What `pack` made, and anybody may have changed.
 * @param most bytes of the text: a short address could unpack to gigabytes
 * @throws Error for what isn't whole, or longer
 */
export async function unpack(packed: string, most: number): Promise<string> {
  const base64 = packed.replaceAll('-', '+').replaceAll('_', '/');
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new TextDecoder().decode(await through(bytes, new DecompressionStream('deflate-raw'), most));
}

async function through(
  bytes: Uint8Array<ArrayBuffer>,
  stream: GenericTransformStream,
  most: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const reader = (
    new Blob([bytes]).stream().pipeThrough(stream) as ReadableStream<Uint8Array<ArrayBuffer>>
  ).getReader();
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(parts).arrayBuffer());
    length += value.length;
    if (length > most) {
      await reader.cancel();
      throw new RangeError(`more than ${most} bytes`);
    }
    parts.push(value);
  }
}
