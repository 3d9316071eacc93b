import { formatError, messageOf, unsupportedError, usageError } from '../base/errors.js';
import { givenBytes, type GivenFile, isOf } from './given_bytes.js';
import { checkPixels, readHeader } from './header.js';
import type { Picture } from './picture.js';

/**
 * A picture of a prompt: the bytes of a PNG, JPEG, WebP or GIF (its first frame), a `data:` URL of them, in a page a URL of its own origin,
 * or pixels that are there already.
 */
export type ImageSource = GivenFile | ImageBitmap | ImageData | HTMLCanvasElement | OffscreenCanvas | HTMLImageElement;

const DRAWN = ['ImageBitmap', 'HTMLCanvasElement', 'OffscreenCanvas', 'HTMLImageElement'];

/**
 * Its pixels: turned as the file says (EXIF), without alpha, as they are stored whatever colour profile is with them.
 * @throws SplitkvError as `readHeader`; `usage` for what is no picture, `io` for an address that can't be read
 */
export async function decodeImage(source: ImageSource): Promise<Picture> {
  if (isOf('ImageData', source)) return withoutAlpha(source as ImageData);
  if (DRAWN.some((name) => isOf(name, source))) return drawn(source as ImageBitmap);
  const bytes = await givenBytes(source, 'an image');
  if (!bytes)
    throw usageError('an image is given as bytes, a Blob, a data: URL, an ImageBitmap, ImageData or a canvas');
  const { format } = readHeader(bytes);
  try {
    if (typeof createImageBitmap === 'function') {
      const blob = new Blob([bytes], { type: `image/${format}` });
      const bitmap = await createImageBitmap(blob, {
        imageOrientation: 'from-image',
        premultiplyAlpha: 'none',
        colorSpaceConversion: 'none',
      });
      try {
        return drawn(bitmap);
      } finally {
        bitmap.close();
      }
    }
    return await (await import('./node_decode.js')).decodeInNode(bytes);
  } catch (error) {
    if ((error as { code?: unknown }).code === 'unsupported') throw error;
    throw formatError(`a ${format} image that can't be decoded: ${messageOf(error)}`, error);
  }
}

/** What a canvas shows, or what is drawn onto one. */
function drawn(source: ImageBitmap | HTMLCanvasElement | OffscreenCanvas | HTMLImageElement): Picture {
  const [width, height] =
    'naturalWidth' in source ? [source.naturalWidth, source.naturalHeight] : [source.width, source.height];
  checkPixels(width, height);
  const context = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
  if (!context) throw unsupportedError('this page can make no 2d canvas, which images are read by');
  context.drawImage(source, 0, 0);
  return withoutAlpha(context.getImageData(0, 0, width, height));
}

function withoutAlpha({ width, height, data }: Pick<ImageData, 'width' | 'height' | 'data'>): Picture {
  checkPixels(width, height);
  const out = new Uint8Array(width * height * 3);
  for (let pixel = 0; pixel < width * height; pixel++) {
    for (let channel = 0; channel < 3; channel++) out[pixel * 3 + channel] = data[pixel * 4 + channel]!;
  }
  return { width, height, data: out };
}
