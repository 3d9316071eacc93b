export const ceilDiv = (a: number, b: number): number => Math.ceil(a / b);
export const alignUp = (value: number, alignment: number): number => ceilDiv(value, alignment) * alignment;
export const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));

/** The integer `value` as text with thousands separators, for messages: 134217728 -> "134,217,728". */
export const grouped = (value: number): string => value.toLocaleString('en-US');

/** Bytes as a person reads them: 1536 -> "1.5 KiB". */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** "135 M", "1.2 B". */
export const formatCount = (count: number): string =>
  count < 1e9 ? `${Math.round(count / 1e6)} M` : `${(count / 1e9).toFixed(1)} B`;

/** All bytes of the parts, in a buffer of their own. */
export function joinBytes(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.byteLength;
  }
  return all;
}

const joinViews = (parts: readonly ArrayBufferView[]): ArrayBuffer =>
  joinBytes(parts.map((part) => new Uint8Array(part.buffer, part.byteOffset, part.byteLength))).buffer;
export const joinFloats = (parts: readonly Float32Array[]): Float32Array => new Float32Array(joinViews(parts));
export const joinWords = (parts: readonly Uint32Array[]): Uint32Array => new Uint32Array(joinViews(parts));

/** In lower-case hex. */
export const toHex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');

/** SHA-256 in hex. */
export const sha256 = async (bytes: Uint8Array<ArrayBuffer>): Promise<string> =>
  toHex(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes)));

/** The bytes of a view. */
export function toBase64({ buffer, byteOffset, byteLength }: ArrayBufferView): string {
  const bytes = new Uint8Array(buffer, byteOffset, byteLength);
  let text = '';
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return btoa(text);
}
