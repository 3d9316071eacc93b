/**
 * Room: pictures of prompts, before a model sees them: what a file says of itself (here), its pixels (decode.ts), the sizes that models
 * want (resize.ts), and how each family cuts and announces them (idefics3.ts). No GPU; loaded by `import()` where a prompt has pictures.
 */

import { formatError, limitError, type SplitkvError, unsupportedError } from '../base/errors.js';
import { formatBytes, grouped } from '../base/math.js';

/** What a picture may be at most, and how many a prompt may have. */
export const IMAGE_LIMITS = { bytes: 64 * 2 ** 20, pixels: 2 ** 26, images: 32 } as const;

/** Of a file, before it is decoded. */
export interface ImageHeader {
  readonly format: 'png' | 'jpeg' | 'webp' | 'gif';
  readonly width: number;
  readonly height: number;
}

const KINDS = 'PNG, JPEG, WebP or GIF';

/**
 * Reads what a file says of itself, and whether it ends as its format does, so that nothing is decoded that is too large or cut off.
 * @throws SplitkvError `unsupported` for another format, `format` for a broken file, `limit` for too many bytes or pixels
 */
export function readHeader(bytes: Uint8Array): ImageHeader {
  if (bytes.length > IMAGE_LIMITS.bytes)
    throw limitError(`an image of ${formatBytes(bytes.length)}: at most ${formatBytes(IMAGE_LIMITS.bytes)} are read`);
  const header = formatOf(bytes);
  checkPixels(header.width, header.height);
  return header;
}

/** @throws SplitkvError `limit`, `format` for a side of 0 */
export function checkPixels(width: number, height: number): void {
  if (width < 1 || height < 1) throw formatError(`an image of ${width} x ${height} pixels has none`);
  if (width * height > IMAGE_LIMITS.pixels) {
    throw limitError(
      `an image of ${grouped(width)} x ${grouped(height)} pixels: at most ${grouped(IMAGE_LIMITS.pixels)} are decoded; scale it down`,
    );
  }
}

function formatOf(bytes: Uint8Array): ImageHeader {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const text = (at: number, length: number): string => String.fromCharCode(...bytes.subarray(at, at + length));
  try {
    if (text(0, 8) === '\x89PNG\r\n\x1A\n') return png(view, text);
    if (text(0, 2) === '\xFF\xD8') return jpeg(view);
    if (/^GIF8[79]a$/.test(text(0, 6)))
      return { format: 'gif', width: view.getUint16(6, true), height: view.getUint16(8, true) };
    if (text(0, 4) === 'RIFF' && text(8, 4) === 'WEBP') return webp(view, text);
  } catch (error) {
    if (error instanceof RangeError) throw cut('header');
    throw error;
  }
  if (bytes.length === 0) throw formatError('an image of 0 bytes');
  const start = text(0, 512).trimStart();
  if (/^(\uFEFF|\xEF\xBB\xBF)?<(\?xml|svg|!--|!DOCTYPE)/i.test(start))
    throw unsupportedError(`an SVG or XML document is drawn, not read: give a ${KINDS} of it`);
  if (text(4, 4) === 'ftyp') throw unsupportedError(`an AVIF, HEIC or video file: give a ${KINDS}`);
  throw unsupportedError(`these bytes are no image that is read here: give a ${KINDS}`);
}

const cut = (format: string): SplitkvError => formatError(`a cut off image: its ${format} isn't whole`);

type TextAt = (at: number, length: number) => string;

function png(view: DataView, text: TextAt): ImageHeader {
  if (view.byteLength < 24) throw cut('PNG');
  if (text(12, 4) !== 'IHDR') throw formatError('a PNG without its header');
  const header = { format: 'png', width: view.getUint32(16), height: view.getUint32(20) } as const;
  for (let at = 8; ; at += view.getUint32(at) + 12) {
    if (at + 12 > view.byteLength) throw cut('PNG');
    if (text(at + 4, 4) === 'IEND') return header;
  }
}

/** Segments up to the frame's, then the end mark behind its scans. */
function jpeg(view: DataView): ImageHeader {
  let header: ImageHeader | undefined;
  for (let at = 2; at + 4 <= view.byteLength;) {
    if (view.getUint8(at) !== 0xff) throw formatError('a broken JPEG: there is no segment where one begins');
    const marker = view.getUint8(at + 1);
    if (marker === 0xff) {
      at++;
      continue;
    }
    // Start of a frame: not the tables' marks among its numbers.
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker))
      header = { format: 'jpeg', width: view.getUint16(at + 7), height: view.getUint16(at + 5) };
    if (marker === 0xda) {
      if (!header) throw formatError('a JPEG without a frame');
      for (let end = view.byteLength - 2; end > at; end--) if (view.getUint16(end) === 0xffd9) return header;
      throw cut('JPEG');
    }
    at += 2 + view.getUint16(at + 2);
  }
  throw cut('JPEG');
}

function webp(view: DataView, text: TextAt): ImageHeader {
  if (view.getUint32(4, true) + 8 > view.byteLength) throw cut('WebP');
  const kind = text(12, 4);
  const of = (width: number, height: number): ImageHeader => ({ format: 'webp', width, height });
  if (kind === 'VP8 ') return of(view.getUint16(26, true) & 0x3fff, view.getUint16(28, true) & 0x3fff);
  if (kind === 'VP8L') {
    const bits = view.getUint32(21, true);
    return of((bits & 0x3fff) + 1, ((bits >>> 14) & 0x3fff) + 1);
  }
  if (kind !== 'VP8X') throw formatError(`a WebP whose first chunk is ${JSON.stringify(kind)}`);
  const side = (at: number): number => view.getUint16(at, true) + view.getUint8(at + 2) * 2 ** 16 + 1;
  return of(side(24), side(27));
}
