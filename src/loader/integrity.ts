/** A SHA-256 as 64 hex digits or as `sha256-` and base64 (Subresource Integrity), in hex; undefined when it is neither. */
export function parseSha256(text: string): string | undefined {
  if (/^[0-9a-f]{64}$/i.test(text)) return text.toLowerCase();
  const base64 = /^sha256-([A-Za-z0-9+/_-]{43}=?)$/.exec(text)?.[1];
  if (base64 === undefined) return undefined;
  const bytes = atob(base64.replaceAll('-', '+').replaceAll('_', '/'));
  return toHex(Uint8Array.from(bytes, (letter) => letter.charCodeAt(0)));
}

export const toHex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
