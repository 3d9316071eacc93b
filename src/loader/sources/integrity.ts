import { usageError } from '../../base/errors.js';
import { toHex } from '../../base/math.js';
import { checkFileName } from '../source.js';

/** A SHA-256 as 64 hex digits or as `sha256-` and base64 (Subresource Integrity), in hex; undefined when it is neither. */
export function parseSha256(text: string): string | undefined {
  if (/^[0-9a-f]{64}$/i.test(text)) return text.toLowerCase();
  const base64 = /^sha256-([A-Za-z0-9+/_-]{43}=?)$/.exec(text)?.[1];
  if (base64 === undefined) return undefined;
  const bytes = atob(base64.replaceAll('-', '+').replaceAll('_', '/'));
  return toHex(Uint8Array.from(bytes, (letter) => letter.charCodeAt(0)));
}

/** @throws SplitkvError `usage` for what is no map of files to SHA-256 */
export function parseIntegrity(integrity: unknown): ReadonlyMap<string, string> {
  if (typeof integrity !== 'object' || integrity === null || Array.isArray(integrity)) {
    throw usageError(
      `integrity: expected an object of file names to SHA-256, such as {"model.safetensors": "9f86d0..."}`,
    );
  }
  return new Map(
    Object.entries(integrity).map(([file, text]: [string, unknown]) => {
      checkFileName(file);
      // As Subresource Integrity, several may be given, of which the one that is known counts.
      const tokens = typeof text === 'string' ? text.trim().split(/\s+/) : [];
      const sha256 = tokens.map(parseSha256).find((found) => found !== undefined);
      if (sha256 !== undefined) return [file, sha256];
      throw usageError(
        `integrity of ${file}: ${JSON.stringify(text)?.slice(0, 100)} is no SHA-256; expected 64 hex digits, or sha256- and base64`,
      );
    }),
  );
}
