/** 'GGUF'. */
export const MAGIC = 0x46554747;

/** The bytes of a header: numbers as u32, bigints as u64, text with its length. */
export function bytesOf(...parts: (number | bigint | string)[]): Uint8Array {
  const bytes: number[] = [];
  const push = (buffer: ArrayBuffer): number => bytes.push(...new Uint8Array(buffer));
  for (const part of parts) {
    if (typeof part === 'number') push(Uint32Array.of(part).buffer);
    else push(BigUint64Array.of(typeof part === 'bigint' ? part : BigInt(part.length)).buffer);
    if (typeof part === 'string') bytes.push(...new TextEncoder().encode(part));
  }
  return Uint8Array.from(bytes);
}
